"""Worlds for tests, ours and yours: one that is trivial, one that breaks, one that is slow.

They are no part of ``peira list``; open them by their specs, ``make(COUNTER)``, or by place,
``make("peira.envs.testing:COUNTER")``.
"""

import time
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Literal, get_args

import numpy as np

from peira.envs.core import Env, Player
from peira.envs.spec import WorldSpec
from peira.envs.types import Step
from peira.tools.errors import UsageError, unknown

__all__ = ["COUNTER", "FAILING", "SLOW", "Counter", "CounterInstance", "Failing", "Slow"]


@dataclass(frozen=True, slots=True)
class CounterInstance:
    """Where the counter stands at first, and where it should."""

    start: int
    target: int


def _dithering(env: Env[Any], rng: np.random.Generator) -> str:
    """Go the right way two times out of three."""
    right = env.oracle()[0]
    wrong = "down" if right == "up" else "up"
    return right if rng.random() < 2 / 3 else wrong


class Counter(Env[CounterInstance]):
    """Count up or down to a number. The level is the distance; the reward is the change of the share that is done."""

    name = "counter"
    text: ClassVar[Mapping[str, str]] = MappingProxyType(
        {
            "start": "The counter shows {value}. Bring it to {target}. Say up, down, or stop.",
            "value": "{value}",
            "refuse": "Say up, down, or stop.",
            "end": "The counter shows {value}, the end.",
        }
    )
    levels = range(1, 6)
    max_turns = 24
    players: ClassVar[Mapping[str, Player]] = MappingProxyType({"dithering": _dithering})

    def __init__(self) -> None:
        super().__init__()

    def draw(self, rng: np.random.Generator, level: int, split: str) -> CounterInstance:
        """Draw a start below 1000 and a target ``level`` away from it."""
        del split
        start = int(rng.integers(1_000))
        return CounterInstance(start, start + level * (1 if rng.integers(2) else -1))

    def begin(self, instance: CounterInstance) -> str:
        """Set the counter."""
        self.state = instance.start
        return self.text["start"].format(value=instance.start, target=instance.target)

    def act(self, action: str) -> Step:
        """Count, or stop, which fails unless it is over anyway."""
        said = action.strip().lower()
        if said == "stop":
            return Step.lose(self.text["end"].format(value=self.state))
        if said not in ("up", "down"):
            return Step.refuse(self.text["refuse"])
        before = self._done()
        self.state += 1 if said == "up" else -1
        gain = self._done() - before
        if self.state == self.instance.target:
            return Step.win(self.text["end"].format(value=self.state), gain)
        return Step.go_on(self.text["value"].format(value=self.state), gain, progress=self._done())

    def _done(self) -> float:
        distance = abs(self.instance.target - self.instance.start)
        gap: int = abs(self.instance.target - self.state)
        return max(0.0, 1 - gap / distance)

    def state_key(self) -> str:
        """Return start, target (they decide the reward) and value."""
        return f"{self.instance.start} {self.instance.target} {self.state}"

    def legal(self) -> tuple[str, ...]:
        """The three words."""
        return ("up", "down", "stop")

    def oracle(self) -> tuple[str, ...]:
        """Count straight to the target."""
        gap: int = self.instance.target - self.state
        return ("up" if gap > 0 else "down",) * abs(gap)

    def copy_state(self, state: int) -> int:
        """An integer needs no copy."""
        return state


Place = Literal["reset", "step", "close"]


class Failing(Counter):
    """A counter that breaks: what machinery has to survive."""

    name = "failing"

    def __init__(self, *, where: Place = "step", at: int = 2, every: int = 1) -> None:
        """Open the world.

        Args:
            where: what raises: ``reset``, ``step`` or ``close``.
            at: the step that raises, counted from 1.
            every: only instances whose start is a multiple of this break.
        """
        if where not in get_args(Place):
            raise unknown("place of world 'failing' to break at", where, get_args(Place))
        if at < 1 or every < 1:
            raise UsageError(f"world 'failing' needs at >= 1 and every >= 1, not at={at}, every={every}")
        Env.__init__(self, where=where, at=at, every=every)

    def _break(self, place: Place) -> None:
        if place == self.params["where"] and self.instance.start % self.params["every"] == 0:
            raise RuntimeError(f"world 'failing' breaks at {place}, as it was asked to")

    def begin(self, instance: CounterInstance) -> str:
        """Set the counter, or break."""
        self._break("reset")
        return super().begin(instance)

    def act(self, action: str) -> Step:
        """Count, or break."""
        if self._turns + 1 == self.params["at"]:
            self._break("step")
        return super().act(action)

    def close(self) -> None:
        """Close, or break."""
        if self._instance is not None:
            self._break("close")


class Slow(Counter):
    """A counter whose steps take their time."""

    name = "slow"
    blocking = True

    def __init__(self, *, seconds: float = 0.01) -> None:
        """Open the world; each step blocks for ``seconds``."""
        if not 0 <= seconds <= 3600:
            raise UsageError(f"world 'slow' takes 0..3600 seconds a step, not {seconds}")
        Env.__init__(self, seconds=seconds)

    def act(self, action: str) -> Step:
        """Wait, then count."""
        time.sleep(self.params["seconds"])
        return super().act(action)


COUNTER = WorldSpec(id="counter", env=Counter, summary="Count to a number; for tests.")
FAILING = WorldSpec(id="failing", env=Failing, summary="A counter that raises where it is told to; for tests.")
SLOW = WorldSpec(id="slow", env=Slow, summary="A counter that blocks in each step; for tests.")
