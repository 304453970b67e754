"""What a household game is: its frozen instance, the state that play changes, and all that follows from the instance.

Sets of objects, receptacles and pairs are integers, bit by bit, so a state is a tuple of numbers: a snapshot is a
reference, a fork costs nothing, and two equal states are equal whatever led to them.
"""

from collections.abc import Collection, Iterable, Iterator
from dataclasses import dataclass
from typing import NamedTuple

from peira.envs.household import vocabulary as words

__all__ = ["TASKS", "Facts", "Game", "Instance", "State", "bits", "kind_of"]

TASKS = ("place", "light", "clean", "heat", "cool", "two")
"""The six task types: pick & place, examine in light, clean / heat / cool & place, pick two & place."""


def kind_of(name: str) -> str:
    """Return the class of a numbered name: ``cabinet`` of ``cabinet 3``."""
    return name.rpartition(" ")[0]


def bits(mask: int) -> Iterator[int]:
    """Yield the places of the ones of a number, lowest first."""
    while mask:
        low = mask & -mask
        yield low.bit_length() - 1
        mask ^= low


@dataclass(frozen=True, slots=True)
class Facts:
    """What a game file says beyond its names; a generated game has none, as the class tables say it all."""

    openable: tuple[int, ...]
    """Receptacles with a door."""
    opened: tuple[int, ...]
    """Those that are open at first."""
    accepts: tuple[tuple[str, str], ...]
    """Pairs (receptacle class, object class)."""
    traits: tuple[tuple[str, tuple[int, ...]], ...]
    """Trait to the objects that have it at first, in the order of ``Game.TRAITS``."""
    inside: tuple[tuple[int, int], ...]
    """Pairs (object, receptacle)."""
    lies: tuple[tuple[int, int], ...]
    """Pairs (object, spot)."""
    classes: tuple[tuple[str, ...], tuple[str, ...]]
    """Classes of the receptacles and of the objects, as the file types them."""
    start: int
    """The spot where the agent stands at first; one past the last receptacle's when nothing stands there."""
    nested: tuple[tuple[int, int], ...] = ()
    """Pairs (object, object that it is in). Nothing changes them; they are seen in the outer one."""
    held: int = -1
    """The object in the agent's hands at first."""
    split: str = ""
    """The split that the file's folder says it belongs to."""


@dataclass(frozen=True, slots=True)
class Instance:
    """One game."""

    task: str
    """One of ``TASKS``."""
    goal: str
    """The goal as it is told, without its full stop."""
    target: str
    """The class of object that is wanted."""
    place: str
    """The class of receptacle where it belongs; task *light*: the class of lamp."""
    receptacles: tuple[str, ...]
    """Names, in the order in which the world lists them."""
    spots: tuple[int, ...]
    """Where one stands to reach each receptacle; several may share a spot."""
    objects: tuple[str, ...]
    """Names, in the order in which the world lists them."""
    homes: tuple[int, ...]
    """The receptacle in which each object is at first (the first of them in a game file's; -1: none)."""
    facts: Facts | None = None
    """Only in games that were read from a file."""


class State(NamedTuple):
    """Everything that changes during an episode. Immutable."""

    at: int
    """The spot where the agent stands."""
    held: int
    """The object in its hands, or -1."""
    opened: int
    """Receptacles that are open."""
    inside: int
    """Bit ``receptacle * objects + object``: the object is in the receptacle."""
    lies: int
    """Bit ``spot * objects + object``: the object lies at the spot. Follows from ``inside`` in every sound game."""
    left: int
    """Bit ``object * receptacles + receptacle``: taken from there and not put back, as far as it can still be seen."""
    hot: int
    cool: int
    clean: int
    sliced: int
    used: int
    """Lamps that have been switched on; there is no way back."""
    pending: str = ""
    """Expanded actions: the part of a command chosen so far."""
    seen: int = 0
    """Receptacles looked into. A notebook for scripted players; it is no part of the state's key."""


