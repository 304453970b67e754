"""A static key-value cache of slots, and an attention over it in which every row may feed a different number of tokens.

The tokens of all rows are laid end to end, ``[1, T]``: linear layers see no padding. Only the attention looks at rows.
It replaces the model's own attention function while the engine's forward pass runs, which is all that a decoder of the
transformers library needs in order to be driven this way: positions are given, and no mask or cache object is.
"""

import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch.nn.functional import scaled_dot_product_attention
from transformers import AttentionInterface

from peira.tools.errors import UsageError

__all__ = ["Feed", "SlotCache"]

_NAME = "peira_slots"
_UNSUPPORTED = ("softcap", "s_aux", "position_bias")
"""Options of other attention functions that change the result and that this one does not have."""
_IDLE_SHARE = 1.5
"""Rows are read in place when at most this many lie between the first and the last for each one in use."""

_WORTH_A_CUT = 4_000
"""Keys of single rows that another segment must save: about what its own operations cost."""
_FEW = 8
"""Up to this many queries of a row, two matrix products beat the fused kernel on a CPU."""

_current: "ContextVar[tuple[SlotCache, Feed] | None]" = ContextVar("peira_slots", default=None)


@dataclass
class _Segment:
    """Rows that attend together: their queries are padded to one width, their keys to one reach."""

    rows: slice | torch.Tensor
    count: int
    """Rows N, idle ones between them included."""
    width: int
    """Queries Q of each row."""
    reach: int
    """Keys K that the longest row sees."""
    positions: torch.Tensor
    """[N Q] position of each query, -1 for padding."""
    take: torch.Tensor | None
    """[N Q] token of each query; ``None``: the segment is all tokens, as they lie."""
    give: torch.Tensor | None = None
    """[n] tokens that this segment answers."""
    source: torch.Tensor | None = None
    """[n] query that answers each of them; ``None``: all queries, as they lie."""
    masks: dict[tuple[int | None, torch.dtype], torch.Tensor] = field(default_factory=dict)

    def mask(self, window: int | None, dtype: torch.dtype) -> torch.Tensor:
        """Return ``[N 1 Q 1 K]``: 0 where a query may look, very negative where not; the same for all layers."""
        key = (window, dtype)
        found = self.masks.get(key)
        if found is None:
            keys = torch.arange(self.reach, device=self.positions.device)
            queries = self.positions[:, None, :, None, None]
            hidden = keys > queries
            if window is not None:
                hidden |= keys <= queries - window
            found = torch.zeros(hidden.shape, dtype=dtype, device=hidden.device)
            found = self.masks[key] = found.masked_fill_(hidden, torch.finfo(dtype).min)
        return found


class Feed:
    """What one forward pass feeds: for each row, ``counts`` tokens from position ``starts`` on.

    Args:
        rows: [R] increasing.
        starts: [R] number of tokens that the cache holds.
        counts: [R] at least 1.
        device: the model's.
    """

    def __init__(
        self, rows: NDArray[np.int64], starts: NDArray[np.int64], counts: NDArray[np.int64], device: torch.device
    ) -> None:
        self.ends = np.cumsum(counts)
        """[R] one past the last token of each row."""
        offsets = self.ends - counts
        self.tokens = int(self.ends[-1])
        self.rows = np.repeat(rows, counts)
        """[T]"""
        self.positions = np.arange(self.tokens) + np.repeat(starts - offsets, counts)
        """[T]"""
        self._device = device
        self._cells: dict[tuple[int, int], torch.Tensor] = {}
        reach = starts + counts
        buckets = np.frexp(counts - 1)[1]  # 1 | 2 | 3-4 | 5-8 | ...: padding at most doubles the attention's queries
        self.segments = [
            self._segment(rows[part], starts[part], counts[part], offsets[part])
            for bucket in np.unique(buckets)
            for part in _by_reach(np.flatnonzero(buckets == bucket), reach)
        ]

    def _tensor(self, array: NDArray[np.int64]) -> torch.Tensor:
        return torch.from_numpy(np.ascontiguousarray(array)).to(self._device)

    def _segment(
        self,
        rows: NDArray[np.int64],
        starts: NDArray[np.int64],
        counts: NDArray[np.int64],
        offsets: NDArray[np.int64],
    ) -> _Segment:
        width, reach = int(counts.max()), int((starts + counts).max())
        low, span = int(rows[0]), int(rows[-1] - rows[0]) + 1
        dense = span <= _IDLE_SHARE * len(rows)
        count, places = (span, rows - low) if dense else (len(rows), np.arange(len(rows)))
        steps = np.arange(width)
        valid = steps < counts[:, None]
        positions = np.full((count, width), -1)
        positions[places] = np.where(valid, starts[:, None] + steps, -1)
        index = slice(low, low + span) if dense else self._tensor(rows)
        seen, whole = self._tensor(positions), count == len(rows) and bool(valid.all())
        if whole and count * width == self.tokens:
            return _Segment(index, count, width, reach, seen, None)
        take = np.zeros((count, width), dtype=np.int64)
        take[places] = offsets[:, None] + np.minimum(steps, counts[:, None] - 1)
        taken = self._tensor(take.ravel())
        if whole:
            return _Segment(index, count, width, reach, seen, taken, taken)
        give, source = (offsets[:, None] + steps)[valid], (places[:, None] * width + steps)[valid]
        return _Segment(index, count, width, reach, seen, taken, self._tensor(give), self._tensor(source))

    def cells(self, heads: int, context: int) -> torch.Tensor:
        """Return ``[T * heads]``: the place of each new key in a layer's cache, counted in vectors."""
        key = (heads, context)
        found = self._cells.get(key)
        if found is None:
            at = (self.rows[:, None] * heads + np.arange(heads)) * context + self.positions[:, None]
            found = self._cells[key] = self._tensor(at.ravel())
        return found


