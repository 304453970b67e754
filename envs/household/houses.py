"""Houses without end: rooms, receptacles, objects and a task, drawn from a seed.

A level says how many rooms, receptacles and objects there are and how much is behind doors. What a split leaves out is
decided by the content of a house alone: its layout, the pair (wanted object, where it belongs), and its size.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeVar

import numpy as np

from peira.envs.household import vocabulary as words
from peira.envs.household.instance import TASKS, Instance, kind_of
from peira.envs.household.sentences import goal_of
from peira.envs.seeding import seed_of

__all__ = ["LARGEST", "LEVELS", "ROOMS", "SPLITS", "Level", "draw", "pair_is_new", "plan_is_new", "split_of"]

ItemT = TypeVar("ItemT")


@dataclass(frozen=True, slots=True)
class Level:
    """How much there is at a level."""

    rooms: int
    receptacles: tuple[int, int]
    objects: tuple[int, int]
    doors: float
    """Share of wanted objects, and of places where they belong, that are behind a door."""
    copies: int
    """At most so many objects of the wanted class beyond those that are needed."""


LEVELS = (
    Level(1, (5, 7), (3, 5), 0.0, 0),
    Level(1, (8, 11), (6, 9), 0.2, 0),
    Level(1, (12, 18), (10, 16), 0.35, 1),
    Level(1, (18, 26), (16, 26), 0.5, 1),
    Level(2, (24, 34), (22, 34), 0.6, 2),
    Level(3, (34, 48), (30, 44), 0.7, 2),
)
"""Level 1 first; the fourth is about as large as ALFWorld's own games."""
LARGEST = 48
"""A house with more receptacles belongs to the split of larger houses."""
_LARGE = (49, 64)

ROOMS: dict[str, dict[str, tuple[int, int]]] = {
    "kitchen": {
        "fridge": (1, 1), "microwave": (1, 1), "sinkbasin": (1, 1), "countertop": (1, 3), "cabinet": (0, 16),
        "drawer": (0, 12), "stoveburner": (0, 4), "coffeemachine": (0, 1), "toaster": (0, 1), "garbagecan": (0, 1),
        "diningtable": (0, 1), "shelf": (0, 4), "sidetable": (0, 1),
    },
    "livingroom": {
        "sofa": (1, 2), "coffeetable": (1, 2), "armchair": (0, 3), "sidetable": (0, 3), "drawer": (0, 8),
        "shelf": (0, 8), "cabinet": (0, 6), "tvstand": (0, 1), "garbagecan": (0, 1), "diningtable": (0, 1),
        "desk": (0, 1), "dresser": (0, 1), "ottoman": (0, 1), "safe": (0, 1),
    },
    "bedroom": {
        "bed": (1, 2), "desk": (1, 1), "dresser": (0, 1), "drawer": (0, 10), "sidetable": (0, 3), "shelf": (0, 8),
        "garbagecan": (0, 1), "laundryhamper": (0, 1), "safe": (0, 1), "armchair": (0, 2), "ottoman": (0, 1),
        "cabinet": (0, 4),
    },
    "bathroom": {
        "toilet": (1, 1), "sinkbasin": (1, 2), "countertop": (1, 1), "cabinet": (0, 8), "drawer": (0, 6),
        "bathtubbasin": (0, 1), "shelf": (0, 4), "garbagecan": (0, 1), "towelholder": (0, 2),
        "handtowelholder": (0, 2), "toiletpaperhanger": (0, 1), "cart": (0, 1),
    },
}  # fmt: skip
"""Room to its receptacle classes, each with the least and the greatest number."""

_FOR = {
    "place": ("kitchen", "livingroom", "bedroom", "bathroom"),
    "light": ("livingroom", "bedroom"),
    "clean": ("kitchen", "bathroom"),
    "heat": ("kitchen",),
    "cool": ("kitchen",),
    "two": ("kitchen", "livingroom", "bedroom", "bathroom"),
}
_NEEDED = {"clean": (words.CLEANABLE, "sinkbasin"), "heat": (words.HEATABLE, "microwave"),
           "cool": (words.COOLABLE, "fridge")}  # fmt: skip
_LAMP_STANDS = ("desk", "sidetable", "coffeetable", "dresser", "shelf")
_STACKED = frozenset({"cabinet", "drawer", "shelf", "stoveburner"})
"""Receptacles that may be reached from the spot of the one before."""
_STACKING = 0.2
_PAIRS_TRIED = 12
"""Tasks tried in one house before another is drawn."""
SPLITS = ("train", "test", "pairs", "plans", "large")
"""Seen in training; tasks in houses that are kept back; unseen pairs (object, place), unseen layouts, larger houses."""
_THINGS = {
    room: tuple(sorted({
        thing for kind in kinds for thing in words.ACCEPTS[kind] if not thing.endswith("sliced")
    }))
    for room, kinds in ROOMS.items()
}  # fmt: skip
_KITCHEN_ONLY = words.HEATABLE | words.SLICEABLE | frozenset(
    ("butterknife", "dishsponge", "fork", "kettle", "knife", "ladle", "pan", "peppershaker", "pot", "saltshaker",
     "spatula", "spoon", "winebottle")
)  # fmt: skip
"""Things that lie about in kitchens only, whatever the tables would allow."""
_NOT_IN_KITCHENS = frozenset(
    ("alarmclock", "baseballbat", "basketball", "candle", "cloth", "handtowel", "keychain", "laptop", "pillow",
     "plunger", "remotecontrol", "soapbar", "tennisracket", "tissuebox", "toiletpaper", "toiletpaperroll", "towel")
)  # fmt: skip


