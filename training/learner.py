"""The learner: the one place where weights change.

A group-centred loss is close to zero on the first step of fresh data however much there is to learn: the advantages
add up to nothing, their gradient does not. Watch ``grad_norm``, ``flat_group_share`` and ``clip_share`` instead.
"""

import copy
from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import Any, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from peira.agents.types import Tag
from peira.envs.seeding import rng
from peira.tools.errors import UsageError
from peira.training.control import Constant, Control
from peira.training.model import CausalLM, Decided, decision_logprobs
from peira.training.objective import Log, Objective, is_on, piece_loss
from peira.training.phase import MiniBatch, anchor, as_row, drop_unusable, mini_batches, prepare
from peira.training.reference import Reference
from peira.training.terms import Likelihood
from peira.training.types import Sample, Update

__all__ = ["Learner", "LearnerSettings"]

PROBE = 1024
"""Entries of each parameter that the weight-change guard looks at."""


class LearnerSettings(Objective):
    """Optimiser and batching, on top of the objective."""

    lr: Control = Constant(value=1e-3)
    """Its step is the number of updates made, so that a resumed run goes on where it stopped."""
    betas: tuple[float, float] = (0.9, 0.999)
    eps: float = Field(default=1e-8, gt=0)
    weight_decay: float = Field(default=0.0, ge=0)
    """On matrices only; norms and biases are left alone."""
    clip_norm: float = Field(default=1.0, gt=0)
    epochs: int = Field(default=1, ge=1)
    minibatches: int = Field(default=1, ge=1)
    """Optimiser steps per epoch, each on whole groups."""
    tokens: int = Field(default=2048, ge=1)
    """Token budget of a micro-batch, padding included; decides speed and memory, never the result."""

    @model_validator(mode="after")
    def _betas_are_shares(self) -> Self:
        if not all(0 <= beta < 1 for beta in self.betas):
            raise ValueError(f"'betas' must lie in [0, 1); given {self.betas}")
        return self


