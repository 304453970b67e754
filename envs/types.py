r"""The records of a world: what one action leads to, and what trainers (never agents) may know about it.

A two-turn example, ``sorting`` with two items::

    reset(seed=7)        -> "Sort ascending: B A. Ops: ...", {"valid": True, "legal": ("compare A B", ...), ...}
    step("compare B A")  -> ("A < B", 0.0, False, False, {"state_key": "sort + AB BA 2 1 0/1", ...})
    step("swap B A")     -> ("A B", 0.0, False, False, {...})
    step("done")         -> ("Correct. ...", 1.0, True, False, {"success": True, "end": "success", ...})
"""

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, NamedTuple, TypedDict

__all__ = ["NO_PARTS", "Info", "Snapshot", "Step"]

NO_PARTS: Mapping[str, float] = MappingProxyType({})

_new = tuple.__new__  # what a named tuple's constructor ends in; worlds build a step a hundred thousand times a second


class Info(TypedDict, total=False):
    """What ``reset`` and ``step`` say beside the observation. For trainers; the agent sees the observation alone."""

    success: bool | None
    """Whether the task is solved; ``None`` while it is undecided."""
    valid: bool
    """Was the action understood and legal."""
    state_key: str
    """Canonical key of the state *after* this step."""
    reward_parts: Mapping[str, float]
    """The reward's named summands; empty when it has only one."""
    progress: float | None
    """Share of the task done, in [0, 1], where the world can tell."""
    legal: tuple[str, ...]
    """Admissible actions in the present state."""
    free_text: bool
    """May the agent also answer with any text (True), or only with one of ``legal`` (False)."""
    end: str | None
    """``success``, ``failure`` or ``turn_limit`` once the episode is over."""
    turn: int
    """Steps taken so far."""


class Step(NamedTuple):
    """What an action led to. Build it with the four constructors; other combinations do not exist."""

    observation: str
    reward: float
    terminated: bool
    success: bool | None
    valid: bool
    parts: Mapping[str, float]
    progress: float | None

    @classmethod
    def go_on(
        cls, observation: str, reward: float = 0.0, parts: Mapping[str, float] = NO_PARTS, progress: float | None = None
    ) -> "Step":
        """The action was carried out and the task goes on."""
        return _new(cls, (observation, reward, False, None, True, parts, progress))

    @classmethod
    def refuse(cls, observation: str, reward: float = 0.0) -> "Step":
        """The action was not understood or not legal; the observation says what is."""
        return cls(observation, reward, False, None, False, NO_PARTS, None)

    @classmethod
    def win(cls, observation: str, reward: float = 1.0, parts: Mapping[str, float] = NO_PARTS) -> "Step":
        """The task ended and is solved."""
        return cls(observation, reward, True, True, True, parts, 1.0)

    @classmethod
    def lose(cls, observation: str, reward: float = 0.0, parts: Mapping[str, float] = NO_PARTS) -> "Step":
        """The task ended and is not solved."""
        return cls(observation, reward, True, False, True, parts, None)


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A world's whole state at one moment; ``restore`` makes any object of the same world continue from it."""

    world: str
    instance: Any
    state: Any
    turns: int
    live: bool
    total: float
    """Sum of the rewards so far, as far as guards counted it."""
    rng: Mapping[str, Any]
    """The episode's seed, and its generator's state once it has drawn."""