class Dice:
    """Random numbers one at a time, drawn from the generator by the hundred."""

    __slots__ = ("_generator", "_next")

    def __init__(self, generator: np.random.Generator) -> None:
        self._generator = generator
        self._next: list[float] = []

    def chance(self) -> float:
        """Return a number in [0, 1)."""
        if not self._next:
            self._next = self._generator.random(160).tolist()
        return self._next.pop()

    def below(self, n: int) -> int:
        """Return a whole number in [0, n)."""
        return int(self.chance() * n)

    def within(self, low: int, high: int) -> int:
        """Return a whole number in [low, high]."""
        return low + int(self.chance() * (high - low + 1))

    def choose(self, items: Sequence[ItemT]) -> ItemT:
        """Return one of some items."""
        return items[int(self.chance() * len(items))]


# ---- what splits leave out --------------------------------------------------------------------------------------


@lru_cache(maxsize=1 << 14)
def pair_is_new(target: str, place: str) -> bool:
    """Return whether training never asks for this object at this place (one pair in six)."""
    return seed_of("household", "pair", target, place) % 6 == 0


@lru_cache(maxsize=1 << 10)
def plan_is_new(receptacles: tuple[str, ...], spots: tuple[int, ...]) -> bool:
    """Return whether training never sees this layout: what stands there, and what shares a spot (one in six)."""
    first = {spot: name for name, spot in zip(reversed(receptacles), reversed(spots), strict=True)}
    pairs = zip(receptacles, spots, strict=True)
    shared = [f"{kind_of(name)}+{kind_of(first[spot])}" for name, spot in pairs if first[spot] != name]
    return seed_of("household", "plan", *sorted(map(kind_of, receptacles)), "/", *sorted(shared)) % 6 == 0


def is_test(task: str, target: str, place: str, receptacles: tuple[str, ...], spots: tuple[int, ...]) -> bool:
    """Return whether a task in a house is kept for the test split (one in five), wherever the things are."""
    return seed_of("household", "test", task, target, place, "/".join(receptacles), *spots) % 5 == 0


def split_of(instance: Instance) -> str:
    """Return the split that a game belongs to: its size decides first, then its layout, then the wanted pair."""
    receptacles, spots = instance.receptacles, instance.spots
    if is_large(receptacles):
        return "large"
    if plan_is_new(receptacles, spots):
        return "plans"
    if pair_is_new(instance.target, instance.place):
        return "pairs"
    return "test" if is_test(instance.task, instance.target, instance.place, receptacles, spots) else "train"


def is_large(receptacles: Sequence[str]) -> bool:
    """Return whether a house is larger than any in training."""
    return len(receptacles) > LARGEST


# ---- drawing ----------------------------------------------------------------------------------------------------


def draw(generator: np.random.Generator, level: Level, split: str, tasks: Sequence[str] = TASKS) -> Instance:
    """Draw a game of a split.

    Args:
        generator: where all randomness comes from.
        level: how much there is.
        split: one of ``SPLITS``.
        tasks: the task types to choose from.
    """
    dice = Dice(generator)
    while True:
        task = dice.choose(tasks)
        receptacles, spots, rooms = _layout(dice, level, task, large=split == "large")
        if split != "large" and plan_is_new(receptacles, spots) != (split == "plans"):
            continue
        for _ in range(_PAIRS_TRIED):
            pair = _pair(dice, task, level, receptacles, rooms, new=split == "pairs")
            if pair is None:
                break
            if split not in ("train", "test") or is_test(task, *pair, receptacles, spots) == (split == "test"):
                return _furnished(dice, task, level, receptacles, spots, rooms, pair)


def _layout(
    dice: Dice, level: Level, task: str, *, large: bool
) -> tuple[tuple[str, ...], tuple[int, ...], tuple[str, ...]]:
    """Return receptacles, their spots, and the rooms."""
    main = dice.choose(_FOR[task])
    rooms = [main]
    while len(rooms) < level.rooms or (large and len(rooms) < 4):
        rooms.append(dice.choose([room for room in ROOMS if rooms.count(room) < 2]))
    count: dict[str, int] = {}
    optional: list[str] = []
    for room in rooms:
        for kind, (low, high) in ROOMS[room].items():
            count[kind] = count.get(kind, 0) + low
            optional += [kind] * (high - low)
    wanted = dice.within(*(_LARGE if large else level.receptacles))
    missing = wanted - sum(count.values())
    for _ in range(min(missing, len(optional))):
        at = dice.below(len(optional))
        count[optional[at]] += 1
        optional[at] = optional[-1]
        optional.pop()
    names: list[str] = []
    spots: list[int] = []
    for kind in sorted(count, key=lambda kind: f"{kind.removesuffix('basin')}_"):
        for number in range(count[kind], 0, -1):
            stacked = spots and kind in _STACKED and number < count[kind] and dice.chance() < _STACKING
            names.append(f"{kind} {number}")
            spots.append(spots[-1] if stacked else spots[-1] + 1 if spots else 0)
    return tuple(names), tuple(spots), tuple(rooms)


