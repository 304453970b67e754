"""What all checks share: opening the world under test, playing it reproducibly, writing down what it did."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from peira.envs.core import Env
from peira.envs.seeding import digest, rng
from peira.envs.spec import WorldSpec

__all__ = ["Bench", "Check", "Finding", "Row", "difference", "plain", "transcript_digest"]

SEEDS = tuple(range(6))
STEPS = 40
"""Steps after which the kit stops playing an episode that does not end."""


@dataclass(frozen=True, slots=True)
class Finding:
    """One broken promise: which check found it, what was seen, and how to put it right."""

    check: str
    cause: str
    remedy: str

    def __str__(self) -> str:
        return f"{self.check}: {self.cause}\n    remedy: {self.remedy}"


@dataclass(frozen=True, slots=True)
class Check:
    """One check of the kit."""

    name: str
    run: Callable[["Bench"], Iterator[Finding]]
    promise: str
    """What a world that passes can be relied upon for."""
    needs: tuple[str, ...] = ()
    """Abilities without which the check is skipped: an adapter declares the missing ones in its spec's ``lacks``."""


@dataclass(frozen=True, slots=True)
class Row:
    """One exchange, as plain JSON data."""

    action: str | None
    """``None`` for the reset."""
    observation: Any
    reward: float
    terminated: bool
    truncated: bool
    info: Mapping[str, Any]

    @property
    def over(self) -> bool:
        """Whether the episode ended here."""
        return bool(self.terminated or self.truncated)


@dataclass(frozen=True, slots=True)
class Bench:
    """The world under test."""

    spec: WorldSpec
    params: Mapping[str, Any]

    def can(self, ability: str) -> bool:
        """Whether the world does not declare the lack of an ability."""
        return ability not in self.spec.lacks

    def open(self, *, guards: bool = False) -> Env[Any]:
        """Return a new world object; without guards, so that a check can name the fault that a guard would raise."""
        return self.spec.open(guards=guards, **self.params)

    def starts(self, seeds: Sequence[int] = SEEDS) -> Iterator[tuple[int, int]]:
        """Yield (seed, level) pairs over all levels."""
        levels = list(self.spec.env.levels)
        for index, seed in enumerate(seeds):
            if len(levels) <= 8:
                yield from ((seed, level) for level in levels)
            else:
                yield from ((seed, level) for level in levels[index :: len(seeds)])

    def reset(self, env: Env[Any], seed: int, level: int, split: str = "train") -> Row:
        """Reset a world object to an instance."""
        observation, info = env.reset(seed=seed, options={"level": level, "split": split})
        return Row(None, observation, 0.0, False, False, info)

    def step(self, env: Env[Any], action: str) -> Row:
        """Carry out one action."""
        observation, reward, terminated, truncated, info = env.step(action)
        return Row(action, observation, reward, terminated, truncated, info)

    def choose(self, env: Env[Any], chance: np.random.Generator, skill: float) -> str:
        """Return the oracle's next action with probability ``skill``, else a random admissible one."""
        if self.can("oracle") and chance.random() < skill:
            plan = env.oracle()
            if plan:
                return plan[0]
        legal = env.legal() if self.can("legal") else ()
        if legal:
            return legal[int(chance.integers(len(legal)))]
        return "".join(map(chr, chance.integers(32, 127, size=8).tolist()))

    def play(self, env: Env[Any], chance: np.random.Generator, skill: float = 0.5, steps: int = STEPS) -> list[Row]:
        """Play on from the present state until the end or for ``steps`` steps."""
        rows: list[Row] = []
        while len(rows) < steps and not (rows and rows[-1].over):
            rows.append(self.step(env, self.choose(env, chance, skill)))
        return rows

    def episode(self, env: Env[Any], seed: int, level: int, skill: float = 0.5, steps: int = STEPS) -> list[Row]:
        """Reset and play; the kit's own choices depend on seed, level and skill alone."""
        chance = rng("check", seed, level, str(skill))
        return [self.reset(env, seed, level), *self.play(env, chance, skill, steps)]

    def follow(self, env: Env[Any], rows: Sequence[Row]) -> list[Row]:
        """Repeat the actions of recorded rows from the present state, as far as the episode lives."""
        done: list[Row] = []
        for row in rows:
            if done and done[-1].over:
                break
            done.append(self.step(env, str(row.action)))
        return done


def plain(row: Row) -> str:
    """Return a row as text for comparing; never fails, whatever a faulty world put into it."""
    info = sorted((str(key), repr(value)) for key, value in dict(row.info).items())
    return repr((row.action, row.observation, row.reward, row.terminated, row.truncated, info))


def transcript_digest(bench: Bench) -> str:
    """Return the hash of everything the world does in the kit's standard episodes."""
    env = bench.open()
    return digest([plain(row) for seed, level in bench.starts() for row in bench.episode(env, seed, level)])


def difference(one: Sequence[Row], two: Sequence[Row]) -> str | None:
    """Say where two transcripts part; ``None`` when they are equal."""
    for at, (a, b) in enumerate(zip(one, two, strict=False)):
        if plain(a) == plain(b):
            continue
        fields = ("action", "observation", "reward", "terminated", "truncated")
        pairs = {name: (getattr(a, name), getattr(b, name)) for name in fields}
        pairs |= {f"info[{key!r}]": (a.info[key], b.info.get(key)) for key in a.info}
        name = next((name for name, (x, y) in pairs.items() if repr(x) != repr(y)), "info")
        x, y = pairs.get(name, (a.info, b.info))
        return f"{name} of step {at} is {_short(x)} in one and {_short(y)} in the other"
    return None if len(one) == len(two) else f"one has {len(one)} steps and the other {len(two)}"


def _short(value: object) -> str:
    text = repr(value)
    return text if len(text) <= 80 else text[:77] + "..."