class Game:
    """What follows from an instance alone, worked out once."""

    TRAITS = (
        *("pickupable", "isreceptacleobject", "cleanable", "heatable", "coolable", "toggleable", "sliceable"),
        *("isclean", "ishot", "iscool", "issliced", "istoggled"),
    )
    """Traits of objects, under the names that the real engine's rules give them."""

    __slots__ = ("_accepts", "_all_goes", "_goes", "_positions", "_things", "classes", "container", "deciding",
                 "goal_place", "goal_target", "here", "instance", "kinds", "knives", "lamps", "movable", "n", "names",
                 "objects", "openable", "receptacles", "regular", "role", "row", "serving", "shared", "shown",
                 "solved", "spots", "start", "traits")  # fmt: skip

    def __init__(self, instance: Instance) -> None:
        self.instance = instance
        self.names, self.n = instance.objects, len(instance.objects)
        """``n``: how many objects there are; ``names``: theirs."""
        self.row = (1 << self.n) - 1
        self.receptacles = {name: index for index, name in enumerate(instance.receptacles)}
        self.objects = {name: index for index, name in enumerate(instance.objects)}
        self.spots = instance.spots
        facts = instance.facts
        if facts is None:
            self.kinds = tuple(map(kind_of, instance.receptacles))
            self.classes = tuple(map(kind_of, instance.objects))
        else:
            self.kinds, self.classes = facts.classes
        places = max(instance.spots, default=-1) + 1
        here: list[tuple[int, ...]] = [()] * (places + 1)
        for index, spot in enumerate(instance.spots):
            here[spot] = (*here[spot], index)
        self.here = tuple(here)
        """``here``: the receptacles at each spot; none at the last."""
        self.shared = sum(1 << r for group in here if len(group) > 1 for r in group)
        rooms, self._things = _by_class(self.kinds), _by_class(self.classes)
        self.openable = _union(rooms, words.OPENABLE) if facts is None else _mask(facts.openable)
        self.traits = self._traits()
        self.movable, self.container = self.traits["pickupable"], self.traits["isreceptacleobject"]
        self.lamps = self.traits["toggleable"]
        self.knives = _union(self._things, words.KNIVES)
        self.role = {trait: rooms.get(kind, 0) for trait, kind in _APPLIANCES}
        self.serving = _mask(spot for r, spot in enumerate(self.spots) if sum(self.role.values()) >> r & 1)
        """``serving``: the spots where an appliance stands; ``deciding``: the verbs after which the goal may hold."""
        self.deciding = _DECIDING.get(instance.task, _PLACING)
        self.goal_target = self._things.get(instance.target, 0)
        self.goal_place = (self._things if instance.task == "light" else rooms).get(instance.place, 0)
        self._accepts: dict[str, int] = {}
        self._goes: dict[int, tuple[str, ...]] = {}
        self._all_goes: tuple[str, ...] = ()
        self._positions: dict[int, tuple[int, ...]] = {}
        self.shown: dict[int, str] = {}
        """``shown``: what receptacles with certain contents look like, as far as it has been said."""
        self.start = self._begin(places)
        self.solved = False
        """``solved``: the goal holds from the start; whoever makes the game sets it."""
        self.regular = facts is None or self._is_regular()
        """``regular``: every object is in one receptacle and lies where that stands."""

    def _traits(self) -> dict[str, int]:
        facts = self.instance.facts
        if facts is not None:
            return {trait: _mask(objects) for trait, objects in facts.traits}
        traits = dict.fromkeys(self.TRAITS, 0)
        for kind, mask in self._things.items():
            for trait in _TRAITS_OF[kind]:
                traits[trait] |= mask
        return traits

    def _begin(self, places: int) -> State:
        facts, n, homes = self.instance.facts, self.n, self.instance.homes
        if facts is None:
            inside = sum(1 << (home * n + o) for o, home in enumerate(homes))
            lies = sum(1 << (self.spots[home] * n + o) for o, home in enumerate(homes))
            return State(places, -1, 0, inside, lies, 0, 0, 0, 0, 0, 0)
        inside = _mask(r * n + o for o, r in facts.inside)
        lies = _mask(spot * n + o for o, spot in facts.lies)
        traits = self.traits
        return State(
            facts.start, facts.held, _mask(facts.opened), inside, lies, 0, traits["ishot"], traits["iscool"],
            traits["isclean"], traits["issliced"], traits["istoggled"],
        )  # fmt: skip

    def _is_regular(self) -> bool:
        facts = self.instance.facts
        assert facts is not None
        homes = dict(facts.inside)
        where = {(o, self.spots[r]) for o, r in facts.inside}
        return len(homes) == len(facts.inside) == self.n and where == set(facts.lies)

    def accepts(self, receptacle: int) -> int:
        """Return the objects that may be moved to a receptacle."""
        kind = self.kinds[receptacle]
        found = self._accepts.get(kind)
        if found is None:
            facts = self.instance.facts
            allowed = words.ACCEPTS[kind] if facts is None else {o for r, o in facts.accepts if r == kind}
            found = self._accepts[kind] = _union(self._things, allowed)
        return found

    def goes(self, spot: int) -> tuple[str, ...]:
        """Return the commands that lead away from a spot, in alphabetical order."""
        found = self._goes.get(spot)
        if found is None:
            if not self._all_goes:
                names = [f"go to {name}" for name in self.instance.receptacles]
                order = sorted(zip(names, self.spots, strict=True))
                self._all_goes = tuple([command for command, _ in order])
                for at, (_, there) in enumerate(order):
                    self._positions[there] = (*self._positions.get(there, ()), at)
            found = self._all_goes
            for at in reversed(self._positions.get(spot, ())):
                found = found[:at] + found[at + 1 :]
            self._goes[spot] = found
        return found

    def nested(self, outer: int) -> list[int]:
        """Return the objects in a container."""
        facts = self.instance.facts
        return [] if facts is None else sorted(inner for inner, other in facts.nested if other == outer)

    def contents(self, state: State, receptacle: int) -> int:
        """Return the objects in a receptacle, seen or not."""
        return state.inside >> (receptacle * self.n) & self.row


_APPLIANCES = (("heatable", "microwave"), ("coolable", "fridge"), ("cleanable", "sinkbasin"))
_PLACING = frozenset({"move"})
_DECIDING = {"light": frozenset({"go", "take", "use"})}
_SETS = {
    "pickupable": frozenset(words.OBJECTS) - words.LAMPS,
    "isreceptacleobject": words.CONTAINERS,
    "cleanable": words.CLEANABLE,
    "heatable": words.HEATABLE,
    "coolable": words.COOLABLE,
    "toggleable": words.TOGGLEABLE,
    "sliceable": words.SLICEABLE,
}
_TRAITS_OF = {kind: tuple(trait for trait, members in _SETS.items() if kind in members) for kind in words.OBJECTS}


def _mask(places: Iterable[int]) -> int:
    mask = 0
    for place in places:
        mask |= 1 << place
    return mask


def _by_class(classes: tuple[str, ...]) -> dict[str, int]:
    """Return the places of each class."""
    found: dict[str, int] = {}
    bit = 1
    for kind in classes:
        found[kind] = found.get(kind, 0) | bit
        bit <<= 1
    return found


def _union(masks: dict[str, int], kinds: Collection[str]) -> int:
    """Return the places of all of some classes."""
    union = 0
    for kind, mask in masks.items():
        if kind in kinds:
            union |= mask
    return union
