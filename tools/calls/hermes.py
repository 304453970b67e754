"""The format of Hermes and Qwen: ``<tool_call>{"name": ..., "arguments": {...}}</tool_call>``.

A call is one JSON object between the tags with a ``name`` and ``arguments``, an object (``{}`` for none; given as a
string of JSON it is decoded, once). The JSON is read by a JSON reader, so brackets and tags inside strings are text.
"""

import re
from collections.abc import Sequence

from peira.tools.calls.reasoning import MOST_MISSES
from peira.tools.calls.types import Call, Format, Item, Problem
from peira.tools.calls.values import after_space, call_from, json_of, read_json, write_json

__all__ = ["FORMAT"]

_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_EXAMPLE = 'Write <tool_call>{"name": ..., "arguments": {...}}</tool_call>.'
_TAG = re.compile(r"</?tool_call>")


def _unit(text: str, at: int) -> int | None:
    try:
        _, end = read_json(text, at + len(_OPEN))
    except ValueError:
        return None
    end = after_space(text, end)
    return end + len(_CLOSE) if text.startswith(_CLOSE, end) else None


def _calls(text: str, verbs: tuple[str, ...]) -> tuple[str, list[Item]]:
    del verbs
    kept: list[str] = []
    found: list[Item] = []
    at = misses = 0
    while misses < MOST_MISSES and (tag := _TAG.search(text, at)) is not None:
        kept.append(text[at : tag.start()])
        at = tag.end()
        if tag.group() == _OPEN:
            item, at = _block(text, at)
            misses += isinstance(item, Problem)
            found.append(item.shifted(tag.start()))
    return "".join([*kept, text[at:]]), found


def _block(text: str, at: int) -> tuple[Item, int]:
    """Read what follows an opening tag; return it, and where the block ends."""
    try:
        value, end = read_json(text, at)
    except ValueError as error:
        body, end, closed = _body(text, at)
        if not body.strip():
            return Problem("empty", f"The tool call is empty. {_EXAMPLE}"), end
        if not closed:
            return Problem("unclosed", f"The tool call has no closing tag and was not run ({error}). {_EXAMPLE}"), end
        return Problem("bad_json", f"The tool call is not valid JSON and was not run: {error}. {_EXAMPLE}"), end
    stop = after_space(text, end)
    if text.startswith(_CLOSE, stop):
        return call_from(value, _EXAMPLE), stop + len(_CLOSE)
    rest, stop, closed = _body(text, end)
    if not closed:
        return Problem("unclosed", f"The tool call has no closing tag and was not run. {_EXAMPLE}"), stop
    said = f"Text follows the JSON object: {rest.strip()[:40]!r}. It was not run. {_EXAMPLE}"
    return Problem("extra_data", said), stop


def _body(text: str, at: int) -> tuple[str, int, bool]:
    """Return the text up to the next tag, where the block ends, and whether that was its closing tag."""
    tag = _TAG.search(text, at)
    if tag is None:
        return text[at:], len(text), False
    closed = tag.group() == _CLOSE
    return text[at : tag.start()], tag.end() if closed else tag.start(), closed


def _write(calls: Sequence[Call]) -> str:
    return "\n".join(f"{_OPEN}\n{write_json(json_of(call))}\n{_CLOSE}" for call in calls)


FORMAT = Format("hermes", _EXAMPLE, _calls, _write, opener=_OPEN, unit=_unit)
