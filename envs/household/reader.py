"""Reads ALFWorld's game files (``game.tw-pddl``, and whatever ``export`` writes) into instances of this world.

The file's own names, doors, traits and placement table are kept, so a game is played as the real engine plays it.
Places of objects that nothing can see or reach (a spot without a receptacle) are left out.
"""

import json
import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from peira.envs.household.instance import Facts, Game, Instance
from peira.tools.errors import UsageError

__all__ = ["FOLDERS", "files_in", "read_game"]

FOLDERS = {"train": "train", "valid_seen": "test", "valid_unseen": "plans"}
"""ALFWorld's own folders, and the splits they are."""

_TOKEN = re.compile(r"[()]|[^\s()]+")
_TOLD = re.compile(r'"Your task is to: ((?:[^"\\]|\\.)*)\."')
_GOALS = {
    "place": "inreceptacle objecttype receptacletype",
    "clean": "cleanable inreceptacle isclean objecttype receptacletype",
    "heat": "heatable inreceptacle ishot objecttype receptacletype",
    "cool": "coolable inreceptacle iscool objecttype receptacletype",
    "two": "= inreceptacle inreceptacle objecttype objecttype receptacletype receptacletype",
    "light": "atlocation holds inreceptacle istoggled objecttype objecttype receptacleatlocation toggleable",
}
"""Task to the predicates of its goal, in alphabetical order."""
_TASKS = {predicates: task for task, predicates in _GOALS.items()}
_LOGIC = frozenset({"and", "exists", "not", "or", "forall"})

Tree = str | list[Any]


def files_in(path: Path) -> list[tuple[Path, str]]:
    """Return (file, split) of the games at a path: a file, or a folder with files anywhere in it.

    The split is empty unless one of the folders above the file is one of ALFWorld's own.

    Raises:
        UsageError: nothing there.
    """
    found = [path] if path.is_file() else sorted(path.rglob("*.tw-pddl"))
    if not found:
        what = "has no *.tw-pddl file in it" if path.is_dir() else "does not exist"
        raise UsageError(f"household: games={str(path)!r} {what}; name a game file, or a folder that holds some")
    return [(file, next((FOLDERS[part] for part in file.parts if part in FOLDERS), "")) for file in found]


def read_game(path: Path, split: str = "") -> Instance:
    """Read one game file.

    Raises:
        UsageError: not such a file, or a task that this world does not have.
    """
    try:
        data = json.loads(path.read_text(encoding="utf-8"))
        problem, grammar = data["pddl_problem"], data["grammar"]
    except OSError as error:
        raise UsageError(f"{path}: cannot be read: {error.strerror}") from error
    except (ValueError, KeyError, TypeError) as error:
        raise UsageError(
            f"{path}: not a game of ALFWorld's ({type(error).__name__}: {error}); such a file is one JSON object with "
            "the keys pddl_domain, grammar and pddl_problem"
        ) from error
    try:
        return _instance(problem, grammar, split)
    except UsageError as error:
        raise UsageError(f"{path}: {error}") from error


def _instance(problem: str, grammar: str, split: str) -> Instance:
    sections = _sections(problem)
    task, target, place = _goal(sections["goal"])
    told = _TOLD.search(grammar)
    if told is None:
        raise UsageError(
            "the grammar does not say 'Your task is to: ...'; is the game a textworld game of another kind?"
        )
    kinds, facts = _typed(sections["objects"]), _by_name(sections["init"])
    world = _World.of(kinds, facts)
    inside = [(world.objects[o], world.rooms[r]) for o, r in facts["inreceptacle"]]
    homes = dict(sorted(inside, reverse=True))
    return Instance(
        task,
        json.loads(f'"{told[1]}"'),
        target,
        place,
        tuple(world.names[r] for r in world.rooms),
        tuple(world.spots[spot] for spot in world.stands),
        tuple(world.names[o] for o in world.objects),
        tuple(homes.get(o, -1) for o in range(len(world.objects))),
        _facts(world, facts, tuple(sorted(inside)), split),
    )


class _World(NamedTuple):
    """The things of a game, each under its hidden id, in the order of the ids."""

    names: dict[str, str]
    rooms: dict[str, int]
    objects: dict[str, int]
    stands: list[str]
    """The location of each receptacle."""
    spots: dict[str, int]

    @classmethod
    def of(cls, kinds: dict[str, str], facts: dict[str, list[tuple[str, ...]]]) -> "_World":
        known = sorted({name for rows in facts.values() for row in rows for name in row})
        names = _names(known)
        rooms = [name for name in known if kinds.get(name) == "receptacle"]
        objects = [name for name in known if kinds.get(name) == "object"]
        where = _pairs(facts, "receptacleatlocation")
        lost = [name for name in rooms if name not in where]
        nameless = [name for name in (*rooms, *objects) if name not in names]
        if lost or nameless:
            what = f"receptacle {lost[0]!r} stands nowhere" if lost else f"the id {nameless[0]!r} has no '_bar_' in it"
            raise UsageError(f"{what}; the file is damaged or made by other rules")
        stands = [where[name] for name in rooms]
        spots = {spot: index for index, spot in enumerate(dict.fromkeys(stands))}
        places = [{name: index for index, name in enumerate(group)} for group in (rooms, objects)]
        return cls(names, places[0], places[1], stands, spots)


