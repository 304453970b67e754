"""Texts of a world, for training the tokenizer of a tiny policy on what it is going to read and write."""

from collections.abc import Callable, Iterator
from itertools import cycle, islice
from typing import Any

import numpy as np

from peira.envs.core import Env
from peira.envs.seeding import rng
from peira.tools.errors import UsageError

__all__ = ["tagged", "world_texts"]

_TURNS = 64
"""Turns played of one instance; a policy's tokenizer needs the world's words, not its long games."""


def tagged(action: str) -> str:
    """Return an action string in tag format: ``compare A B`` becomes ``<compare>A B</compare>``."""
    verb, _, rest = action.partition(" ")
    return f"<{verb}>{rest}</{verb}>"


def world_texts(env: Env[Any], *, episodes: int = 48, seed: int = 0) -> list[str]:
    """Play a world with its oracle, its scripted players and at random; return everything said on both sides.

    Native action texts, the world's sentences, and actions in tag format are included. Levels are taken in turn.
    The same arguments give the same list.
    """
    texts = [*env.text.values(), *(action.text for action in env.native())]
    players: list[Callable[[Env[Any], np.random.Generator], str]] = [_oracle, *env.players.values(), _at_random]
    levels = islice(cycle(env.levels), episodes)
    for episode, level in enumerate(levels):
        player = players[episode % len(players)]
        try:
            texts.extend(_play(env, player, level, seed, episode))
        except UsageError:
            continue  # a level that this world cannot fill under these parameters
    return texts


def _play(
    env: Env[Any], player: Callable[[Env[Any], np.random.Generator], str], level: int, seed: int, episode: int
) -> Iterator[str]:
    generator = rng("corpus", seed, episode)
    observation, _ = env.reset(seed=seed * 1_000_003 + episode, options={"level": level})
    yield observation
    for _ in range(min(env.limit, _TURNS)):
        action = player(env, generator)
        yield from (action, tagged(action))
        observation, _, terminated, truncated, _ = env.step(action)
        yield observation
        if terminated or truncated:
            return


def _oracle(env: Env[Any], generator: np.random.Generator) -> str:
    plan = env.oracle()
    return plan[0] if plan else _at_random(env, generator)


def _at_random(env: Env[Any], generator: np.random.Generator) -> str:
    legal = env.legal()
    return str(legal[int(generator.integers(len(legal)))]) if legal else ""
