"""The expanded action space: verbs, classes and numbers as single decisions, words between them written by the world.

``take apple 1 from countertop 2`` is the five decisions *take*, *apple*, *1*, *countertop*, *2*; what may follow is
what the admissible commands that begin like this go on with.
"""

from collections.abc import Iterable
from functools import lru_cache

from peira.envs.household import vocabulary as words
from peira.envs.household.rules import VERBS
from peira.tools.native import NativeAction

__all__ = ["LINKS", "NATIVE", "NUMBERS", "chosen_in", "follow", "split"]

NUMBERS = 48
"""The highest number of a name that is an action."""
LINKS = {"take": " from", "move": " to", "heat": " with", "clean": " with", "cool": " with", "slice": " with"}
"""What is written after the first name of a command that has two."""

NATIVE = (
    *(NativeAction(verb, verb, routing=True) for verb in VERBS),
    *(NativeAction(kind, f" {kind}") for kind in sorted({*words.RECEPTACLES, *words.OBJECTS})),
    *(NativeAction(str(number), f" {number}") for number in range(1, NUMBERS + 1)),
)
"""The same for every house, level and task."""

_BETWEEN = frozenset({"from", "to", "with"})


@lru_cache(maxsize=1 << 14)
def split(command: str) -> tuple[str, ...]:
    """Return the decisions that a command is made of."""
    if command.startswith("go to "):
        return ("go to", *command[6:].split(" "))
    return tuple(word for word in command.split(" ") if word not in _BETWEEN)


def chosen_in(pending: str) -> tuple[str, ...]:
    """Return the decisions that a state's ``pending`` holds."""
    return tuple(pending.split("|")) if pending else ()


def follow(commands: Iterable[str], chosen: tuple[str, ...]) -> tuple[str, ...]:
    """Return what may come after the decisions made so far, each once, in the order of the commands."""
    size = len(chosen)
    found = (split(command) for command in commands)
    return tuple(dict.fromkeys(one[size] for one in found if one[:size] == chosen and len(one) > size))
