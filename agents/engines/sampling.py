"""Choosing ids: legality masks, temperature, and a random stream of its own for every request.

Uniforms come from SplitMix64 (Steele, Lea & Flood, OOPSLA 2014), used as a counter-based generator: number ``i`` of a
request is a pure function of its seed and ``i``, so neither the batch nor a pause can change what is drawn.
"""

from collections import OrderedDict
from collections.abc import Callable

import numpy as np
import torch
from numpy.typing import NDArray

from peira.agents.types import Legal
from peira.tools.errors import UsageError

__all__ = ["GO_ON", "NATIVE", "STOP", "Rules", "draw", "uniforms"]

GO_ON, STOP, NATIVE = 0, 1, 2
"""What an id does to the completion it is sampled in."""

_GOLDEN = np.uint64(0x9E3779B97F4A7C15)
_MIX_1, _MIX_2 = np.uint64(0xBF58476D1CE4E5B9), np.uint64(0x94D049BB133111EB)
_S30, _S27, _S31, _S11 = (np.uint64(n) for n in (30, 27, 31, 11))


def uniforms(seeds: NDArray[np.uint64], counters: NDArray[np.int64]) -> NDArray[np.float64]:
    """Return output number ``counters`` (from 0) of the SplitMix64 stream of each seed, as a number in [0, 1).

    Args:
        seeds: [N]
        counters: [N]
    """
    z = seeds + (counters.astype(np.uint64) + np.uint64(1)) * _GOLDEN  # arithmetic modulo 2**64, as the method asks
    z = (z ^ (z >> _S30)) * _MIX_1
    z = (z ^ (z >> _S27)) * _MIX_2
    z ^= z >> _S31
    uniform: NDArray[np.float64] = (z >> _S11).astype(np.float64) * 2.0**-53
    return uniform


class Rules:
    """What may be sampled and what ends a completion, one row for each (legal set, stop ids) in use.

    Args:
        vocab: number of plain ids.
        rows: number of the model's output rows; those from ``vocab`` on are native actions or padding.
        device: where logits are.
        capacity: rules kept at the least; a rule in use is never dropped.
    """

    def __init__(self, vocab: int, rows: int, device: torch.device, capacity: int = 256) -> None:
        self.vocab, self.rows = vocab, rows
        self._index: OrderedDict[tuple[Legal | None, tuple[int, ...]], int] = OrderedDict()
        self.penalty = torch.zeros(capacity, rows, device=device)
        """[M V] 0 for legal ids, -inf for the others."""
        self.effect = np.zeros((capacity, rows), dtype=np.uint8)
        """[M V] ``GO_ON``, ``STOP`` or ``NATIVE``."""
        self.open = np.zeros(capacity, dtype=bool)
        """[M] every output row is legal, so that no mask is needed."""

    def check(self, legal: Legal | None, others: tuple[int, ...], kind: str = "stop") -> None:
        """Refuse a rule that can never work; ``others`` are further ids, of some ``kind``, that must have rows.

        Raises:
            UsageError: an empty legal set, or an id that the model has no row for.
        """
        if legal is not None and not legal.vocab and not legal.ids:
            raise UsageError(
                "the legal set is empty: no id could be sampled; the world must offer an action or free text"
            )
        for what, ids in (("legal", legal.ids if legal is not None else ()), (kind, others)):
            if ids and not 0 <= min(ids) <= max(ids) < self.rows:
                raise UsageError(
                    f"{what} ids {ids} do not all name output rows of the model (0..{self.rows - 1}); the policy was "
                    "made for other actions or another tokenizer"
                )

    def index(self, legal: Legal | None, stop: tuple[int, ...], in_use: Callable[[], set[int]]) -> int:
        """Return the row of a rule, making it first if need be; ``in_use`` tells which rows must stay."""
        key = (legal, stop)
        found = self._index.get(key)
        if found is not None:
            self._index.move_to_end(key)
            return found
        if len(self._index) < len(self.effect):
            index = len(self._index)
        else:
            used = in_use()
            oldest = next((k for k, i in self._index.items() if i not in used), None)
            index = self._grow() if oldest is None else self._index.pop(oldest)
        self._index[key] = index
        self._fill(index, legal, stop)
        return index

    def _grow(self) -> int:
        size = len(self.effect)
        self.penalty = torch.cat([self.penalty, torch.zeros_like(self.penalty)])
        self.effect = np.concatenate([self.effect, np.zeros_like(self.effect)])
        self.open = np.concatenate([self.open, np.zeros_like(self.open)])
        return size

    def _fill(self, index: int, legal: Legal | None, stop: tuple[int, ...]) -> None:
        self.penalty[index] = self.mask(legal)
        self.effect[index] = GO_ON
        if legal is not None:
            self.effect[index, list(legal.ids)] = NATIVE
        self.effect[index, list(stop)] = STOP
        self.open[index] = legal is None and self.vocab == self.rows

    def mask(self, legal: Legal | None) -> torch.Tensor:
        """Return ``[V]``: 0 for the ids of a legal set (``None``: the plain vocabulary), -inf for the others."""
        mask = torch.full((self.rows,), -torch.inf)
        if legal is None or legal.vocab:
            mask[: self.vocab] = 0.0
        if legal is not None and legal.ids:
            mask[list(legal.ids)] = 0.0
        return mask.to(self.penalty.device)

    def apply(self, logits: torch.Tensor, rules: NDArray[np.int64]) -> torch.Tensor:
        """Return ``[S V]`` logits with the illegal ones at -inf; ``rules`` [S] are rows of this table."""
        if self.open[rules].all():
            return logits
        first = int(rules[0])
        if (rules == first).all():
            return logits + self.penalty[first]
        return logits + self.penalty[torch.from_numpy(rules).to(logits.device)]


def draw(
    logits: torch.Tensor, temperature: NDArray[np.float64], uniform: NDArray[np.float64]
) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
    """Sample an id for each row by inverse CDF; temperature 0 takes the best id and reports its log-prob at 1.

    Args:
        logits: [S V] in float32, illegal ids at -inf.
        temperature: [S]
        uniform: [S] in [0, 1)

    Returns:
        ``(ids [S], log-probs [S])``; a log-prob that is not finite marks a row that cannot be trusted.
    """
    greedy = temperature == 0.0
    scale = np.where(greedy, 1.0, temperature)
    if (scale != 1.0).any():
        logits = logits / torch.from_numpy(scale).to(logits.device, logits.dtype)[:, None]
    logprobs = logits.log_softmax(-1)
    if greedy.all():
        ids = logprobs.argmax(-1)
    else:
        cumulative = logprobs.exp().double().cumsum(-1)
        total = cumulative[:, -1:]
        # u < 1, but u * total can round up to total; just below it there is always an id of positive probability.
        target = torch.minimum(
            torch.from_numpy(uniform).to(logits.device)[:, None] * total,
            torch.nextafter(total, torch.zeros_like(total)),
        )
        ids = torch.searchsorted(cumulative, target, right=True)[:, 0].clamp_(max=logits.shape[-1] - 1)
        if greedy.any():
            ids = torch.where(torch.from_numpy(greedy).to(ids.device), logprobs.argmax(-1), ids)
    chosen = logprobs.gather(-1, ids[:, None])[:, 0]
    return ids.cpu().numpy(), chosen.cpu().numpy()
