"""Where a recorded episode is taken up again: the one mechanism behind retries, continuations, trees and rewrites."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peira.agents.types import Episode, Ids, Origin, Tag
from peira.tools.errors import UsageError

__all__ = ["Fork", "Kept"]


@dataclass(frozen=True, slots=True)
class Fork:
    """Where a recorded episode is taken up again, on-policy.

    Its actions before ``turn`` are replayed in a fresh world, the first ``position`` ids of that turn are kept, then
    ``force`` (if given) is written, and the policy goes on. ``Fork(episode)`` is a retry from the start.
    """

    episode: Episode
    turn: int = 0
    position: int = 0
    force: int | None = None
    """Id chosen by the caller; tagged ``FORCED``, with log-prob 0: it was chosen with probability one."""
    kind: str = ""
    """Name in the new episode's ``Origin``; by default ``counterfactual``, ``continuation`` or ``retry``."""

    def __post_init__(self) -> None:
        turns = self.episode.turns
        if not 0 <= self.turn <= len(turns):
            raise UsageError(f"cannot fork at turn {self.turn}: the episode has turns 0..{len(turns) - 1}")
        last = 0 if self.turn == len(turns) else len(turns[self.turn].completion.ids) - 1
        if not 0 <= self.position <= last:
            raise UsageError(f"cannot fork turn {self.turn} at position {self.position}: its ids are 0..{last}")
        if self.turn == len(turns) and turns and turns[-1].terminated:
            raise UsageError("cannot continue an episode that the world has ended; fork at one of its turns")

    @property
    def origin(self) -> Origin:
        """What the new episode says about where it came from."""
        plain = "continuation" if (self.turn, self.position) != (0, 0) else "retry"
        kind = self.kind or (plain if self.force is None else "counterfactual")
        return Origin(kind, self.episode.score, self.turn, self.position)


@dataclass(frozen=True, slots=True)
class Kept:
    """The beginning of a forked turn: recorded ids, and the forced one behind them."""

    ids: Ids
    logprobs: NDArray[np.float32]
    versions: Ids
    tags: NDArray[np.uint8]
    forced: int | None

    @classmethod
    def of(cls, fork: Fork, version: int) -> "Kept":
        """Cut the beginning out of the recorded turn; ``version`` is that of the weights in use."""
        end = fork.position
        if fork.turn < len(fork.episode.turns):
            turn = fork.episode.turns[fork.turn]
            made = turn.completion
            ids, logprobs, versions, tags = made.ids[:end], made.logprobs[:end], made.versions[:end], turn.tags[:end]
        else:  # behind the last turn: nothing was sampled there
            ids, versions = np.zeros(0, dtype=np.int32), np.zeros(0, dtype=np.int32)
            logprobs, tags = np.zeros(0, dtype=np.float32), np.zeros(0, dtype=np.uint8)
        if fork.force is not None:
            ids = np.append(ids, np.int32(fork.force))
            logprobs = np.append(logprobs, np.float32(0.0))
            versions = np.append(versions, np.int32(version))
            tags = np.append(tags, np.uint8(Tag.FORCED))
        return cls(ids, logprobs, versions, tags, fork.force)
