"""The shortest plan from any state.

Every two spots are one step apart, so a plan costs its commands: one for each thing done, one for each door that has to
be opened, one for each change of spot. An optimal plan is a sequence of few *stops*: put away what is in the way, then
take, treat and put down each wanted object. All sensible sequences are listed (receptacles that cannot make a
difference are represented by one of their kind) and the cheapest is written out. Tests hold the result against
exhaustive search.
"""

from collections.abc import Iterator
from itertools import permutations
from typing import NamedTuple

from peira.envs.household.instance import Game, State, bits
from peira.envs.household.rules import APPLIANCES, holds

__all__ = ["plan"]


class Stop(NamedTuple):
    """One thing to do at a receptacle."""

    verb: str
    thing: int
    """The object, or -1 to stand there and do nothing."""
    receptacle: int
    door: bool
    """Whether the receptacle has to be open for it."""


def plan(game: Game, state: State) -> tuple[str, ...] | None:
    """Return a shortest list of commands after which the goal holds; ``None`` when there is none."""
    if holds(game, state):
        return ()
    best: tuple[Stop, ...] | None = None
    least = 1 << 30
    for stops in _sequences(game, state):
        cost = _cost(game, state, stops)
        if cost < least:
            best, least = stops, cost
    return None if best is None else _commands(game, state, best)


def _cost(game: Game, state: State, stops: tuple[Stop, ...]) -> int:
    at, opened, spots, openable = state.at, state.opened, game.spots, game.openable
    cost = 0
    for _, thing, receptacle, door in stops:
        if spots[receptacle] != at:
            at = spots[receptacle]
            cost += 1
        if door and openable >> receptacle & 1 and not opened >> receptacle & 1:
            opened |= 1 << receptacle
            cost += 1
        cost += thing >= 0
    return cost


def _commands(game: Game, state: State, stops: tuple[Stop, ...]) -> tuple[str, ...]:
    at, opened = state.at, state.opened
    rooms, names = game.instance.receptacles, game.names
    commands: list[str] = []
    for verb, thing, receptacle, door in stops:
        room = rooms[receptacle]
        if game.spots[receptacle] != at:
            at = game.spots[receptacle]
            commands.append(f"go to {room}")
        if door and game.openable >> receptacle & 1 and not opened >> receptacle & 1:
            opened |= 1 << receptacle
            commands.append(f"open {room}")
        if thing >= 0:
            link = {"take": f" from {room}", "move": f" to {room}", "use": ""}.get(verb, f" with {room}")
            commands.append(f"{verb} {names[thing]}{link}")
    return tuple(commands)


# ---- which sequences there are ----------------------------------------------------------------------------------


def _sequences(game: Game, state: State) -> Iterator[tuple[Stop, ...]]:
    task = game.instance.task
    if task == "two":
        body = _two(game, state)
    elif task == "light":
        body = _light(game, state)
    else:
        body = _one(game, state)
    for stops in body:
        if state.held >= 0 and any(stop.verb == "take" for stop in stops) and not _first_moves_held(stops, state.held):
            yield from ((drop, *stops) for drop in _drops(game, state, stops))
        else:
            yield stops


def _first_moves_held(stops: tuple[Stop, ...], held: int) -> bool:
    return stops[0].verb != "take" and stops[0].thing == held


def _drops(game: Game, state: State, stops: tuple[Stop, ...]) -> Iterator[Stop]:
    """Yield the receptacles where what is held might best be put down before the first take."""
    held, spots = state.held, game.spots
    near = {state.at, spots[stops[0].receptacle]}
    used = {stop.receptacle for stop in stops}
    kept: set[bool] = set()
    for r, spot in enumerate(spots):
        if not game.accepts(r) >> held & 1:
            continue
        shut = bool(game.openable >> r & 1 and not state.opened >> r & 1)
        if spot in near or r in used:
            yield Stop("move", held, r, True)
        elif shut not in kept:
            kept.add(shut)
            yield Stop("move", held, r, True)


def _fetch(game: Game, state: State, o: int) -> tuple[Stop, ...] | None:
    """Return how to get an object into the hand, or ``None`` when that is impossible."""
    if state.held == o:
        return ()
    if not game.movable >> o & 1:
        return None
    r = _home(game, state, o)
    return None if r is None else (Stop("take", o, r, True),)


def _home(game: Game, state: State, o: int) -> int | None:
    return next((r for r in range(len(game.spots)) if state.inside >> (r * game.n + o) & 1), None)


def _places(game: Game, state: State, near: set[int], o: int) -> list[int]:
    """Return the receptacles of the goal that accept an object, without those that another one represents.

    ``near`` are the spots where a plan may stand anyhow.
    """
    found: dict[tuple[bool, int, int], int] = {}
    for r in bits(game.goal_place):
        if game.accepts(r) >> o & 1:
            shut = bool(game.openable >> r & 1 and not state.opened >> r & 1)
            spot = game.spots[r]
            kind = (shut, game.contents(state, r) & game.goal_target, spot if spot in near else -1)
            found.setdefault(kind, r)
    return list(found.values())


def _one(game: Game, state: State) -> Iterator[tuple[Stop, ...]]:
    """Yield the ways to bring one object, treated as the task wants it, to its place."""
    verb = game.instance.task
    trait = APPLIANCES.get(verb)
    done = {"heat": state.hot, "cool": state.cool, "clean": state.clean}.get(verb, -1)
    for o in bits(game.goal_target & (game.traits[trait] if trait else -1)):
        fetch = _fetch(game, state, o)
        if fetch is None:
            continue
        near = {state.at, *(game.spots[stop.receptacle] for stop in fetch)}
        ways: list[tuple[Stop, ...]] = [fetch]
        if trait and not done >> o & 1:
            appliances = list(bits(game.role[trait]))
            near.update(game.spots[r] for r in appliances)
            ways = [(*fetch, Stop(verb, o, r, False)) for r in appliances]
        for r in _places(game, state, near, o):
            yield from ((*way, Stop("move", o, r, True)) for way in ways)


def _two(game: Game, state: State) -> Iterator[tuple[Stop, ...]]:
    """Yield the ways to bring as many objects as are missing to one place."""
    fetches = {o: way for o in bits(game.goal_target) if (way := _fetch(game, state, o)) is not None}
    near = {state.at, *(game.spots[stop.receptacle] for way in fetches.values() for stop in way)}
    places = {r for o in fetches for r in _places(game, state, near, o)}
    for r in sorted(places):
        there = game.contents(state, r) & game.goal_target
        fitting = [o for o in fetches if game.accepts(r) >> o & 1 and not there >> o & 1]
        for chosen in permutations(fitting, 2 - there.bit_count()):
            if state.held not in chosen[1:]:
                yield tuple(stop for o in chosen for stop in (*fetches[o], Stop("move", o, r, True)))


def _light(game: Game, state: State) -> Iterator[tuple[Stop, ...]]:
    """Yield the ways to hold an object where a lamp has been switched on."""
    for o in bits(game.goal_target):
        fetch = _fetch(game, state, o)
        if fetch is None:
            continue
        for lamp in bits(game.goal_place & game.lamps):
            r = _home(game, state, lamp)
            if r is not None:
                lit = state.used >> lamp & 1
                yield (*fetch, Stop("use", -1 if lit else lamp, r, False))
