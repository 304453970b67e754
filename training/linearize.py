"""From episodes to token sequences: ``Credited → Sample``.

A sequence grows as long as each prompt begins with everything seen before it (prompt and what was written of the
completion). When one does not (a window of the last turns, a template that strips earlier reasoning), a new sequence
starts there. Ids are only ever joined and sliced: nothing is decoded, encoded or searched for.

Which ids are trained is decided by their tags alone. ``DECISION`` ids carry credit, ``EXPERT`` ids a likelihood
weight; every other tag is context.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peira.agents.types import Episode, Ids, Legal, Tag, Turn
from peira.tools.errors import UsageError
from peira.training.types import Credited, Sample

__all__ = ["demonstration_samples", "linearize", "linearize_all"]

Weights = Sequence[NDArray[np.float64]]


def linearize(credited: Credited, *, expert_weight: float = 0.0, first_member: int = 0) -> list[Sample]:
    """Return the samples of one group, in the order of its members and their turns.

    Args:
        credited: the group with a weight per decision; its dropped members make no sample.
        expert_weight: likelihood weight of ``EXPERT`` ids; at 0 they are context like any other.
        first_member: number of the first member, where one task has several groups in a step.

    Raises:
        UsageError: a decision without a finite log-prob.
    """
    samples: list[Sample] = []
    for member, (episode, credit) in enumerate(zip(credited.group.episodes, credited.weights, strict=True)):
        if member in credited.dropped:
            continue
        weights: Weights = credit
        if expert_weight:
            weights = [
                np.where(turn.tags == int(Tag.EXPERT), expert_weight, weight)
                for turn, weight in zip(episode.turns, credit, strict=True)
            ]
        tags = (Tag.DECISION, Tag.EXPERT) if expert_weight else (Tag.DECISION,)
        samples += _rows(episode, weights, tags, first_member + member)
    return samples


def linearize_all(step: Sequence[Credited], *, expert_weight: float = 0.0) -> list[Sample]:
    """Return the samples of all groups of a step; groups of the same task number their members one after another."""
    samples: list[Sample] = []
    used: dict[str, int] = {}
    for credited in step:
        key = credited.group.task.key
        samples += linearize(credited, expert_weight=expert_weight, first_member=used.get(key, 0))
        used[key] = used.get(key, 0) + len(credited.group.episodes)
    return samples


def demonstration_samples(episodes: Sequence[Episode]) -> list[Sample]:
    """Return samples for likelihood training: weight 1 on every ``EXPERT`` id, everything else is context."""
    samples: list[Sample] = []
    for member, episode in enumerate(episodes):
        weights = [(turn.tags == int(Tag.EXPERT)).astype(np.float64) for turn in episode.turns]
        samples += _rows(episode, weights, (Tag.EXPERT,), member)
    return samples


@dataclass(slots=True)
class _Row:
    """A sequence while it grows: turns each of whose prompts begins with all that stood before."""

    ids: Ids
    turns: list[tuple[int, Turn, NDArray[np.float64]]] = field(default_factory=list)
    """Index in the episode, the turn, its weights."""

    def add(self, index: int, turn: Turn, weights: NDArray[np.float64]) -> None:
        """Append a turn whose prompt begins with ``ids``."""
        self.ids = np.concatenate([turn.prompt, turn.written])
        self.turns.append((index, turn, weights))

    def sample(self, episode: Episode, member: int, trained: Sequence[int]) -> Sample | None:
        """Freeze the row; ``None`` when nothing in it is trained."""
        numbers, turns, weights = zip(*self.turns, strict=True)
        tags = _joined([turn.tags for turn in turns])
        chosen = _among(tags, trained)
        if not chosen.any():
            return None
        lengths = [len(turn.tags) for turn in turns]
        local = np.repeat(np.arange(len(turns)), lengths)[chosen]
        starts, indices = np.array([len(turn.prompt) for turn in turns]), np.array(numbers)
        sets: dict[Legal, int] = {}
        legal = np.full(len(turns), -1)
        for k in np.flatnonzero(np.bincount(local, minlength=len(turns))).tolist():
            allowed = turns[k].legal
            if allowed is not None:
                legal[k] = sets.setdefault(allowed, len(sets))
        logprobs = _joined([turn.completion.logprobs for turn in turns])[chosen]
        return Sample(
            ids=self.ids.astype(np.int32),
            at=(starts[local] + _joined([turn.at for turn in turns])[chosen]).astype(np.int32),
            targets=_joined([turn.completion.ids for turn in turns])[chosen].astype(np.int32),
            logprobs=_behaviour(logprobs, tags[chosen], indices[local]).astype(np.float32),
            weights=_joined(weights)[chosen].astype(np.float32),
            tags=tags[chosen].astype(np.uint8),
            versions=_joined([turn.completion.versions for turn in turns])[chosen].astype(np.int32),
            turns=indices[local].astype(np.int32),
            legal=legal[local].astype(np.int32),
            legal_sets=tuple(sets),
            temperature=episode.temperature,
            group=episode.task.key,
            member=member,
        )


def _joined(arrays: Sequence[NDArray[np.generic]]) -> NDArray[Any]:
    return np.concatenate(arrays)


def _among(tags: NDArray[np.uint8], wanted: Sequence[int]) -> NDArray[np.bool_]:
    """Return where a tag is one of a few; plain numbers, since NumPy is slow to compare with enum members."""
    found: NDArray[np.bool_] = np.equal(tags, int(wanted[0]))
    for tag in wanted[1:]:
        found |= np.equal(tags, int(tag))
    return found


def _behaviour(logprobs: NDArray[np.float32], tags: NDArray[np.uint8], turns: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the sampler's log-probs of trained ids; a demonstrator has none, so its ids get 0."""
    logprobs = np.where(tags == int(Tag.EXPERT), np.float32(0), logprobs)
    unknown = np.flatnonzero(~np.isfinite(logprobs))
    if len(unknown):
        raise UsageError(
            f"turn {turns[unknown[0]]} has a decision without a finite log-prob, so its probability under the sampler "
            "is unknown; credit drops such episodes: linearize what credit returned"
        )
    return logprobs


def _rows(episode: Episode, weights: Weights, tags: Sequence[int], member: int) -> list[Sample]:
    """Cut one episode into samples; sequences in which nothing is trained are left out (credit counts them)."""
    rows: list[_Row] = []
    for index, (turn, weight) in enumerate(zip(episode.turns, weights, strict=True)):
        if not rows or not _extends(turn.prompt, rows[-1].ids):
            rows.append(_Row(turn.prompt))
        rows[-1].add(index, turn, weight)
    samples = [row.sample(episode, member, tags) for row in rows]
    return [sample for sample in samples if sample is not None]


def _extends(prompt: Ids, seen: Ids) -> bool:
    return len(prompt) >= len(seen) and np.array_equal(prompt[: len(seen)], seen)
