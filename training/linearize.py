"""From episodes to token sequences: ``Credited → Sample``.

A sequence grows as long as each prompt begins with everything seen before it (prompt and what was written of the
completion). When one does not (a window of the last turns, a template that strips earlier reasoning), a new sequence
starts there. Ids are only ever joined and sliced: nothing is decoded, encoded or searched for.

Which ids are trained is decided by their tags alone. ``DECISION`` ids carry credit, ``EXPERT`` ids a likelihood
weight; every other tag is context.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field

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
        weights = [
            np.where(turn.tags == Tag.EXPERT, expert_weight, weight)
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
        weights = [(turn.tags == Tag.EXPERT).astype(np.float64) for turn in episode.turns]
        samples += _rows(episode, weights, (Tag.EXPERT,), member)
    return samples


@dataclass(slots=True)
class _Row:
    """A sequence while it grows."""

    ids: Ids
    parts: list[tuple[NDArray[np.generic], ...]] = field(default_factory=list)
    """Per turn: at, targets, logprobs, weights, tags, versions, turns, legal."""
    sets: dict[Legal, int] = field(default_factory=dict)

    def add(self, turn: Turn, index: int, weights: NDArray[np.float64], trained: NDArray[np.bool_]) -> None:
        """Append a turn whose prompt begins with ``ids``."""
        start = len(turn.prompt)
        self.ids = np.concatenate([turn.prompt, turn.written])
        places = np.flatnonzero(trained)
        if not len(places):
            return
        legal = -1 if turn.legal is None else self.sets.setdefault(turn.legal, len(self.sets))
        done = turn.completion
        self.parts.append(
            (
                start + turn.at[places],
                done.ids[places],
                _behaviour(turn, index, places),
                weights[places],
                turn.tags[places],
                done.versions[places],
                np.full(len(places), index),
                np.full(len(places), legal),
            )
        )

    def sample(self, episode: Episode, member: int) -> Sample:
        """Freeze the row; it needs at least one part."""
        at, targets, logprobs, weights, tags, versions, turns, legal = map(
            np.concatenate, zip(*self.parts, strict=True)
        )
        return Sample(
            ids=self.ids.astype(np.int32),
            at=at.astype(np.int32),
            targets=targets.astype(np.int32),
            logprobs=logprobs.astype(np.float32),
            weights=weights.astype(np.float32),
            tags=tags.astype(np.uint8),
            versions=versions.astype(np.int32),
            turns=turns.astype(np.int32),
            legal=legal.astype(np.int32),
            legal_sets=tuple(self.sets),
            temperature=episode.temperature,
            group=episode.task.key,
            member=member,
        )


def _behaviour(turn: Turn, index: int, places: NDArray[np.int64]) -> NDArray[np.float32]:
    """Return the sampler's log-probs of trained ids; a demonstrator has none, so its ids get 0."""
    logprobs = np.where(turn.tags[places] == Tag.EXPERT, np.float32(0), turn.completion.logprobs[places])
    if not np.isfinite(logprobs).all():
        raise UsageError(
            f"turn {index} has a decision without a finite log-prob, so its probability under the sampler is unknown; "
            "credit drops such episodes: linearize what credit returned"
        )
    return logprobs


def _rows(episode: Episode, weights: Weights, tags: tuple[Tag, ...], member: int) -> list[Sample]:
    """Cut one episode into samples; sequences in which nothing is trained are left out (credit counts them)."""
    rows: list[_Row] = []
    for index, (turn, weight) in enumerate(zip(episode.turns, weights, strict=True)):
        if not rows or not _extends(turn.prompt, rows[-1].ids):
            rows.append(_Row(turn.prompt))
        rows[-1].add(turn, index, weight, np.isin(turn.tags, tags))
    return [row.sample(episode, member) for row in rows if row.parts]


def _extends(prompt: Ids, seen: Ids) -> bool:
    return len(prompt) >= len(seen) and np.array_equal(prompt[: len(seen)], seen)