def _facts(
    world: _World, facts: dict[str, list[tuple[str, ...]]], inside: tuple[tuple[int, int], ...], split: str
) -> Facts:
    rooms, objects, spots = world.rooms, world.objects, world.spots
    types, classes = _pairs(facts, "receptacletype"), _pairs(facts, "objecttype")
    agent_at = facts["atlocation"][0][1] if facts["atlocation"] else ""
    return Facts(
        openable=tuple(sorted(rooms[r] for (r,) in facts["openable"])),
        opened=tuple(sorted(rooms[r] for (r,) in facts["opened"])),
        accepts=tuple(sorted((_class(r), _class(o)) for r, o in facts["cancontain"])),
        traits=tuple((trait, tuple(sorted(objects[o] for (o,) in facts[trait]))) for trait in Game.TRAITS),
        inside=inside,
        lies=tuple(sorted((objects[o], spots[spot]) for o, spot in facts["objectatlocation"] if spot in spots)),
        classes=(tuple(_class(types.get(r, "")) for r in rooms), tuple(_class(classes.get(o, "")) for o in objects)),
        start=spots.get(agent_at, len(spots)),
        nested=tuple(sorted((objects[inner], objects[outer]) for inner, outer in facts["inreceptacleobject"])),
        held=next((objects[o] for _, o in facts["holds"]), -1),
        split=split,
    )


def _pairs(facts: dict[str, list[tuple[str, ...]]], name: str) -> dict[str, str]:
    return {row[0]: row[1] for row in facts[name]}


def _class(kind: str) -> str:
    return kind.removesuffix("type")


def _names(ids: Sequence[str]) -> dict[str, str]:
    """Number things within their class as ALFWorld does: the last id in alphabetical order is number 1."""
    classes = {one: one.split("_bar_", 1)[0] + ("basin" if "basin" in one else "") for one in ids if "_bar_" in one}
    left = Counter(classes.values())
    names = {}
    for one, kind in classes.items():
        names[one] = f"{kind} {left[kind]}"
        left[kind] -= 1
    return names


# ---- PDDL -------------------------------------------------------------------------------------------------------


def _sections(problem: str) -> dict[str, list[Any]]:
    """Return the sections ``objects``, ``init`` and ``goal`` of a problem."""
    text = re.sub(r";[^\n]*", "", problem).lower()
    trees = list(_trees(_TOKEN.findall(text)))
    whole = trees[0] if len(trees) == 1 and isinstance(trees[0], list) else []
    found = {
        part[0].removeprefix(":"): part[1:]
        for part in whole
        if isinstance(part, list) and part and isinstance(part[0], str)
    }
    missing = [name for name in ("objects", "init", "goal") if name not in found]
    if missing:
        raise UsageError(f"the PDDL problem has no section (:{missing[0]} ...); the file is damaged or cut off")
    return found


def _trees(tokens: Sequence[str]) -> Iterator[Tree]:
    stack: list[list[Any]] = [[]]
    for token in tokens:
        if token == "(":
            stack.append([])
        elif token != ")":
            stack[-1].append(token)
        elif len(stack) > 1:
            done = stack.pop()
            stack[-1].append(done)
        else:
            raise UsageError("the PDDL problem closes a parenthesis that it never opened")
    if len(stack) > 1:
        raise UsageError("the PDDL problem ends inside a parenthesis; the file is cut off")
    yield from stack[0]


def _typed(words: Sequence[Any]) -> dict[str, str]:
    """Return name to type of a typed list."""
    found: dict[str, str] = {}
    waiting: list[str] = []
    rest = iter(words)
    for word in rest:
        if word == "-":
            kind = str(next(rest, ""))
            found.update(dict.fromkeys(waiting, kind))
            waiting = []
        else:
            waiting.append(str(word))
    return found


def _by_name(init: Sequence[Any]) -> dict[str, list[tuple[str, ...]]]:
    found: dict[str, list[tuple[str, ...]]] = defaultdict(list)
    for fact in init:
        if isinstance(fact, list) and fact and all(isinstance(word, str) for word in fact) and fact[0] != "=":
            row = tuple(fact[1:])
            if row not in found[fact[0]]:
                found[fact[0]].append(row)
    return found


def _goal(goal: Sequence[Any]) -> tuple[str, str, str]:
    """Return task, wanted class and place (or lamp) of a goal."""
    atoms = list(_atoms(list(goal)))
    predicates = " ".join(sorted(atom[0] for atom in atoms))
    task = _TASKS.get(predicates)
    if task is None:
        raise UsageError(
            f"the goal is none of the six tasks that this world has ({', '.join(_GOALS)}): it is made of "
            f"{predicates or 'nothing'}"
        )
    things = [_class(atom[2]) for atom in atoms if atom[0] == "objecttype"]
    if task != "light":
        return task, things[0], next(_class(atom[2]) for atom in atoms if atom[0] == "receptacletype")
    held = next(atom[2] for atom in atoms if atom[0] == "holds")
    target = next(_class(atom[2]) for atom in atoms if atom[0] == "objecttype" and atom[1] == held)
    lit = next(atom[1] for atom in atoms if atom[0] == "istoggled")
    return task, target, next(_class(atom[2]) for atom in atoms if atom[0] == "objecttype" and atom[1] == lit)


def _atoms(tree: Tree) -> Iterator[list[str]]:
    if not isinstance(tree, list) or not tree:
        return
    if isinstance(tree[0], str) and tree[0] not in _LOGIC:
        if all(isinstance(word, str) for word in tree) and "-" not in tree:
            yield tree
        return
    for part in tree:
        yield from _atoms(part)
