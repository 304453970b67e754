"""Players without a model: random, oracle, human, and those that a world brings along."""

import json
from collections.abc import Callable
from typing import Any

import numpy as np

from peira.envs.core import Env, Player
from peira.tools.errors import UsageError, unknown

__all__ = ["BUILT_IN", "Human", "Oracle", "names_of", "player_for", "random_player"]

BUILT_IN = ("human", "oracle", "random")


def names_of(env: Env[Any]) -> tuple[str, ...]:
    """Return the names of all players that can play a world."""
    return tuple(sorted({*BUILT_IN, *env.players}))


def player_for(env: Env[Any], name: str) -> Player:
    """Return a fresh player for one episode of a world.

    Args:
        env: the world; its own ``players`` come before the built-in ones of the same name.
        name: ``random``, ``oracle``, ``human``, or one of the world's.

    Raises:
        UsageError: no such player.
    """
    if name in env.players:
        return env.players[name]
    if name == "random":
        return random_player
    if name == "oracle":
        return Oracle()
    if name == "human":
        return Human()
    raise unknown(f"player of world {env.name!r}", name, names_of(env))


def random_player(env: Env[Any], rng: np.random.Generator) -> str:
    """Choose uniformly among the admissible actions.

    Raises:
        UsageError: the world does not list its actions.
    """
    legal = env.legal()
    if not legal:
        raise UsageError(
            f"the random player needs a list of actions, but world {env.name!r} gives none in this state; "
            f"use another of its players: {', '.join(name for name in names_of(env) if name != 'random')}"
        )
    return legal[int(rng.integers(len(legal)))]


class Oracle:
    """Follow the world's own plan, and ask for a new one when it has run out."""

    def __init__(self) -> None:
        self._plan: list[str] = []
        self._env: Env[Any] | None = None

    def __call__(self, env: Env[Any], rng: np.random.Generator) -> str:
        """Return the plan's next action."""
        del rng
        if not self._plan or self._env is not env:
            self._env, self._plan = env, list(env.oracle())
        if not self._plan:
            raise UsageError(f"the oracle of world {env.name!r} has no plan from this state")
        return self._plan.pop(0)


class Human:
    """A person at a terminal: reads each observation, types each action; ``?`` lists what is admissible."""

    def __init__(self, read: Callable[[str], str] = input, write: Callable[[str], Any] = print) -> None:
        self._read, self._write = read, write

    def told(self, observation: str) -> None:
        """Show what the world said."""
        if observation:
            self._write(observation)

    def __call__(self, env: Env[Any], rng: np.random.Generator) -> str:
        """Ask until something is typed.

        Raises:
            KeyboardInterrupt: the input has ended.
        """
        del rng
        while True:
            try:
                typed = self._read("> ")
            except EOFError:
                raise KeyboardInterrupt from None
            if typed.strip() == "?":
                listed = [json.dumps(action) if action != action.strip() else action for action in env.legal()]
                self._write(", ".join(listed) if listed else "Any text.")
            elif typed.strip():
                return typed
