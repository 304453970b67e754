"""Python-style calls: the whole message is a list, ``[note(text='a, b', n=2), web-search(q="x")]``.

Read by a small parser: names with dots and dashes, keyword arguments only, values that are strings, numbers,
lists, tuples, dicts, and true / false / none in either spelling. Nothing is ever handed to Python.
"""

import re
from collections.abc import Sequence
from math import isfinite
from typing import Any

from peira.tools.calls.types import Call, Format, Item, Problem
from peira.tools.calls.values import write_json

__all__ = ["FORMAT"]

_EXAMPLE = "Write [name(key=value), ...] and nothing else."
_OPENER = r"\[\s{0,100}[A-Za-z_][\w.-]{0,100}\s{0,4}\("
_START = re.compile(r"\s{0,100}\[\s{0,100}[A-Za-z_][\w.-]{0,100}\s{0,4}\(")
_SPACE = re.compile(r"\s*")
_NAME = re.compile(r"[A-Za-z_][\w.-]*")
_KEY = re.compile(r"[A-Za-z_]\w*")
_NUMBER = re.compile(r"[+-]?(?:\d+\.?\d*|\.\d+)(?:[eE][+-]?\d+)?", re.ASCII)
_WORDS = {"True": True, "False": False, "None": None, "true": True, "false": False, "null": None}
_STRINGS = {  # group 1 in three quotes, group 2 in one
    quote: re.compile(rf"{quote * 3}((?:[^\\]|\\.)*?){quote * 3}|{quote}((?:[^{quote}\\]|\\.)*){quote}", re.DOTALL)
    for quote in ("'", '"')
}
_ESCAPE = re.compile(r"\\(?:x([0-9a-fA-F]{2})|u([0-9a-fA-F]{4})|U00(0[0-9a-fA-F]{5}|10[0-9a-fA-F]{4})|(.))", re.DOTALL)
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "b": "\b", "f": "\f", "0": "\0", "\n": ""}
_MAX_DEPTH = 50
_MAX_DIGITS = 400


def _calls(text: str, verbs: tuple[str, ...]) -> tuple[str, list[Item]]:
    del verbs
    if not _START.match(text):
        return text, []
    before = len(text) - len(text.lstrip())
    try:
        reader = _Reader(text.strip())
        found = reader.calls()
        if reader.at < len(reader.text):
            raise ValueError(f"text follows the list at character {reader.at}")
    except ValueError as error:
        said = f"The calls could not be read and none was run: {error}. {_EXAMPLE}"
        return "", [Problem("bad_syntax", said, before)]
    return "", [call.shifted(before) for call in found]


def _unit(text: str, at: int) -> int | None:
    reader = _Reader(text, at)
    try:
        reader.calls()
    except ValueError:
        return None
    return reader.at


def _write(calls: Sequence[Call]) -> str:
    return f"[{', '.join(map(_written, calls))}]" if calls else ""


def _written(call: Call) -> str:
    if call.id is not None:
        raise ValueError("the format has no place for an id")
    return f"{call.name}({', '.join(f'{key}={_literal(value)}' for key, value in call.arguments.items())})"


def _literal(value: Any) -> str:
    write_json(value)  # what is not JSON has no literal here either
    return repr(value)


class _Reader:
    """Recursive descent over the text; every error is a ``ValueError`` that names the place."""

    def __init__(self, text: str, at: int = 0) -> None:
        self.text = text
        self.at = at

    def calls(self) -> list[Call]:
        self.need("[")
        found = [self.call()]
        while self.take(","):
            found.append(self.call())
        self.need("]")
        return found

    def call(self) -> Call:
        start = self.at
        name = self.match(_NAME, "a tool's name")
        self.need("(")
        arguments: dict[str, Any] = {}
        while not self.take(")"):
            if arguments:
                self.need(",")
                if self.take(")"):
                    break
            key = self.match(_KEY, "an argument as key=value")
            self.need("=")
            if key in arguments:
                raise ValueError(f"{key} is given twice")
            arguments[key] = self.value(0)
        return Call(name, arguments, None, start)

    def value(self, depth: int) -> Any:
        if depth > _MAX_DEPTH:
            raise ValueError("nested too deeply")
        first = self.text[self.at : self.at + 1]
        if first in ("'", '"'):
            return self.string(first)
        if self.take("["):
            return self.items("]", depth)
        if self.take("("):
            return self.items(")", depth)
        if self.take("{"):
            return self.pairs(depth)
        if number := _NUMBER.match(self.text, self.at):
            return self.number(number.group())
        word = self.match(_KEY, "a value")
        if word not in _WORDS:
            raise ValueError(f"{word[:20]!r} is no value; put text in quotes")
        return _WORDS[word]

    def number(self, text: str) -> int | float:
        if len(text) > _MAX_DIGITS:
            raise ValueError("a number is too long")
        self.at += len(text)
        self.space()
        value = float(text) if any(mark in text for mark in ".eE") else int(text)
        if not isfinite(value):
            raise ValueError("a number is too large")
        return value

    def items(self, closing: str, depth: int) -> list[Any]:
        found: list[Any] = []
        while not self.take(closing):
            if found:
                self.need(",")
                if self.take(closing):
                    break
            found.append(self.value(depth + 1))
        return found

    def pairs(self, depth: int) -> dict[str, Any]:
        found: dict[str, Any] = {}
        while not self.take("}"):
            if found:
                self.need(",")
                if self.take("}"):
                    break
            key = self.value(depth + 1)
            if not isinstance(key, str):
                raise ValueError("a key of a dict is text in quotes")
            if key in found:
                raise ValueError(f"the key {key[:20]!r} stands twice")
            self.need(":")
            found[key] = self.value(depth + 1)
        return found

    def string(self, quote: str) -> str:
        found = _STRINGS[quote].match(self.text, self.at)
        if found is None:
            raise ValueError(f"a string is not closed, from character {self.at}")
        self.at = found.end()
        self.space()
        return _ESCAPE.sub(_unescape, found[1] if found[2] is None else found[2])

    def space(self) -> None:
        match = _SPACE.match(self.text, self.at)
        self.at = match.end() if match else self.at

    def take(self, mark: str) -> bool:
        if not self.text.startswith(mark, self.at):
            return False
        self.at += len(mark)
        self.space()
        return True

    def need(self, mark: str) -> None:
        if not self.take(mark):
            raise ValueError(f"{mark!r} is missing at character {self.at}")

    def match(self, pattern: re.Pattern[str], what: str) -> str:
        found = pattern.match(self.text, self.at)
        if found is None:
            raise ValueError(f"{what} is missing at character {self.at}")
        self.at = found.end()
        self.space()
        return found.group()


def _unescape(match: re.Match[str]) -> str:
    code = match[1] or match[2] or match[3]
    if code:
        return chr(int(code, 16))
    return _ESCAPES.get(match[4], match[4] if match[4] in "\\'\"" else match.group())


FORMAT = Format("pythonic", _EXAMPLE, _calls, _write, opener=_OPENER, unit=_unit, whole=True)
