"""A task: the name of one instance of one world."""

from dataclasses import dataclass
from functools import cached_property
from typing import Any

from peira.envs.core import Env
from peira.envs.seeding import digest
from peira.envs.spec import make

__all__ = ["Task"]


@dataclass(frozen=True)
class Task:
    """One instance of one world. Tasks with equal ``key`` are the same instance, on every machine, for ever."""

    world: str
    seed: int
    level: int | None = None
    split: str = "train"
    params: tuple[tuple[str, Any], ...] = ()
    """The world's parameters as sorted pairs, so that a task is hashable; ``Task.of`` builds them."""

    @classmethod
    def of(cls, world: str, seed: int, *, level: int | None = None, split: str = "train", **params: Any) -> "Task":
        """Build a task from keyword parameters of its world."""
        return cls(world, seed, level, split, tuple(sorted(params.items())))

    @cached_property
    def key(self) -> str:
        """Content hash of the task."""
        return digest([self.world, self.seed, self.level, self.split, [list(pair) for pair in self.params]])

    def open(self, *, max_turns: int | None = None, guards: bool = True) -> Env[Any]:
        """Return a world of this task's kind, not yet reset."""
        return make(self.world, max_turns=max_turns, guards=guards, **dict(self.params))

    def start(self, env: Env[Any]) -> tuple[str, dict[str, Any]]:
        """Reset a world to this task's instance."""
        return env.reset(seed=self.seed, options={"level": self.level, "split": self.split})
