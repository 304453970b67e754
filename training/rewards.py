"""The reward map: what is added to a world's rewards before credit.

Shaping *returns* rewards and edits nothing: an episode keeps the score that its world gave, which is what filters,
reports and evaluation look at. A group of wrong answers does not become instructive because some were long.
"""

from collections.abc import Sequence
from typing import Self

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from peira.agents.types import Episode, Group, Tag
from peira.training.settings import Settings

__all__ = ["Overlong", "RewardSettings", "shaped"]


class Overlong(Settings):
    """Soft penalty for length (DAPO, arXiv 2503.14476, section 3.4): 0, then a straight line down to -1."""

    limit: int = Field(ge=1)
    """Decisions at which the penalty has reached -1."""
    buffer: int = Field(ge=1)
    """It begins this many decisions earlier."""

    @model_validator(mode="after")
    def _buffer_fits(self) -> Self:
        if self.buffer > self.limit:
            raise ValueError(f"a buffer of {self.buffer} does not fit before a limit of {self.limit}")
        return self

    def penalty(self, length: int) -> float:
        """Return the (non-positive) penalty for an episode of ``length`` decisions."""
        return -min(max(0.0, (length - (self.limit - self.buffer)) / self.buffer), 1.0)


class RewardSettings(Settings):
    """What is added; by default nothing."""

    overlong: Overlong | None = None
    """Added to the last turn."""
    length: float = Field(default=0.0, ge=0)
    """Taken off per decision, in the turn that made it."""
    invalid: float = Field(default=0.0, ge=0)
    """Taken off once per turn whose action the world did not understand."""

    @property
    def neutral(self) -> bool:
        """Whether nothing is added at all."""
        return self.overlong is None and self.length == 0 and self.invalid == 0


def shaped(groups: Sequence[Group], settings: RewardSettings) -> list[list[NDArray[np.float64]]] | None:
    """Return [N][G] of [K]: shaped rewards per turn for ``credit(rewards=...)``; ``None`` where nothing is added.

    Only ids the policy chose count as length: forced, unread and demonstrated ones do not.
    """
    if settings.neutral:
        return None
    return [[_shape(episode, settings) for episode in group.episodes] for group in groups]


def _shape(episode: Episode, settings: RewardSettings) -> NDArray[np.float64]:
    rewards = np.array([turn.reward for turn in episode.turns], dtype=np.float64)
    lengths = np.array([np.count_nonzero(turn.tags == Tag.DECISION) for turn in episode.turns], dtype=np.int64)
    misunderstood = np.array([not turn.valid for turn in episode.turns], dtype=np.float64)
    rewards = rewards - settings.length * lengths - settings.invalid * misunderstood
    if settings.overlong is not None and len(rewards):
        rewards[-1] += settings.overlong.penalty(int(lengths.sum()))
    return rewards