@lru_cache(maxsize=1 << 10)
def _pool(rooms: frozenset[str]) -> tuple[str, ...]:
    """Return the classes of things that lie about in some rooms."""
    found = set()
    for room in rooms:
        out = _NOT_IN_KITCHENS if room == "kitchen" else _KITCHEN_ONLY - {"bowl", "cup", "mug", "plate"}
        found |= {thing for thing in _THINGS[room] if thing not in out}
    return tuple(sorted(found))


@lru_cache(maxsize=1 << 11)
def _wishes(
    task: str, kinds: frozenset[str], pool: tuple[str, ...], new: bool, shut: bool
) -> tuple[tuple[tuple[str, str], ...], ...]:
    """Return the pairs (wanted, place) that a task could be about in a house, grouped by place.

    Only those that are ``new`` (kept back from training) or not, and whose place is behind a door (``shut``) or not.
    """
    able, appliance = _NEEDED.get(task, (None, ""))
    if appliance and appliance not in kinds:
        return ()
    places = words.LAMPS if task == "light" else kinds - {appliance}
    groups = []
    for place in sorted(place for place in places if (place in words.OPENABLE) is shut):
        fitting = pool if task == "light" else [thing for thing in pool if thing in words.ACCEPTS[place]]
        group = [
            (thing, place)
            for thing in fitting
            if (able is None or thing in able)
            and any(_fitting(thing, kinds, place, behind) for behind in (False, True))
        ]
        groups.append(tuple(pair for pair in group if pair_is_new(*pair) is new))
    return tuple(group for group in groups if group)


@lru_cache(maxsize=1 << 15)
def _fitting(thing: str, kinds: frozenset[str], but: str, shut: bool) -> tuple[str, ...]:
    """Return the receptacle classes but one in which a thing may lie, either those behind a door or the others."""
    return tuple(
        kind
        for kind in sorted(kinds)
        if kind != but and thing in words.ACCEPTS[kind] and (kind in words.OPENABLE) is shut
    )


def _pair(
    dice: Dice, task: str, level: Level, receptacles: tuple[str, ...], rooms: tuple[str, ...], *, new: bool
) -> tuple[str, str] | None:
    """Return what is wanted and where it belongs, or ``None`` when this house has no use for the task."""
    kinds = frozenset(map(kind_of, receptacles))
    if task == "light" and not kinds.intersection(_LAMP_STANDS):
        return None
    shut, pool = dice.chance() < level.doors, _pool(frozenset(rooms))
    groups = _wishes(task, kinds, pool, new, shut) or (_wishes(task, kinds, pool, new, not shut) if level.doors else ())
    return dice.choose(dice.choose(groups)) if groups else None


def _furnished(
    dice: Dice, task: str, level: Level, receptacles: tuple[str, ...], spots: tuple[int, ...], rooms: tuple[str, ...],
    pair: tuple[str, str],
) -> Instance:  # fmt: skip
    """Put things into a house."""
    target, place = pair
    at: dict[str, list[int]] = {}
    for index, name in enumerate(receptacles):
        at.setdefault(kind_of(name), []).append(index)
    kinds = frozenset(at)
    there: dict[str, list[int]] = {target: []}
    copies = (2 if task == "two" else 1) + (dice.within(0, level.copies) if level.copies else 0)
    for _ in range(copies):
        shut = dice.chance() < level.doors
        fitting = _fitting(target, kinds, place, shut) or _fitting(target, kinds, place, not shut)
        there[target].append(dice.choose([r for kind in fitting for r in at[kind]]))
    if task == "light":
        there[place] = [dice.choose([r for kind in _LAMP_STANDS for r in at.get(kind, ())])]
    pool = _pool(frozenset(rooms))
    for _ in range(max(0, dice.within(*level.objects) - copies)):
        thing = dice.choose(pool)
        if thing == target or len(there.get(thing, ())) == 3:
            continue
        shut = level.doors > 0 and dice.chance() < 0.5
        fitting = _fitting(thing, kinds, "", shut) or (_fitting(thing, kinds, "", not shut) if level.doors else ())
        if fitting:
            there.setdefault(thing, []).append(dice.choose([r for kind in fitting for r in at[kind]]))
    objects: list[str] = []
    homes: list[int] = []
    for kind in sorted(there, key=lambda kind: f"{kind}_"):
        for number in range(len(there[kind]), 0, -1):
            objects.append(f"{kind} {number}")
            homes.append(there[kind][number - 1])
    goal = goal_of(task, dice.below(2), target, place)
    return Instance(task, goal, target, place, receptacles, spots, tuple(objects), tuple(homes))
