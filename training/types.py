"""What travels from the training room: ``Group → Credited → Sample → Batch → Update``.

A worked example, the two-turn episode of ``peira.agents.types`` (row 6 is the native action ``look`` = tokens 4 5)::

    Sample   ids        [0 1 2 4 5 3 1]    the context, once: turn 1's prompt extends turn 0
             at         [2 3 6]            where each decision was written (it is predicted from the position before)
             targets    [2 6 1]            what was chosen there: row 6, though the token written is 4
             logprobs   [-0.7 -0.2 -0.9]   under the sampler
             weights    [0.5 0.5 0.5]      credit

A prompt that does not extend the last one starts a new ``Sample``. Positions that are not in ``at`` carry no loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peira.agents.types import Floats, Group, Ids, Legal
from peira.tools.errors import UsageError

__all__ = ["Batch", "Credited", "MicroBatch", "Sample", "Update"]


@dataclass(frozen=True, slots=True)
class Credited:
    """A group with one weight per sampled id. Having weights *is* being credited; a ``Group`` has no such field."""

    group: Group
    weights: tuple[tuple[NDArray[np.float64], ...], ...]
    """[G][K][L] advantage of each sampled id; zero where its tag is not trained."""
    dropped: frozenset[int] = frozenset()
    """Members that make no sample and count in no denominator (unscored, aborted, truncated and masked)."""

    def __post_init__(self) -> None:
        lengths = [[len(t.completion.ids) for t in e.turns] for e in self.group.episodes]
        given = [[len(w) for w in per_episode] for per_episode in self.weights]
        if lengths != given:
            raise UsageError(f"credit must weigh each sampled id once: sampled {lengths}, weighted {given}")
        if any(weight.any() for member in self.dropped for weight in self.weights[member]):
            raise UsageError(f"task {self.group.task.key}: a weight stands on a member that is dropped")
        for episode, per_episode in zip(self.group.episodes, self.weights, strict=True):
            weights = np.concatenate([np.empty(0), *per_episode])
            tags = np.concatenate([np.empty(0, np.uint8), *(turn.tags for turn in episode.turns)])
            if not np.isfinite(weights).all():
                raise UsageError(f"credit of task {self.group.task.key} is not finite")
            if weights[tags != 0].any():
                raise UsageError(f"task {self.group.task.key}: a weight stands on an id that is not a decision")


@dataclass(frozen=True, slots=True)
class Sample:
    """One token sequence and the decisions in it."""

    ids: Ids
    """[T] context ids."""
    at: Ids
    """[D] position in ``ids`` of each decision, increasing, at least 1."""
    targets: Ids
    """[D] the id chosen: a vocabulary id, or a native action's row."""
    logprobs: Floats
    """[D] behaviour log-prob."""
    weights: Floats
    """[D] advantage (policy gradient) or likelihood weight."""
    tags: NDArray[np.uint8]
    """[D]"""
    versions: Ids
    """[D]"""
    turns: Ids
    """[D] index of the turn each decision belongs to."""
    legal: Ids
    """[D] index into ``legal_sets``; -1: the plain vocabulary."""
    legal_sets: tuple[Legal, ...]
    temperature: float
    group: str
    """Key of the task."""
    member: int
    """Index of the episode in its group."""

    def __post_init__(self) -> None:
        arrays = (self.at, self.targets, self.logprobs, self.weights, self.tags, self.versions, self.turns, self.legal)
        counts = {len(array) for array in arrays}
        if len(counts) != 1:
            raise UsageError(f"a sample's decision arrays differ in length: {sorted(counts)}")
        if len(self.at) and (self.at[0] < 1 or self.at[-1] >= len(self.ids) or (np.diff(self.at) <= 0).any()):
            raise UsageError("a sample's decisions must stand at increasing positions inside its ids, after the first")


@dataclass(frozen=True, slots=True)
class MicroBatch:
    """Rows that share one forward pass, padded on the right (causal attention never looks there)."""

    ids: NDArray[np.int64]
    """[B T]"""
    rows: NDArray[np.int64]
    """[D] row of each decision."""
    at: NDArray[np.int64]
    """[D] position that *predicts* each decision (one before where it was written)."""
    targets: NDArray[np.int64]
    """[D]"""
    logprobs: Floats
    """[D]"""
    weights: Floats
    """[D]"""
    tags: NDArray[np.uint8]
    """[D]"""
    episode: NDArray[np.int64]
    """[D] index of the episode among all of the batch."""
    temperature: Floats
    """[D]"""
    legal: NDArray[np.int64]
    """[D] index into ``legal_sets``; -1: the plain vocabulary."""
    legal_sets: tuple[Legal, ...]

    @property
    def tokens(self) -> int:
        """Positions computed, padding included."""
        return int(self.ids.size)


@dataclass(frozen=True, slots=True)
class Batch:
    """Everything one optimiser step looks at, cut into micro-batches, with the global denominators."""

    micro: tuple[MicroBatch, ...]
    decisions: int
    """Trained decisions in the whole batch."""
    lengths: NDArray[np.int64]
    """[E] trained decisions of each episode."""

    def __post_init__(self) -> None:
        if self.decisions <= 0:
            raise UsageError("a batch needs at least one trained token; this one has none (all masked or all dropped)")


@dataclass(frozen=True, slots=True)
class Update:
    """What one learner step did."""

    version: int
    """Version of the weights afterwards."""
    loss: float
    grad_norm: float
    """Before clipping."""
    metrics: Mapping[str, float]
    skipped: str | None = None
    """Why no step was made (nothing to learn from); the version is then the old one."""

    def __post_init__(self) -> None:
        numbers = {"loss": self.loss, "grad_norm": self.grad_norm, **self.metrics}
        bad = [name for name, value in numbers.items() if not np.isfinite(value)]
        if bad:
            raise UsageError(f"update {self.version} has non-finite {', '.join(bad)}")
