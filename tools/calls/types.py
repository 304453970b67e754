"""What a message holds: calls, and what went wrong with things that should have been calls. And what a format is."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

__all__ = ["CUT_OFF", "Call", "Format", "Item", "Parsed", "Problem"]

CUT_OFF = "Your message was cut off by the length limit, so nothing in it was carried out. Be shorter."
"""What the model reads after a turn that its length limit ended."""


@dataclass(frozen=True, slots=True)
class Call:
    """A call as the model wrote it; whether the name exists and the arguments fit is the toolbox's to say."""

    name: str
    arguments: Mapping[str, Any]
    id: str | None = None
    """The id the model gave, untouched; ``None`` if it gave none."""
    at: int = 0
    """Where it begins in the text."""

    def shifted(self, by: int) -> "Call":
        """Return it with its place moved."""
        return replace(self, at=self.at + by)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something that should have been a call and is none. It is never carried out."""

    kind: str
    """``bad_json``, ``not_an_object``, ``missing_name``, ``bad_arguments``, ``empty``, ``extra_data``, ``unclosed``,
    ``bad_syntax``, ``unclosed_reasoning`` or ``cut_off``; to be counted by."""
    text: str
    """What the model reads."""
    at: int = 0
    """Where it begins in the text."""

    def shifted(self, by: int) -> "Problem":
        """Return it with its place moved."""
        return replace(self, at=self.at + by)


Item = Call | Problem


@dataclass(frozen=True, slots=True)
class Parsed:
    """A model's message, taken apart."""

    reasoning: str
    text: str
    """What is left for a reader: no reasoning, no calls."""
    calls: tuple[Call, ...]
    problems: tuple[Problem, ...]
    truncated: bool = False
    """The message was cut off; there are no calls then."""

    @property
    def items(self) -> tuple[Item, ...]:
        """Calls and problems in the order in which they were written."""
        return tuple(sorted((*self.calls, *self.problems), key=lambda item: item.at))


@dataclass(frozen=True, slots=True)
class Format:
    """How a family of models writes calls. Each format is one file that ends in such a constant.

    The contract, which tests hold for every format: ``read`` never raises and never guesses; a second of work reads
    a megabyte; ``read(write(calls))`` gives the calls again.
    """

    name: str
    example: str
    """How a call is written, for people and for models."""
    read: Callable[[str, tuple[str, ...]], tuple[str, list[Item]]]
    """From a message without reasoning (and the verbs that are tags) to the text that is no call, and what was found,
    in order, each with its place."""
    write: Callable[[Sequence[Call]], str]
    """The text that a model writes to make these calls; ``ValueError`` where a value cannot be written. Whether the
    text says what it should is seen by reading it again: see ``peira.tools.calls.write``."""
    opener: str = ""
    """Regular expression of where a call may begin; what ``unit`` says is asked there. Empty: never."""
    unit: Callable[[str, int], int | None] | None = None
    """Where the well-formed call that begins at an opener ends, or ``None``: inside it, marks of reasoning are text."""
    whole: bool = False
    """A message is read in one piece, what stands around reasoning joined; otherwise no call reaches across it."""
