"""Games as files may hold them and as no generator here makes them: each quirk rewrites the lines of a PDDL problem."""

from collections.abc import Callable

Lines = list[str]


def _rooms(lines: Lines, kind: str) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("(receptacleType") and f" {kind}Type)" in line]


def _things(lines: Lines) -> list[str]:
    return [line.split()[1] for line in lines if line.startswith("(objectType")]


def _without(lines: Lines, *starts: str) -> Lines:
    return [line for line in lines if not line.startswith(starts)]


def _with(lines: Lines, *facts: str) -> Lines:
    at = lines.index("(:init") + 1
    return [*lines[:at], *facts, *lines[at:]]


def no_doors(lines: Lines) -> Lines:
    """No drawer or cabinet has a door."""
    return [line for line in lines if not (line.startswith("(openable") and ("drawer" in line or "cabinet" in line))]


def all_open(lines: Lines) -> Lines:
    """Every door is open at first."""
    return _with(lines, *(line.replace("(openable", "(opened") for line in lines if line.startswith("(openable")))


def nested(lines: Lines) -> Lines:
    """Things are in containers."""
    outer = [line.split()[1].rstrip(")") for line in lines if line.startswith("(isreceptacleobject")][:1]
    inner = [thing for thing in _things(lines) if thing not in outer][:3]
    return _with(lines, *(f"(inReceptacleObject {thing} {one})" for one in outer for thing in inner))


def at_a_place(lines: Lines) -> Lines:
    """The agent stands at a receptacle at first."""
    spot = next(line.split()[2].rstrip(")") for line in lines if line.startswith("(receptacleAtLocation"))
    return _with(_without(lines, "(atLocation"), f"(atLocation agent1 {spot})")


def in_hand(lines: Lines) -> Lines:
    """Something is in the agent's hands at first."""
    thing = _things(lines)[0]
    lines = _without(lines, f"(objectAtLocation {thing} ")
    lines = [line for line in lines if not line.startswith(f"(inReceptacle {thing} ")]
    return _with(lines, f"(holds agent1 {thing})", "(holdsAny agent1)")


def in_two_places(lines: Lines) -> Lines:
    """Things are in two receptacles at once."""
    rooms = [line.split()[1] for line in lines if line.startswith("(receptacleType")]
    facts = [line for line in lines if line.startswith("(inReceptacle ")][:4]
    return _with(lines, *(f"(inReceptacle {fact.split()[1]} {room})" for fact, room in zip(facts, rooms, strict=False)))


def on_the_floor(lines: Lines) -> Lines:
    """Things lie at a spot and are in nothing."""
    for thing in _things(lines)[::3]:
        lines = [line for line in lines if not line.startswith(f"(inReceptacle {thing} ")]
    return lines


def used_before(lines: Lines) -> Lines:
    """Things are hot, clean, sliced and switched on at first, and lamps can be carried."""
    things = _things(lines)
    lamps = [line.split()[1].rstrip(")") for line in lines if line.startswith("(toggleable")]
    facts = [
        f"({trait} {thing})" for trait, thing in zip(("ishot", "isclean", "iscool", "issliced"), things, strict=False)
    ]
    return _with(lines, *facts, *(f"({trait} {lamp})" for lamp in lamps for trait in ("istoggled", "pickupable")))


def won_before(lines: Lines) -> Lines:
    """Everything is in the last receptacle of each class that accepts it, so that most goals hold at once."""
    kinds = {line.split()[1]: line.split()[2].rstrip(")") for line in lines if line.startswith("(receptacleType")}
    accepts = {tuple(line.rstrip(")").split()[1:]) for line in lines if line.startswith("(canContain")}
    facts = []
    for line in lines:
        if line.startswith("(objectType"):
            thing, kind = line.rstrip(")").split()[1:]
            facts += [f"(inReceptacle {thing} {room})" for room, one in kinds.items() if (one, kind) in accepts]
    return _with(_without(lines, "(inReceptacle "), *facts)


def real_looking_ids(lines: Lines) -> Lines:
    """Ids with signs and coordinates, in another order than that of the names here."""
    text = "\n".join(lines)
    for number in range(100):
        sign = "minus" if number % 3 else "plus"
        text = text.replace(f"_bar__plus_00_dot_{number:02d}_", f"_bar__{sign}_{number * 7 % 10:02d}_dot_{number:02d}_")
    return text.split("\n")


QUIRKS: dict[str, Callable[[Lines], Lines]] = {
    one.__name__: one
    for one in (
        *(no_doors, all_open, nested, at_a_place, in_hand, in_two_places, on_the_floor, used_before, won_before),
        real_looking_ids,
    )
}


def rewritten(problem: str, quirk: str) -> str:
    """Return a PDDL problem with a quirk."""
    lines = QUIRKS[quirk](problem.split("\n"))
    assert lines != problem.split("\n"), f"{quirk} changed nothing"
    return "\n".join(lines)
