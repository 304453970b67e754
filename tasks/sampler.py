"""Which tasks are tried: a pure function of (seed, step), so a resumed run draws what the unbroken one would have."""

from bisect import bisect_right
from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import accumulate
from math import isfinite
from types import MappingProxyType
from typing import Any

from peira.envs.seeding import rng, seed_of
from peira.envs.spec import find
from peira.tasks.task import Task
from peira.tools.errors import UsageError, unknown

__all__ = ["Sampler"]


@dataclass(frozen=True, slots=True)
class Sampler:
    """Draws tasks of one world, at levels by weight.

    It has no state: ``draw(n, step)`` hashes its key instead of advancing a generator, and the first tasks of a larger
    draw are those of a smaller one.

    Raises:
        UsageError: an unknown world, parameter, split or level, or weights that are not a distribution.
    """

    world: str
    params: Mapping[str, Any] = field(default_factory=dict)
    split: str = "train"
    levels: Mapping[int, float] = field(default_factory=dict)
    """Weight of each level; empty: all levels of the world alike."""
    seed: int = 0

    def __post_init__(self) -> None:
        env = find(self.world).open(**self.params)
        if self.split not in env.splits:
            raise unknown(f"split of world {self.world!r}", self.split, env.splits)
        weights = {
            int(level): float(weight) for level, weight in (self.levels or dict.fromkeys(env.levels, 1.0)).items()
        }
        for level, weight in weights.items():
            if level not in env.levels:
                raise unknown(f"level of world {self.world!r}", level, env.levels)
            if not (isfinite(weight) and weight >= 0):
                raise UsageError(f"the weight of level {level} is {weight}; weights are finite and not negative")
        if not sum(weights.values()) > 0:
            raise UsageError(f"all level weights of the sampler of {self.world!r} are 0; at least one must be positive")
        object.__setattr__(self, "levels", MappingProxyType(dict(sorted(weights.items()))))
        object.__setattr__(self, "params", MappingProxyType(dict(self.params)))

    def draw(self, n: int, step: int) -> tuple[Task, ...]:
        """Return the ``n`` tasks of a step.

        Args:
            n: number of tasks.
            step: the training step they are for; different steps draw independently.

        Raises:
            UsageError: a negative number.
        """
        if n < 0 or step < 0:
            raise UsageError(f"a sampler draws n >= 0 tasks for a step >= 0, not n={n}, step={step}")
        levels = [level for level, weight in self.levels.items() if weight > 0]
        edges = list(accumulate(self.levels[level] for level in levels))
        spots = rng("sampler", self.world, self.split, self.seed, step).random(n) * edges[-1]
        return tuple(
            Task.of(
                self.world,
                seed_of("sampler", self.world, self.split, self.seed, step, index),
                level=levels[min(bisect_right(edges, spot), len(levels) - 1)],
                split=self.split,
                **self.params,
            )
            for index, spot in enumerate(spots.tolist())
        )