def _by_reach(rows: NDArray[np.int64], reach: NDArray[np.int64]) -> list[NDArray[np.int64]]:
    """Cut rows into parts such that short ones need not look as far as the longest, where that pays; each in order."""
    by_length = rows[np.argsort(-reach[rows], kind="stable")]
    parts, todo = [], [by_length]
    while todo:
        part = todo.pop()
        far = reach[part]
        saved = np.arange(len(part), 0, -1) * (far[0] - far)
        cut = int(saved.argmax())
        if saved[cut] < _WORTH_A_CUT:
            parts.append(np.sort(part))
        else:
            todo += [part[:cut], part[cut:]]
    return parts


class SlotCache:
    """Keys and values of ``slots`` rows: ``[slots, kv heads, context, head width]`` for each layer.

    Args:
        model: a causal LM of the transformers library whose attention goes through its attention interface.
        slots: rows.
        context: positions in a row.
    """

    def __init__(self, model: Any, slots: int, context: int) -> None:
        if not getattr(model, "_supports_attention_backend", False):
            raise UsageError(
                f"{type(model).__name__} does not route its attention through transformers' attention interface, which "
                "the local engine needs; use a current decoder (Qwen3, Llama, ...) or another engine"
            )
        self.slots, self.context = slots, context
        self._model = model
        self._config = model.config
        self._keys: dict[int, torch.Tensor] = {}
        self._values: dict[int, torch.Tensor] = {}
        AttentionInterface.register(_NAME, _attention)

    def forward(self, ids: NDArray[np.int32], feed: Feed, keep: NDArray[np.int64]) -> torch.Tensor:
        """Feed tokens ``ids`` [T]; return ``[S V]``: the logits after the tokens ``keep`` [S], in float32."""
        device = self._model.device
        with self._installed(feed):
            out = self._model(
                input_ids=torch.from_numpy(ids.astype(np.int64)).to(device)[None],
                position_ids=torch.from_numpy(feed.positions).to(device)[None],
                use_cache=False,
                logits_to_keep=torch.from_numpy(keep).to(device),
            )
        logits: torch.Tensor = out.logits[0].float()
        return logits

    def copy(self, source: int, target: int, length: int) -> None:
        """Copy the first ``length`` positions of a row to another."""
        for cache in (*self._keys.values(), *self._values.values()):
            cache[target, :, :length] = cache[source, :, :length]

    def wipe(self, row: int) -> None:
        """Set a row to zero. What is not finite must not stay, for a masked NaN is still a NaN."""
        for cache in (*self._keys.values(), *self._values.values()):
            cache[row] = 0

    @contextmanager
    def _installed(self, feed: Feed) -> Iterator[None]:
        """Put this attention in the place of the model's own for one forward pass."""
        own = self._config._attn_implementation
        token = _current.set((self, feed))
        self._config._attn_implementation = _NAME
        try:
            yield
        finally:
            self._config._attn_implementation = own
            _current.reset(token)

    def attend(
        self,
        feed: Feed,
        layer: int,
        query: torch.Tensor,
        key: torch.Tensor,
        value: torch.Tensor,
        scale: float | None,
        window: int | None,
    ) -> torch.Tensor:
        """Store new keys and values, then let every query look at its own row up to itself.

        Args:
            feed: what is fed.
            layer: index of the layer.
            query: [1 H T D]
            key: [1 G T D]; each of the G heads serves H / G query heads.
            value: [1 G T E]
            scale: of the scores.
            window: positions a query sees, where the layer limits them.

        Returns:
            [1 T H E]
        """
        heads, tokens = query.shape[1], query.shape[2]
        keys = self._stored(self._keys, layer, key, feed)
        values = self._stored(self._values, layer, value, feed)
        queries = query[0].transpose(0, 1)  # [T H D], as the projection laid it
        scale = query.shape[-1] ** -0.5 if scale is None else scale
        out = query.new_empty(tokens, heads, values.shape[-1])
        for s in feed.segments:
            q = queries if s.take is None else queries.index_select(0, s.take)
            mask = s.mask(window if window is not None and window < s.reach else None, q.dtype)
            a = _look(q.reshape(s.count, s.width, heads, -1), _rows(keys, s), _rows(values, s), mask, scale)
            a = a.reshape(s.count * s.width, heads, -1)
            if s.give is None:
                return a[None]
            out.index_copy_(0, s.give, a if s.source is None else a.index_select(0, s.source))
        return out[None]

    def _stored(self, caches: dict[int, torch.Tensor], layer: int, new: torch.Tensor, feed: Feed) -> torch.Tensor:
        """Write ``[1 G T D]`` to its cells; the cache of a layer is made when its shape is first seen."""
        groups, width = new.shape[1], new.shape[3]
        cache = caches.get(layer)
        if cache is None:
            cache = caches[layer] = _blank((self.slots, groups, self.context, width), new.dtype, new.device)
        cache.view(-1, width).index_copy_(
            0, feed.cells(groups, self.context), new[0].transpose(0, 1).reshape(-1, width)
        )
        return cache


