"""A game as a problem for the real engine: PDDL, and the ``.tw-pddl`` form that ALFWorld loads.

The rules (``alfred.pddl``) and the grammar (``alfred.twl2``) are the ``alfworld`` package's own and come from there.
"""

import json
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from peira.envs.household.instance import Game, Instance, bits
from peira.tools.errors import missing_extra

__all__ = ["game_text", "problem", "real_rules"]

_GOALS = {
    "light": "(exists (?t - object ?r - receptacle ?a - agent ?l - location) (and (objectType ?t {place}Type) "
    "(toggleable ?t) (isToggled ?t) (receptacleAtLocation ?r ?l) (atLocation ?a ?l) (inReceptacle ?t ?r))) "
    "(exists (?o - object ?a - agent) (and (objectType ?o {target}Type) (holds ?a ?o)))",
    "two": "(exists (?r - receptacle) (exists (?o1 - object) (and (objectType ?o1 {target}Type) "
    "(receptacleType ?r {place}Type) (inReceptacle ?o1 ?r) (exists (?o2 - object) (and (not (= ?o1 ?o2)) "
    "(objectType ?o2 {target}Type) (receptacleType ?r {place}Type) (inReceptacle ?o2 ?r))))))",
}
_GOAL = (
    "(exists (?r - receptacle) (exists (?o - object) (and {more}(inReceptacle ?o ?r) (objectType ?o {target}Type) "
    "(receptacleType ?r {place}Type))))"
)
_MORE = {
    "place": "",
    "clean": "(cleanable ?o) (isClean ?o) ",
    "heat": "(heatable ?o) (isHot ?o) ",
    "cool": "(coolable ?o) (isCool ?o) ",
}


def real_rules() -> tuple[str, str]:
    """Return the real engine's domain and grammar.

    Raises:
        UsageError: the package ``alfworld`` is not installed.
    """
    found = find_spec("alfworld")
    if found is None or not found.submodule_search_locations:
        raise missing_extra("alfworld", "alfworld", "a game file for the real engine")
    data = Path(found.submodule_search_locations[0]) / "data"
    return (data / "alfred.pddl").read_text(encoding="utf-8"), (data / "alfred.twl2").read_text(encoding="utf-8")


def game_text(instance: Instance, domain: str, grammar: str, walkthrough: tuple[str, ...] | None = None) -> str:
    """Return the text of a ``.tw-pddl`` file.

    Args:
        instance: the game.
        domain: the real engine's rules.
        grammar: its grammar, with ``UNKNOWN GOAL`` where the task is told.
        walkthrough: commands that solve the game.
    """
    return json.dumps(
        {
            "pddl_domain": domain,
            "grammar": grammar.replace("UNKNOWN GOAL", instance.goal),
            "pddl_problem": problem(instance),
            "solvable": True,
            "walkthrough": None if walkthrough is None else list(walkthrough),
        }
    )


def problem(instance: Instance) -> str:
    """Return a game as a PDDL problem of the domain ``alfred``."""
    game = Game(instance)
    rooms = [_id(kind, index) for index, kind in enumerate(game.kinds)]
    things = [_id(kind, index) for index, kind in enumerate(game.classes)]
    kinds, classes = (
        sorted({*game.kinds, "sinkbasin", "microwave", "fridge"}),
        sorted(
            {*game.classes, instance.target, "knife", "butterknife"}
            | ({instance.place} if instance.task == "light" else set())
        ),
    )
    if instance.task != "light":
        kinds = sorted({*kinds, instance.place})
    spots = sorted({*game.spots, game.start.at})
    listed = [
        "agent1 - agent",
        *(f"{kind}Type - rtype" for kind in kinds),
        *(f"{kind}Type - otype" for kind in classes),
        *(f"{room} - receptacle" for room in rooms),
        *(f"{thing} - object" for thing in things),
        *(f"{_spot(spot)} - location" for spot in spots),
    ]
    facts = "\n".join(_facts(game, rooms, things))
    goal = _GOALS.get(instance.task, _GOAL).format(
        target=instance.target, place=instance.place, more=_MORE.get(instance.task, "")
    )
    return (
        "(define (problem household)\n(:domain alfred)\n(:objects\n" + "\n".join(listed) + "\n)\n(:init\n"
        f"{facts}\n)\n(:goal (and {goal}))\n)\n"
    )  # fmt: skip


def _facts(game: Game, rooms: list[str], things: list[str]) -> Iterator[str]:
    start = game.start
    yield "(= (total-cost) 0)"
    yield f"(atLocation agent1 {_spot(start.at)})"
    for r, room in enumerate(rooms):
        yield f"(receptacleType {room} {game.kinds[r]}Type)"
        yield f"(receptacleAtLocation {room} {_spot(game.spots[r])})"
        if game.openable >> r & 1:
            yield f"(openable {room})"
        if start.opened >> r & 1:
            yield f"(opened {room})"
        for o in bits(game.contents(start, r)):
            yield f"(inReceptacle {things[o]} {room})"
    pairs = {(game.kinds[r], game.classes[o]) for r in range(len(rooms)) for o in bits(game.accepts(r))}
    yield from (f"(canContain {kind}Type {thing}Type)" for kind, thing in sorted(pairs))
    if start.held >= 0:
        yield from (f"(holds agent1 {things[start.held]})", "(holdsAny agent1)")
    for o, thing in enumerate(things):
        yield from (f"(inReceptacleObject {things[inner]} {thing})" for inner in game.nested(o))
        yield f"(objectType {thing} {game.classes[o]}Type)"
        for spot in sorted({*game.spots, start.at}):
            if start.lies >> (spot * game.n + o) & 1:
                yield f"(objectAtLocation {thing} {_spot(spot)})"
        for trait in Game.TRAITS:
            if game.traits[trait] >> o & 1:
                yield f"({trait} {thing})"


def _id(kind: str, index: int) -> str:
    """Return a hidden id under which the real engine gives a thing its name and its place in every list."""
    base = kind.removesuffix("basin")
    tail = f"_bar_{kind}" if base != kind else ""
    return f"{base}_bar__plus_{index // 100:02d}_dot_{index % 100:02d}_bar__plus_00_dot_00_bar__plus_00_dot_00{tail}"


def _spot(spot: int) -> str:
    return f"loc_bar_{spot}_bar_0_bar_0_bar_30"
