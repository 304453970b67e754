"""What the learner asks of a model: one forward pass, and the log-probs of what was decided in it.

Logits are computed at deciding positions alone, and only for the output rows that were legal there: the vocabulary
(with the native actions admissible beside it), or nothing but the admissible actions. A row that was not legal is
masked before the softmax, so it has no influence and no gradient (EARL / ExpA, arXiv 2510.07581, policy head).
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional

from peira.agents.types import Legal
from peira.tools.errors import UsageError
from peira.training.types import MicroBatch

__all__ = ["CausalLM", "Decided", "decision_logprobs"]


class CausalLM(Protocol):
    """The part of a Hugging Face causal language model that the learner uses."""

    config: Any
    base_model: Any

    def get_output_embeddings(self) -> Any:
        """Return the LM head: ``weight [R H]`` and perhaps ``bias [R]``."""
        ...

    def named_parameters(self) -> Iterator[tuple[str, torch.nn.Parameter]]:
        """Every parameter once, with its name."""
        ...

    def state_dict(self) -> dict[str, Tensor]:
        """Every tensor of the model by name."""
        ...

    def load_state_dict(self, state_dict: Mapping[str, Tensor]) -> Any:
        """Take every tensor."""
        ...

    def eval(self) -> Any:
        """Switch dropout off: a ratio between two passes means nothing with it on."""
        ...


@dataclass(frozen=True, slots=True)
class Decided:
    """What a model says about the decisions of a micro-batch, in their order."""

    logprobs: Tensor
    """[D] of the id chosen, among the ids that were legal, at the sampling temperature."""
    entropy: Tensor
    """[D] of the distribution over the legal ids, in nats."""
    plain: Tensor
    """[D] bool: a vocabulary id, chosen where the whole vocabulary was legal."""
    vocab_logprobs: Tensor
    """[D] of the id chosen among the vocabulary alone (a reference knows no native actions); 0 where not ``plain``."""


@dataclass(frozen=True, slots=True)
class _Part:
    """Decisions that are scored against one set of output rows."""

    pick: NDArray[np.int64]
    """[P] which decisions."""
    rows: NDArray[np.int64] | None
    """[C] output rows used as columns; ``None``: the first ``C`` rows of the head."""
    count: int
    """C"""
    free: int
    """The first ``free`` columns are legal for every decision."""
    allowed: NDArray[np.bool_] | None
    """[P, C - free] legality of the other columns; ``None``: all legal."""
    column: NDArray[np.int64]
    """[P] column of each target."""


def decision_logprobs(
    model: CausalLM, micro: MicroBatch, vocab: int, *, entropy_grad: bool = False, vocab_only: bool = False
) -> Decided:
    """Score the decisions of a micro-batch with one forward pass.

    Args:
        model: a causal LM whose head has ``vocab`` vocabulary rows and, after them, the native actions' rows.
        micro: rows padded on the right; no attention mask is needed, since a causal model never looks there.
        vocab: number of vocabulary rows; rows from there on are legal only where a legal set names them.
        entropy_grad: let gradients flow through the entropy (it is a metric otherwise).
        vocab_only: also compute ``vocab_logprobs``; without it they are ``logprobs`` wherever that is the same thing,
            and must not be used elsewhere.

    Raises:
        UsageError: a decision that was not legal, or an id beyond the head's rows.
    """
    head = model.get_output_embeddings()
    weight: Tensor = head.weight
    if vocab > weight.shape[0]:
        raise UsageError(f"the vocabulary has {vocab} ids but the model's head only {weight.shape[0]} rows")
    parts = _parts(micro, vocab, int(weight.shape[0]))
    device = weight.device
    ids = torch.as_tensor(micro.ids, device=device)
    hidden: Tensor = model.base_model(input_ids=ids, use_cache=False).last_hidden_state
    where = torch.as_tensor(micro.rows * micro.ids.shape[1] + micro.at, device=device)
    hidden = hidden.flatten(0, 1).index_select(0, where)
    # Temperature 0 is greedy, and its log-probs are those of temperature 1.
    heat = np.where(micro.temperature > 0, micro.temperature, 1.0).astype(np.float32)
    scored = [_score(model, head, hidden, part, heat, vocab, entropy_grad, vocab_only) for part in parts]
    order = np.argsort(np.concatenate([part.pick for part in parts]), kind="stable")
    back = torch.as_tensor(order, device=device)
    logprobs, entropy, plain, vocab_logprobs = (
        torch.cat(columns).index_select(0, back) for columns in zip(*scored, strict=True)
    )
    return Decided(logprobs, entropy, plain, vocab_logprobs)


def _parts(micro: MicroBatch, vocab: int, rows: int) -> list[_Part]:
    """Split decisions into those over the vocabulary (and what is legal beside it) and those over actions alone."""
    if len(micro.targets) == 0:
        raise UsageError("a micro-batch without a decision has nothing to score")
    sets: list[Legal] = [*micro.legal_sets, Legal(True, ())]  # index -1 is the plain vocabulary
    which = np.where(micro.legal < 0, len(sets) - 1, micro.legal)
    wide = np.array([legal.vocab for legal in sets], dtype=np.bool_)[which]
    used = set(np.unique(which).tolist())
    parts = []
    for is_wide in (True, False):
        pick = np.flatnonzero(wide == is_wide)
        if len(pick) == 0:
            continue
        ids = sorted({i for s in used if sets[s].vocab == is_wide for i in sets[s].ids if not is_wide or i >= vocab})
        if ids and not 0 <= ids[0] <= ids[-1] < rows:
            raise UsageError(f"legal ids {ids[0]}..{ids[-1]} do not fit the model's head of {rows} rows")
        build = _wide if is_wide else _narrow
        parts.append(build(pick, which[pick], micro.targets[pick], sets, np.array(ids, dtype=np.int64), vocab))
    return parts


def _wide(
    pick: NDArray[np.int64],
    which: NDArray[np.int64],
    targets: NDArray[np.int64],
    sets: Sequence[Legal],
    ids: NDArray[np.int64],
    vocab: int,
) -> _Part:
    """Columns: the head's rows up to the last native action in use, so that nothing is gathered or copied."""
    count = int(ids[-1]) + 1 if len(ids) else vocab
    allowed = None
    if count > vocab:
        allowed = _table(sets, range(vocab, count))[which]
    beyond = targets >= vocab
    bad = beyond & (targets >= count)
    if allowed is not None:
        inside = beyond & ~bad
        bad[inside] = ~allowed[inside, targets[inside] - vocab]
    _refuse(bad | (targets < 0), targets, sets, which)
    return _Part(pick, None, count, vocab, allowed, targets)


