"""Dynamic sampling: leave out groups that say nothing, and ask for more until a step is full or the cap is reached.

DAPO (arXiv 2503.14476, section 3.2). What is left out is decided by the *raw* scores.
"""

from collections.abc import Iterable
from dataclasses import dataclass, replace

import numpy as np
from pydantic import Field

from peira.agents.types import Group
from peira.tools.errors import UsageError
from peira.training.settings import Settings

__all__ = ["Filling", "FilterSettings", "informative"]


class FilterSettings(Settings):
    """Which groups reach credit."""

    drop_flat: bool = False
    """Leave out groups whose members all scored the same."""
    flat: float = Field(default=1e-5, ge=0)
    """Scores whose deviation is at most this are the same."""
    refills: int = Field(default=3, ge=0)
    """How often at most a step asks for more groups; it then makes do with what it has."""


def informative(group: Group, settings: FilterSettings) -> bool:
    """Return whether a group passes.

    Unscored members are not compared. A counterfactual member passes by itself: its credit does not come from its
    group.
    """
    if not settings.drop_flat or any(
        e.origin is not None and e.origin.kind == "counterfactual" for e in group.episodes
    ):
        return True
    scores = np.array([episode.score for episode in group.episodes], dtype=np.float64)
    scores = scores[np.isfinite(scores)]
    return len(scores) > 1 and float(scores.std()) > settings.flat


@dataclass(frozen=True, slots=True)
class Filling:
    """A step that is being filled. ``add`` returns the next state; ``finished`` says when to stop collecting."""

    wanted: int
    """Groups a full step holds."""
    settings: FilterSettings
    groups: tuple[Group, ...] = ()
    rounds: int = 0
    """Times something was collected; the first is no refill."""
    flat: int = 0
    """Groups left out so far."""

    def add(self, collected: Iterable[Group]) -> "Filling":
        """Return the state after another round of collecting; groups beyond the number wanted are not kept."""
        offered = list(collected)
        passing = [group for group in offered if informative(group, self.settings)]
        return replace(
            self,
            groups=(*self.groups, *passing)[: self.wanted],
            rounds=self.rounds + 1,
            flat=self.flat + len(offered) - len(passing),
        )

    @property
    def missing(self) -> int:
        """Groups still wanted."""
        return self.wanted - len(self.groups)

    @property
    def finished(self) -> bool:
        """Whether the step is full, or no refill is left."""
        return self.missing == 0 or self.rounds > self.settings.refills

    def take(self) -> tuple[Group, ...]:
        """Return the groups of a finished step, perhaps fewer than wanted: a smaller step, not a padded one.

        Raises:
            UsageError: nothing passed in any round; says how many groups were tried and what to change.
        """
        if not self.groups:
            raise UsageError(
                f"all {self.flat} groups collected in {self.rounds} rounds scored the same throughout, so there is "
                "nothing to compare: make tasks easier or harder, groups larger, allow more refills, or set "
                "drop_flat = false"
            )
        return self.groups