def _look(
    query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, mask: torch.Tensor, scale: float
) -> torch.Tensor:
    """Attend; the query heads that share a key head line up as further queries of it, so that no key is repeated.

    Args:
        query: [N Q H D]
        key: [N G K D]
        value: [N G K E]
        mask: [N 1 Q 1 K] added to the scores
        scale: of the scores.

    Returns:
        [N Q H E]
    """
    count, width, heads, _ = query.shape
    groups, reach = key.shape[1], key.shape[2]
    shared = heads // groups
    lines = query.reshape(count, width, groups, shared, -1).transpose(1, 2).reshape(count, groups, width * shared, -1)
    if query.device.type == "cpu" and width * shared <= _FEW:
        scores = torch.matmul(lines * scale, key.transpose(2, 3))
        scores.view(count, groups, width, shared, reach).add_(mask)
        out = torch.matmul(scores.softmax(-1), value)
    else:
        full = mask.expand(count, 1, width, shared, reach).reshape(count, 1, width * shared, reach)
        out = scaled_dot_product_attention(lines, key, value, attn_mask=full, scale=scale)
    return out.reshape(count, groups, width, shared, -1).transpose(1, 2).reshape(count, width, heads, -1)


def _rows(cache: torch.Tensor, segment: _Segment) -> torch.Tensor:
    seen = cache[:, :, : segment.reach]
    return seen[segment.rows] if isinstance(segment.rows, slice) else seen.index_select(0, segment.rows)


def _blank(shape: tuple[int, ...], dtype: torch.dtype, device: torch.device) -> torch.Tensor:
    """Return zeros; on a CPU such that memory is used only for what is written."""
    if device.type != "cpu":
        return torch.zeros(shape, dtype=dtype, device=device)
    # numpy asks the system for zero pages, torch.zeros would write every one of them.
    raw = np.zeros(math.prod(shape) * dtype.itemsize, dtype=np.uint8)
    return torch.from_numpy(raw).view(dtype).view(shape)


def _attention(
    module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    sliding_window: int | None = None,
    **kwargs: Any,
) -> tuple[torch.Tensor, None]:
    """Attention function in the signature of the transformers library."""
    del attention_mask
    current = _current.get()
    if current is None:
        raise UsageError(f"the attention {_NAME!r} works inside the local engine's forward pass only")
    odd = [name for name in _UNSUPPORTED if kwargs.get(name) is not None]
    if odd:
        raise UsageError(f"{type(module).__name__} uses {', '.join(odd)}, which the local engine does not have")
    cache, feed = current
    return cache.attend(feed, module.layer_idx, query, key, value, scaling, sliding_window), None
