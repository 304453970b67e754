"""The format of Mistral: ``[TOOL_CALLS]`` and after it what is called, in either of two shapes.

* An array: ``[TOOL_CALLS][{"name": ..., "arguments": {...}, "id": "..."}, ...]``.
* One mark for each call: ``[TOOL_CALLS]name[ARGS]{...}``, with ``[CALL_ID]id`` before ``[ARGS]`` where there is an id.

What stands before the first mark is text; nothing may follow the calls.
"""

import re
from collections.abc import Sequence

from peira.tools.calls.reasoning import MOST_MISSES
from peira.tools.calls.types import Call, Format, Item, Problem
from peira.tools.calls.values import after_space, call_from, json_of, object_of, read_json, write_json

__all__ = ["FORMAT"]

_MARK = "[TOOL_CALLS]"
_EXAMPLE = 'Write [TOOL_CALLS][{"name": ..., "arguments": {...}}] or [TOOL_CALLS]name[ARGS]{...}.'
_NAMED = re.compile(r"[ \t\r\n]*([^\s\[\]{}\"]{1,200})[ \t\r\n]*(?:\[CALL_ID\]([^\s\[\]]{1,200}))?[ \t\r\n]*\[ARGS\]")


def _unit(text: str, at: int) -> int | None:
    items, end = _block(text, at + len(_MARK))
    return None if any(isinstance(item, Problem) for item in items) else end


def _calls(text: str, verbs: tuple[str, ...]) -> tuple[str, list[Item]]:
    del verbs
    mark = text.find(_MARK)
    if mark < 0:
        return text, []
    shown = text[:mark]
    found: list[Item] = []
    misses = 0
    while mark >= 0 and misses < MOST_MISSES:
        items, at = _block(text, mark + len(_MARK))
        after = text.find(_MARK, at)
        rest = text[at:] if after < 0 else text[at:after]
        if rest.strip() and not any(isinstance(item, Problem) for item in items):
            said = f"Text follows the call, so it was not run: {rest.strip()[:40]!r}. {_EXAMPLE}"
            items = [Problem("extra_data", said)]
        misses += any(isinstance(item, Problem) for item in items)
        found += [item.shifted(mark) if isinstance(item, Problem) else item for item in items]
        mark = after
    return shown, found


def _block(text: str, at: int) -> tuple[list[Item], int]:
    """Read what follows a mark; return it, and where it ends (after a problem: at the next mark)."""
    if named := _NAMED.match(text, at):
        return _one(text, named)
    begin = after_space(text, at)
    stop = text.find(_MARK, begin)
    stop = len(text) if stop < 0 else stop
    if begin == stop:
        return [Problem("empty", f"The tool call is empty. {_EXAMPLE}")], stop
    try:
        value, end = read_json(text, begin)
    except ValueError as error:
        return [Problem("bad_json", f"The calls are not valid JSON and none was run: {error}. {_EXAMPLE}")], stop
    if isinstance(value, list) and not value:
        return [Problem("empty", f"The list of calls is empty. {_EXAMPLE}")], end
    items = [call_from(one, _EXAMPLE) for one in (value if isinstance(value, list) else [value])]
    return [item.shifted(begin) if isinstance(item, Call) else item for item in items], end


def _one(text: str, named: re.Match[str]) -> tuple[list[Item], int]:
    name, given, at = named[1], named[2], named.end()
    try:
        value, end = read_json(text, at)
    except ValueError as error:
        stop = text.find(_MARK, at)
        said = f"{name}: its arguments are not valid JSON, so it was not run: {error}. {_EXAMPLE}"
        return [Problem("bad_json", said)], len(text) if stop < 0 else stop
    arguments = object_of(name, "arguments", value)
    item = arguments if isinstance(arguments, Problem) else Call(name, arguments, given, named.start())
    return [item], end


def _write(calls: Sequence[Call]) -> str:
    return f"{_MARK}{write_json([json_of(call) for call in calls])}" if calls else ""


FORMAT = Format("mistral", _EXAMPLE, _calls, _write, opener=re.escape(_MARK), unit=_unit, whole=True)
