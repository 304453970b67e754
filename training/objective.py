"""The objective: which terms there are, how they are summed over a micro-batch, and what is logged on the way."""

from collections import defaultdict
from dataclasses import dataclass, field
from typing import Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import model_validator
from torch import Tensor

from peira.training.model import Decided
from peira.training.phase import MiniBatch, Piece
from peira.training.settings import Settings
from peira.training.terms import (
    Aggregate,
    Divergence,
    EntropyBonus,
    Likelihood,
    PolicyGradient,
    Term,
    aggregate,
    divergence,
    entropy_bonus,
    likelihood,
    policy_gradient,
    summarise,
)

__all__ = ["Log", "Objective", "is_on", "piece_loss"]


class Objective(Settings):
    """The terms of the loss and how decisions are weighed against each other."""

    aggregate: Aggregate = Aggregate()
    policy: PolicyGradient | None = PolicyGradient()
    divergence: Divergence | None = None
    entropy: EntropyBonus | None = None
    likelihood: Likelihood | None = None
    skip_flat: bool = False
    """Do not compute episodes whose weights are all zero. The gradient is the same; metrics see only the others."""

    @model_validator(mode="after")
    def _terms_fit(self) -> Self:
        if self.policy is None and self.likelihood is None:
            raise ValueError("nothing to learn by: both 'policy' and 'likelihood' are left out")
        if self.skip_flat and (is_on(self.divergence) or is_on(self.entropy)):
            raise ValueError("'skip_flat' would hide flat episodes from the divergence and entropy terms: turn one off")
        return self

    def at(self, update: int) -> Self:
        """Return the objective of one update: what is scheduled is replaced by its value."""
        return self if self.entropy is None else self.model_copy(update={"entropy": self.entropy.at(update)})


def is_on(term: Divergence | EntropyBonus | Likelihood | None) -> bool:
    """Whether a term takes part; with coefficient 0 it must be as if it were not there."""
    if isinstance(term, EntropyBonus):
        return term.used
    return term is not None and term.coefficient > 0


@dataclass
class Log:
    """What the steps of one update report."""

    values: dict[str, list[Tensor]] = field(default_factory=lambda: defaultdict(list))
    losses: list[float] = field(default_factory=list)
    norms: list[float] = field(default_factory=list)
    mismatch: list[Tensor] = field(default_factory=list)
    refused: list[str] = field(default_factory=list)
    still: int = 0
    steps: int = 0
    decisions: int = 0
    tokens: int = 0

    def metrics(self) -> dict[str, float]:
        """Everything the steps saw. ``mismatch``: |log-prob now - log-prob at sampling| before the first step."""
        seen = summarise(self.values)
        if self.mismatch:
            mismatch = torch.cat(self.mismatch)
            seen["mismatch_mean"], seen["mismatch_max"] = float(mismatch.mean()), float(mismatch.max())
        # A refused step saw numbers that are not finite; an update must not carry them.
        seen = {name: value for name, value in seen.items() if np.isfinite(value)}
        if self.norms:
            seen["grad_norm_max"] = max(self.norms)
        return {
            **seen,
            "steps": float(self.steps),
            "steps_not_finite": float(len(self.refused)),
            "steps_without_gradient": float(self.still),
            "decisions": float(self.decisions),
            "tokens": float(self.tokens),
        }


def piece_loss(piece: Piece, decided: Decided, batch: MiniBatch, terms: Objective, log: Log, *, fresh: bool) -> Tensor:
    """Return a micro-batch's share of the step's loss."""
    share = decided.logprobs.new_zeros(())
    own = np.flatnonzero(piece.sampled)
    if len(own) and terms.policy is not None:
        losses = _sampled_losses(piece, decided, own, terms, log, fresh=fresh)
        share = share + aggregate(losses, terms.aggregate, piece.micro.episode[own], batch.sampled)
    others = np.flatnonzero(~piece.sampled)
    if len(others) and terms.likelihood is not None:
        pick = torch.as_tensor(others, device=share.device)
        weights = torch.as_tensor(piece.micro.weights[others], device=share.device)
        term = _take(likelihood(decided.logprobs[pick], weights), log)
        part = aggregate(term.losses, terms.aggregate, piece.micro.episode[others], batch.expert)
        share = share + terms.likelihood.coefficient * part
    return share


def _sampled_losses(
    piece: Piece, decided: Decided, own: NDArray[np.int64], terms: Objective, log: Log, *, fresh: bool
) -> Tensor:
    """Return ``[own]``: the summed terms of the policy's own decisions."""
    assert terms.policy is not None  # the caller asked
    device = decided.logprobs.device
    pick = torch.as_tensor(own, device=device)
    logprobs = decided.logprobs[pick]
    old = logprobs.detach() if piece.old is None else piece.old[pick]
    behaviour = torch.as_tensor(piece.micro.logprobs[own], device=device)
    advantages = torch.as_tensor(piece.micro.weights[own], device=device)
    losses = _take(policy_gradient(logprobs, old, behaviour, advantages, terms.policy), log).losses
    if terms.divergence is not None and piece.reference is not None:
        plain = decided.plain[pick]
        term = divergence(decided.vocab_logprobs[pick], piece.reference[pick], plain, terms.divergence)
        losses = losses + terms.divergence.coefficient * _take(term, log).losses
    if terms.entropy is not None and is_on(terms.entropy):
        losses = losses + terms.entropy.coefficient.at(0) * entropy_bonus(decided.entropy[pick]).losses
    log.values["entropy"].append(decided.entropy[pick].detach())
    if fresh:
        log.mismatch.append((old - behaviour).abs())
    return losses


def _take(term: Term, log: Log) -> Term:
    """Note a term's values."""
    for name, values in term.values.items():
        log.values[name].append(values)
    return term