def _narrow(
    pick: NDArray[np.int64],
    which: NDArray[np.int64],
    targets: NDArray[np.int64],
    sets: Sequence[Legal],
    ids: NDArray[np.int64],
    vocab: int,
) -> _Part:
    """Columns: the union of the admissible ids."""
    if len(ids) == 0:
        raise UsageError("a decision has an empty legal set")
    allowed = _table(sets, ids.tolist())[which]
    column = np.searchsorted(ids, targets).clip(0, len(ids) - 1)
    bad = (ids[column] != targets) | ~allowed[np.arange(len(targets)), column]
    _refuse(bad, targets, sets, which)
    return _Part(pick, ids, len(ids), 0, allowed, column)


def _table(sets: Sequence[Legal], ids: Sequence[int] | range) -> NDArray[np.bool_]:
    """Return ``[S, C]``: whether each set holds each id; built once per set, then gathered per decision."""
    columns = np.asarray(ids, dtype=np.int64)
    return np.stack([np.isin(columns, legal.ids) for legal in sets])


def _refuse(
    bad: NDArray[np.bool_], targets: NDArray[np.int64], sets: Sequence[Legal], which: NDArray[np.int64]
) -> None:
    if bad.any():
        first = int(np.flatnonzero(bad)[0])
        raise UsageError(
            f"{int(bad.sum())} decisions were not legal, the first chose id {int(targets[first])} out of "
            f"{sets[which[first]]}; engine and learner disagree about the action table"
        )


def _score(
    model: CausalLM,
    head: Any,
    hidden: Tensor,
    part: _Part,
    heat: NDArray[np.float32],
    vocab: int,
    entropy_grad: bool,
    vocab_only: bool,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Return log-prob, entropy, plain, vocabulary log-prob of a part's decisions, each ``[P]``."""
    device = hidden.device
    if len(part.pick) < len(hidden):
        hidden = hidden.index_select(0, torch.as_tensor(part.pick, device=device))
    logits = _logits(model, head, hidden, part)
    if (heat[part.pick] != 1).any():
        logits = logits / torch.as_tensor(heat[part.pick], device=device)[:, None]
    illegal = None
    if part.allowed is not None and not part.allowed.all():
        illegal = torch.as_tensor(~part.allowed, device=device)
        # In place: the projection needs its inputs for the backward pass, not its output.
        logits[:, part.free :].masked_fill_(illegal, -torch.inf)
    column = torch.as_tensor(part.column, device=device)[:, None]
    everything = functional.log_softmax(logits, dim=-1)
    logprobs = everything.gather(1, column)[:, 0]
    entropy = _entropy(everything if entropy_grad else everything.detach(), part.free, illegal)
    if part.free == 0:  # actions alone: there is no vocabulary to compare with
        none = torch.zeros_like(logprobs, dtype=torch.bool)
        return logprobs, entropy, none, torch.zeros_like(logprobs)
    plain = column[:, 0] < vocab
    alone = logprobs
    if vocab_only and part.count > vocab:
        inside = column.clamp(max=vocab - 1)
        alone = logits.gather(1, inside)[:, 0] - logits[:, :vocab].logsumexp(-1)
    return logprobs, entropy, plain, torch.where(plain, alone, torch.zeros_like(alone))


def _logits(model: CausalLM, head: Any, hidden: Tensor, part: _Part) -> Tensor:
    """Project onto the part's columns alone, with what some architectures do to their logits afterwards."""
    bias: Tensor | None = getattr(head, "bias", None)
    if part.rows is None:
        weight = head.weight[: part.count]
        bias = None if bias is None else bias[: part.count]
    else:
        rows = torch.as_tensor(part.rows, device=hidden.device)
        weight = head.weight.index_select(0, rows)
        bias = None if bias is None else bias.index_select(0, rows)
    logits = functional.linear(hidden, weight, bias).float()
    cap = getattr(model.config, "final_logit_softcapping", None)  # Gemma
    if cap:
        logits = torch.tanh(logits / cap) * cap
    divisor = getattr(model.config, "logits_scaling", None)  # Granite
    if divisor:
        logits = logits / divisor
    factor = getattr(model.config, "logit_scale", None)  # Cohere
    return logits * factor if factor else logits


def _entropy(everything: Tensor, free: int, illegal: Tensor | None) -> Tensor:
    """Return the entropy per row; ``0 * -inf`` of illegal columns would be NaN, forwards and backwards."""
    finite = everything
    if illegal is not None:
        finite = torch.cat((everything[:, :free], everything[:, free:].masked_fill(illegal, 0.0)), dim=1)
    return -(everything.exp() * finite).sum(-1)
