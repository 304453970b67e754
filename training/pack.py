"""From token sequences to arrays for one optimiser step: ``Sample → Batch``."""

from collections.abc import Sequence

import numpy as np

from peira.agents.types import Legal
from peira.tools.errors import UsageError
from peira.training.types import Batch, MicroBatch, Sample

__all__ = ["pack"]


def pack(samples: Sequence[Sample], budget: int, *, pad: int = 0) -> Batch:
    """Return the batch of one optimiser step.

    Rows are sorted by length (longest first, so that running out of memory happens at once) and put into
    micro-batches of at most ``budget`` positions, padding included; a longer row is a micro-batch of its own. The
    result depends on what the samples hold, not on their order. Padding stands on the right, where causal attention
    never looks, and nothing is recognised by its id: ``pad`` may be any valid id, the end token included.

    Episodes are numbered in the order of (group, member); ``lengths`` counts their trained decisions over all of
    their rows, so that cutting an episode into rows changes no denominator.

    Args:
        samples: rows without a decision are ignored.
        budget: positions per micro-batch.
        pad: id written into padding.

    Raises:
        UsageError: nothing is trained in any sample, a budget below 1, or two samples that claim the same turn of
            the same episode.
    """
    if budget < 1:
        raise UsageError(f"a micro-batch needs a budget of at least 1 position, not {budget}")
    rows = sorted((s for s in samples if len(s.at)), key=lambda s: (-len(s.ids), s.group, s.member, int(s.turns[0])))
    _distinct(rows)
    episodes = {key: index for index, key in enumerate(sorted({(s.group, s.member) for s in rows}))}
    lengths = np.zeros(len(episodes), dtype=np.int64)
    for row in rows:
        lengths[episodes[row.group, row.member]] += len(row.at)
    micro = tuple(_micro(part, episodes, pad) for part in _parts(rows, budget))
    return Batch(micro, int(lengths.sum()), lengths)


def _distinct(rows: Sequence[Sample]) -> None:
    """Refuse two episodes under one name: their lengths would be added up, and each would be trained too little."""
    seen: set[tuple[str, int, int]] = set()
    for row in rows:
        turns = {(row.group, row.member, int(turn)) for turn in np.unique(row.turns)}
        if turns & seen:
            raise UsageError(
                f"two samples claim the same turn of member {row.member} of task {row.group}; a task with several "
                "groups in one step is linearized by linearize_all, which numbers all of their members"
            )
        seen |= turns


def _parts(rows: Sequence[Sample], budget: int) -> list[list[Sample]]:
    """Cut rows, longest first, into runs whose padded size stays within the budget."""
    parts: list[list[Sample]] = []
    for row in rows:
        if parts and (len(parts[-1]) + 1) * len(parts[-1][0].ids) <= budget:
            parts[-1].append(row)
        else:
            parts.append([row])
    return parts


def _micro(rows: Sequence[Sample], episodes: dict[tuple[str, int], int], pad: int) -> MicroBatch:
    ids = np.full((len(rows), len(rows[0].ids)), pad, dtype=np.int64)
    sets: dict[Legal, int] = {}
    legal = []
    for index, row in enumerate(rows):
        ids[index, : len(row.ids)] = row.ids
        # The last entry serves the index -1: the plain vocabulary keeps it in every numbering.
        renumbered = np.array([*(sets.setdefault(s, len(sets)) for s in row.legal_sets), -1])
        legal.append(renumbered[row.legal])

    counts = [len(row.at) for row in rows]
    owners = [episodes[row.group, row.member] for row in rows]
    return MicroBatch(
        ids=ids,
        rows=np.repeat(np.arange(len(rows), dtype=np.int64), counts),
        at=np.concatenate([row.at for row in rows]).astype(np.int64) - 1,
        targets=np.concatenate([row.targets for row in rows]).astype(np.int64),
        logprobs=np.concatenate([row.logprobs for row in rows]).astype(np.float32),
        weights=np.concatenate([row.weights for row in rows]).astype(np.float32),
        tags=np.concatenate([row.tags for row in rows]).astype(np.uint8),
        episode=np.repeat(np.array(owners, dtype=np.int64), counts),
        temperature=np.repeat(np.array([row.temperature for row in rows], dtype=np.float32), counts),
        legal=np.concatenate(legal).astype(np.int64),
        legal_sets=tuple(sets),
    )
