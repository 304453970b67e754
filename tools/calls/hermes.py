"""The format of Hermes and Qwen: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

A call is one JSON object between the tags with a ``name`` and ``arguments``, an object (``{}`` for none; given as a
string of JSON it is decoded, once). The JSON is read by a JSON reader, so brackets and tags inside strings are text.
"""

import json
import re
from math import isfinite
from typing import Any

from peira.tools.calls.reasoning import MOST_MISSES
from peira.tools.calls.types import Call, Problem

__all__ = ["hermes_calls", "hermes_unit"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_EXAMPLE = 'Write <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
_TAG = re.compile(r"</?tool_call>")
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


# Line breaks inside strings are let through: models write them, and only one reading is possible.
_READER = json.JSONDecoder(
    object_pairs_hook=_object, parse_int=_int, parse_float=_float, parse_constant=_constant, strict=False
)


def _read(text: str, at: int) -> tuple[Any, int]:
    """Return the JSON value that begins at ``at``, and where it ends.

    Raises:
        ValueError: there is none; the text says why, and where for a syntax error.
    """
    try:
        return _READER.raw_decode(text, _after_space(text, at))
    except json.JSONDecodeError as error:
        raise ValueError(f"{error.msg} at character {error.pos - at}") from None
    except RecursionError:
        raise ValueError(_DEPTH) from None


def _after_space(text: str, at: int) -> int:
    match = _SPACE.match(text, at)
    return match.end() if match else at


def hermes_unit(text: str, at: int) -> int | None:
    """Return where the tool call at ``at`` ends, or ``None`` if it is not JSON between two tags."""
    try:
        _, end = _read(text, at + len(_OPEN))
    except ValueError:
        return None
    end = _after_space(text, end)
    return end + len(_CLOSE) if text.startswith(_CLOSE, end) else None


def hermes_calls(text: str) -> tuple[str, list[Call | Problem]]:
    """Return the text without its tool calls, and the calls and problems in order."""
    kept: list[str] = []
    found: list[Call | Problem] = []
    at = misses = 0
    while misses < MOST_MISSES and (tag := _TAG.search(text, at)) is not None:
        kept.append(text[at : tag.start()])
        at = tag.end()
        if tag.group() == _OPEN:
            item, at = _block(text, at)
            misses += isinstance(item, Problem)
            found.append(item.shifted(tag.start()))
    return "".join([*kept, text[at:]]), found


def _block(text: str, at: int) -> tuple[Call | Problem, int]:
    """Read what follows an opening tag; return it, and where the block ends."""
    try:
        value, end = _read(text, at)
    except ValueError as error:
        body, end, closed = _body(text, at)
        if not body.strip():
            return Problem("empty", f"The tool call is empty. {_EXAMPLE}"), end
        if not closed:
            return Problem("unclosed", f"The tool call has no closing tag and was not run ({error}). {_EXAMPLE}"), end
        return Problem("bad_json", f"The tool call is not valid JSON and was not run: {error}. {_EXAMPLE}"), end
    stop = _after_space(text, end)
    if text.startswith(_CLOSE, stop):
        return _call(value), stop + len(_CLOSE)
    rest, stop, closed = _body(text, end)
    if not closed:
        return Problem("unclosed", f"The tool call has no closing tag and was not run. {_EXAMPLE}"), stop
    return Problem(
        "extra_data", f"Text follows the JSON object: {rest.strip()[:40]!r}. It was not run. {_EXAMPLE}"
    ), stop


def _body(text: str, at: int) -> tuple[str, int, bool]:
    """Return the text up to the next tag, where the block ends, and whether that was its closing tag."""
    tag = _TAG.search(text, at)
    if tag is None:
        return text[at:], len(text), False
    closed = tag.group() == _CLOSE
    return text[at : tag.start()], tag.end() if closed else tag.start(), closed


def _call(value: Any) -> Call | Problem:
    if not isinstance(value, dict):
        return Problem("not_an_object", f"A tool call is one JSON object, not {_kind(value)}. {_EXAMPLE}")
    name, given = value.get("name"), value.get("id")
    if not isinstance(name, str) or not name:
        return Problem("missing_name", f'The tool call has no "name" and was not run. {_EXAMPLE}')
    if "arguments" not in value:
        return Problem("bad_arguments", f'{name}: "arguments" is missing; write {{}} if there are none. {_EXAMPLE}')
    arguments = value["arguments"]
    if isinstance(arguments, str):
        try:
            arguments, end = _read(arguments, 0)
        except ValueError as error:
            return Problem("bad_arguments", f'{name}: "arguments" is not valid JSON and was not run: {error}.')
        if value["arguments"][end:].strip():
            return Problem("extra_data", f'{name}: text follows the object in "arguments". It was not run.')
    if not isinstance(arguments, dict):
        return Problem("bad_arguments", f'{name}: "arguments" is a JSON object, not {_kind(arguments)}.')
    return Call(name, arguments, given if isinstance(given, str) and given else None)


def _kind(value: Any) -> str:
    if value is None or isinstance(value, bool):
        return "null" if value is None else "true or false"
    kinds: tuple[tuple[type, str], ...] = ((list, "an array"), (str, "a string"), (dict, "an object"))
    return next((kind for known, kind in kinds if isinstance(value, known)), "a number")