class Learner:
    """Owns a policy's weights and their optimiser.

    Args:
        model: the policy; trained in place, in eval mode (dropout would make every ratio noise).
        reference: what the divergence term looks at; required by it.
        settings: see ``LearnerSettings``.
        vocab: number of vocabulary rows of the policy's head; native actions' rows come after them.
        seed: of the shuffles.
        version: of the weights as given.

    Raises:
        UsageError: a divergence without a reference, or a model with nothing to train.
    """

    def __init__(
        self,
        model: CausalLM,
        reference: Reference | None,
        settings: LearnerSettings,
        vocab: int,
        seed: int,
        *,
        version: int = 0,
    ) -> None:
        if is_on(settings.divergence) and reference is None:
            raise UsageError("the divergence term needs a reference: give one, or set its coefficient to 0")
        self.model, self.reference, self.settings, self.vocab, self.seed = model, reference, settings, vocab, seed
        self.version = version
        self.updates = 0
        """Updates made; the position of the learning rate's schedule."""
        self._lr_state: dict[str, float] = settings.lr.initial()
        model.eval()
        self._named = [(name, p) for name, p in model.named_parameters() if p.requires_grad]
        if not self._named:
            raise UsageError("the policy has no trainable parameter: all are frozen")
        self._parameters = [p for _, p in self._named]
        matrices = [p for p in self._parameters if p.ndim >= 2]
        others = [p for p in self._parameters if p.ndim < 2]
        self._optimizer = torch.optim.AdamW(
            [{"params": matrices, "weight_decay": settings.weight_decay}, {"params": others, "weight_decay": 0.0}],
            lr=settings.lr.at(0),
            betas=settings.betas,
            eps=settings.eps,
            fused=True,
        )

    # -- learning -----------------------------------------------------------------------------------------------------

    def update(self, samples: Sequence[Sample]) -> Update:
        """Learn from samples: ``epochs`` x ``minibatches`` optimiser steps, one new version.

        Returns:
            What happened. When nothing could be learnt (no trained decision, every advantage zero, a gradient that is
            exactly zero or not finite in every step), ``skipped`` says so and the version is the old one.
        """
        return self._learn(samples, self.settings)

    def likelihood_update(self, samples: Sequence[Sample]) -> Update:
        """Learn from expert decisions alone, by weighted likelihood (warm starts); the same path otherwise."""
        alone = {"policy": None, "divergence": None, "entropy": None, "skip_flat": False}
        return self._learn(
            samples,
            self.settings.model_copy(update={**alone, "likelihood": self.settings.likelihood or Likelihood()}),
        )

    def _learn(self, samples: Sequence[Sample], terms: LearnerSettings) -> Update:
        terms = terms.at(self.updates)
        kept, counts = drop_unusable(samples)
        counts["flat_group_share"] = _flat_groups(kept)
        reason = _nothing_to_learn(kept, terms)
        if reason:
            return self._skip(reason, counts)
        batches = self._prepare(kept, terms)
        if not batches:
            return self._skip("no trained decision in any mini-batch", counts)
        before = self._probe()
        log = Log()
        lr = self.settings.lr.at(self.updates, self._lr_state)
        for group in self._optimizer.param_groups:
            group["lr"] = lr
        for epoch in range(terms.epochs):
            order = rng("learner", "order", self.seed, self.updates, epoch).permutation(len(batches))
            for index in order:
                self._step(batches[index], terms, log, fresh=epoch == 0)
        metrics = {**counts, **log.metrics(), "lr": lr, "weight_delta": self._moved(before)}
        if log.steps == 0:
            reason = log.refused[0] if log.refused else "the gradient is exactly zero"
            return self._skip(reason, metrics)
        self.version += 1
        self.updates += 1
        if self.reference is not None:
            self.reference.follow(self.model, self.updates)
        update = Update(self.version, float(np.mean(log.losses)), float(np.mean(log.norms)), metrics)
        self._lr_state = self.settings.lr.observe(
            self._lr_state, {**metrics, "loss": update.loss, "grad_norm": update.grad_norm}
        )
        return update

    def _skip(self, reason: str, metrics: Mapping[str, float]) -> Update:
        return Update(self.version, 0.0, 0.0, metrics, skipped=reason)

    def _prepare(self, samples: Sequence[Sample], terms: LearnerSettings) -> list[MiniBatch]:
        trained = {Tag.EXPERT} if terms.policy is None else {Tag.DECISION}
        if is_on(terms.likelihood):
            trained.add(Tag.EXPERT)
        several = terms.epochs * terms.minibatches > 1
        policy = self.model if several and terms.policy is not None else None
        reference = self.reference.model if self.reference is not None and is_on(terms.divergence) else None
        batches = []
        for part in mini_batches(samples, terms.minibatches, "learner", "shuffle", self.seed, self.updates):
            batch = prepare(part, terms.tokens, trained, skip_flat=terms.skip_flat)
            if batch is not None:
                batches.append(anchor(batch, self.vocab, policy, reference))
        return batches

    def _step(self, batch: MiniBatch, terms: LearnerSettings, log: Log, *, fresh: bool) -> None:
        """Accumulate the gradient of one mini-batch and move, unless there is nowhere to move."""
        self._optimizer.zero_grad(set_to_none=True)
        total = 0.0
        for piece in batch.pieces:
            decided = decision_logprobs(
                self.model,
                piece.micro,
                self.vocab,
                entropy_grad=is_on(terms.entropy),
                vocab_only=is_on(terms.divergence),
            )
            loss = piece_loss(piece, decided, batch, terms, log, fresh=fresh)
            loss.backward()  # type: ignore[no-untyped-call]
            total += float(loss.detach())
            log.tokens += piece.micro.tokens
            log.decisions += len(piece.micro.at)
        norm = float(torch.nn.utils.clip_grad_norm_(self._parameters, terms.clip_norm))
        if not (np.isfinite(norm) and np.isfinite(total)):
            log.refused.append(f"not finite: {self._not_finite() or 'the loss'}")
        elif norm == 0:
            # Adam's momentum would move the weights without a reason.
            log.still += 1
        else:
            self._optimizer.step()
            log.steps += 1
            log.losses.append(total)
            log.norms.append(norm)

    def _not_finite(self) -> str:
        names = [name for name, p in self._named if p.grad is not None and not p.grad.isfinite().all()]
        return f"gradient of {names[0]} and {len(names) - 1} more" if names else ""

    def _probe(self) -> list[Tensor]:
        """Copy evenly spread entries of every parameter: enough to see that weights moved, cheap for any model."""
        return [p.detach().flatten()[:: max(1, p.numel() // PROBE)].clone() for p in self._parameters]

    def _moved(self, before: Sequence[Tensor]) -> float:
        """Return the largest change of a probed entry."""
        return max(float((now - then).abs().max()) for now, then in zip(self._probe(), before, strict=True))

    # -- looking ------------------------------------------------------------------------------------------------------

    def score(self, samples: Sequence[Sample], *, reference: bool = False) -> list[NDArray[np.float32]]:
        """Return the log-prob of each sample's decisions, ``[D]`` each, under the policy or the reference."""
        model = self._reference_model() if reference else self.model
        return [decided.logprobs.numpy(force=True) for decided in self._each(model, samples)]

    def log_ratios(self, samples: Sequence[Sample]) -> list[NDArray[np.float32]]:
        """Return ``log policy - log reference`` of each sample's decisions, ``[D]`` each: the k1 that a KL in the
        reward subtracts.

        Both sides are taken among the vocabulary alone; a native action, which the reference does not know, gives 0.

        Raises:
            UsageError: there is no reference.
        """
        theirs = self._each(self._reference_model(), samples)
        mine = self._each(self.model, samples)
        return [(a.vocab_logprobs - b.vocab_logprobs).numpy(force=True) for a, b in zip(mine, theirs, strict=True)]

    @torch.no_grad()
    def _each(self, model: CausalLM, samples: Sequence[Sample]) -> list[Decided]:
        return [decision_logprobs(model, as_row(sample), self.vocab, vocab_only=True) for sample in samples]

    def _reference_model(self) -> CausalLM:
        if self.reference is None:
            raise UsageError("there is no reference to compare with: give the learner one")
        return self.reference.model

    def weights(self) -> dict[str, Tensor]:
        """Return a copy of every tensor of the policy, for delivery to an engine."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    # -- checkpoints --------------------------------------------------------------------------------------------------

    def state(self) -> dict[str, Any]:
        """Return everything that a resumed run needs: weights, optimiser, reference, counters."""
        return {
            "model": self.weights(),
            # The optimiser hands out its own tensors; a state must not move with the learner.
            "optimizer": copy.deepcopy(self._optimizer.state_dict()),
            "reference": None if self.reference is None else self.reference.state(),
            "version": self.version,
            "updates": self.updates,
            "lr_state": dict(self._lr_state),
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take what ``state()`` gave."""
        self.model.load_state_dict(state["model"])
        self._optimizer.load_state_dict(state["optimizer"])
        if self.reference is not None and state["reference"] is not None:
            self.reference.restore(state["reference"])
        self.version, self.updates = int(state["version"]), int(state["updates"])
        self._lr_state = dict(state["lr_state"])


def _flat_groups(samples: Sequence[Sample]) -> float:
    """Return the share of groups in which no decision carries an advantage."""
    live: dict[str, bool] = defaultdict(bool)
    for s in samples:
        live[s.group] |= bool(s.weights[s.tags == Tag.DECISION].any())
    return 1 - sum(live.values()) / len(live) if live else 0.0


def _nothing_to_learn(samples: Sequence[Sample], terms: LearnerSettings) -> str | None:
    """Say why no term could have a gradient, where that can be seen without computing one."""
    sampled = any((s.tags == Tag.DECISION).any() for s in samples)
    weighted = any(s.weights[s.tags == Tag.DECISION].any() for s in samples)
    expert = is_on(terms.likelihood) and any((s.tags == Tag.EXPERT).any() for s in samples)
    if expert or (terms.policy is not None and weighted):
        return None
    if terms.policy is None or not sampled:
        return "no trained decision: every sample was dropped or masked"
    return None if is_on(terms.divergence) or is_on(terms.entropy) else "every advantage is zero"
