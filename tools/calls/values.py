"""JSON as models write it: one strict reader, and the call that a JSON object is.

Strict means: one value, no key twice, no NaN, no number that would not come back as it was. Line breaks inside strings
are let through, since only one reading of them is possible. Brackets inside strings are text, because a JSON reader
reads them.
"""

import json
import re
from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from peira.tools.calls.types import Call, Problem

__all__ = ["after_space", "call_from", "json_of", "kind_of", "object_of", "read_json", "write_json"]

_SPACE = re.compile(r"[ \t\r\n]*")
_DEPTH = "nested too deeply"
_MAX_DIGITS = 400


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a key stands twice in one object")
    return found


def _constant(name: str) -> Any:
    raise ValueError(f"{name} is not JSON")


def _int(text: str) -> int:
    if len(text) > _MAX_DIGITS:
        raise ValueError("a number is too long")
    return int(text)


def _float(text: str) -> float:
    value = float(text)
    if not isfinite(value):
        raise ValueError("a number is too large")
    return value


_READER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_int, parse_float=_float, parse_constant=_constant, strict=False
)


def after_space(text: str, at: int) -> int:
    """Return the place of the first character from ``at`` on that is no white space."""
    match = _SPACE.match(text, at)
    return match.end() if match else at


def read_json(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value that begins at ``at``, and where it ends.

    Raises:
        ValueError: there is none; the text says why, and where for a syntax error.
    """
    try:
        return _READER.raw_decode(text, after_space(text, at))
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos - at}") from None
    except RecursionError:
        raise ValueError(_DEPTH) from None


def write_json(value: Any) -> str:
    """Return the JSON text of a value, as chat templates write it: spaces after marks, letters as they are.

    Raises:
        ValueError: the value is not JSON.
    """
    try:
        return json.dumps(value, ensure_ascii=False, allow_nan=False)
    except (TypeError, RecursionError) as error:
        raise ValueError(str(error)) from None


def call_from(value: Any, example: str, keys: Sequence[str] = ("arguments",)) -> Call | Problem:
    """Return the call that a JSON value is: an object with a ``name`` and arguments, under one of ``keys``."""
    if not isinstance(value, dict):
        return Problem("not_an_object", f"A tool call is one JSON object, not {kind_of(value)}. {example}")
    name, given = value.get("name"), value.get("id")
    if not isinstance(name, str) or not name:
        return Problem("missing_name", f'The tool call has no "name" and was not run. {example}')
    there = [key for key in keys if key in value]
    if len(there) != 1:
        wrong = f'"{keys[0]}" is missing; write {{}} if there are none' if not there else f"{there} say it twice"
        return Problem("bad_arguments", f"{name}: {wrong}. {example}")
    arguments = object_of(name, there[0], value[there[0]])
    if isinstance(arguments, Problem):
        return arguments
    return Call(name, arguments, given if isinstance(given, str) and given else None)


def json_of(call: Call, key: str = "arguments") -> dict[str, Any]:
    """Return the JSON object that a call is written as."""
    return {**({} if call.id is None else {"id": call.id}), "name": call.name, key: dict(call.arguments)}


def object_of(name: str, key: str, arguments: Any) -> Mapping[str, Any] | Problem:
    """Return a call's arguments: an object, or the text of one, which is decoded once."""
    if isinstance(arguments, str):
        text = arguments
        try:
            arguments, end = read_json(text, 0)
        except ValueError as error:
            return Problem("bad_arguments", f'{name}: "{key}" is not valid JSON and was not run: {error}.')
        if text[end:].strip():
            return Problem("extra_data", f'{name}: text follows the object in "{key}". It was not run.')
    if not isinstance(arguments, dict):
        return Problem("bad_arguments", f'{name}: "{key}" is a JSON object, not {kind_of(arguments)}.')
    return arguments


def kind_of(value: Any) -> str:
    """Return what a JSON value is, in words."""
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    kinds: tuple[tuple[type, str], ...] = ((list, "an array"), (str, "a string"), (dict, "an object"))
    return next((kind for known, kind in kinds if isinstance(value, known)), "a number")
