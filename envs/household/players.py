"""Scripted players of the household world. They know what the agent knows: what they have looked into."""

from typing import Any

import numpy as np

from peira.envs.core import Env
from peira.envs.household import native
from peira.envs.household.instance import Game, State, bits
from peira.envs.household.rules import APPLIANCES

__all__ = ["careless", "searcher"]

_NOISE = 0.25
"""Chance of any admissible action instead of the one that was meant."""


def searcher(env: Env[Any], rng: np.random.Generator) -> str:
    """Look into one receptacle after the other until the task's things are found, and do with them what it wants."""
    return _next(env, _wish(env._game(), env.state), rng)  # type: ignore[attr-defined]


def careless(env: Env[Any], rng: np.random.Generator) -> str:
    """Search as the searcher does, but at times do anything else that is possible."""
    if not env.state.pending and rng.random() < _NOISE:
        legal = env.legal()
        return legal[int(rng.integers(len(legal)))]
    return searcher(env, rng)


def _next(env: Env[Any], command: str, rng: np.random.Generator) -> str:
    """Return what the world's ``step`` gets next on the way to a command."""
    if env.params["actions"] == "tags":
        return command
    chosen, words = native.chosen_in(env.state.pending), native.split(command)
    if words[: len(chosen)] == chosen:
        return words[len(chosen)]
    # Somebody else has begun another command; any end of it is as good as another.
    legal = env.legal()
    return legal[int(rng.integers(len(legal)))]


def _wish(game: Game, state: State) -> str:
    """Return the next command of someone who knows only what is in the receptacles they have looked into."""
    names, held = game.names, state.held
    if held >= 0:
        if not game.goal_target >> held & 1:
            return _put_away(game, state)
        return _use_up(game, state)
    placed = _placed(game, state)
    for r in bits(state.seen):
        if r != placed and (
            there := game.contents(state, r) & game.goal_target & game.movable & ~_settled(game, state, r)
        ):
            return _at(game, state, r) or f"take {names[next(bits(there))]} from {game.instance.receptacles[r]}"
    return _search(game, state)


def _settled(game: Game, state: State, r: int) -> int:
    """Return the wanted objects that are as they should be and where they should be."""
    if game.instance.task in ("light", "two") or not game.goal_place >> r & 1:
        return 0
    return {"heat": state.hot, "cool": state.cool, "clean": state.clean}.get(game.instance.task, -1)


def _placed(game: Game, state: State) -> int:
    """Return the receptacle in which the first of two objects has been put, or -1."""
    if game.instance.task != "two":
        return -1
    return next((r for r in bits(game.goal_place & state.seen) if game.contents(state, r) & game.goal_target), -1)


def _use_up(game: Game, state: State) -> str:
    """Return what comes next with a wanted object in hand."""
    task, held = game.instance.task, state.held
    rooms, name = game.instance.receptacles, game.names[held]
    if task == "light":
        for r in bits(state.seen):
            lamps = game.contents(state, r) & game.goal_place
            if lamps:
                return _go(game, state, r) or f"use {game.names[next(bits(lamps))]}"
        return _search(game, state)
    trait = APPLIANCES.get(task)
    done = {"heat": state.hot, "cool": state.cool, "clean": state.clean}.get(task, -1)
    if trait and not done >> held & 1 and game.role[trait]:
        r = next(bits(game.role[trait]))
        return _go(game, state, r) or f"{task} {name} with {rooms[r]}"
    fitting = [r for r in bits(game.goal_place) if game.accepts(r) >> held & 1]
    placed = _placed(game, state)
    if placed in fitting or fitting:
        r = placed if placed in fitting else fitting[0]
        return _at(game, state, r) or f"move {name} to {rooms[r]}"
    return "look"


def _put_away(game: Game, state: State) -> str:
    fitting = [r for r in range(len(game.spots)) if game.accepts(r) >> state.held & 1]
    if not fitting:
        return "look"
    r = min(fitting, key=lambda r: (game.spots[r] != state.at, game.openable >> r & 1))
    return _at(game, state, r) or f"move {game.names[state.held]} to {game.instance.receptacles[r]}"


def _search(game: Game, state: State) -> str:
    """Return the way to the first receptacle that has not been looked into, beginning where one stands."""
    unseen = [r for r in range(len(game.spots)) if not state.seen >> r & 1]
    if not unseen:
        return "look"
    r = next((r for r in unseen if game.spots[r] == state.at), unseen[0])
    return _at(game, state, r) or "look"


def _go(game: Game, state: State, r: int) -> str:
    return "" if game.spots[r] == state.at else f"go to {game.instance.receptacles[r]}"


def _at(game: Game, state: State, r: int) -> str:
    """Return what is still to be done before one can reach into a receptacle; nothing when one can."""
    shut = game.openable >> r & 1 and not state.opened >> r & 1
    return _go(game, state, r) or (f"open {game.instance.receptacles[r]}" if shut else "")
