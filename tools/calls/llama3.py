"""The format of Llama 3: the whole message is ``{"name": ..., "parameters": {...}}``, several with ``;`` between them.

The control token ``<|python_tag|>`` may stand before it; then what follows *is* meant as a call. Without it, a message
that is one JSON value of another shape (a final answer, say) is text. ``arguments`` for ``parameters`` has only one
reading and is taken; both at once are not.
"""

import re
from collections.abc import Sequence

from peira.tools.calls.types import Call, Format, Item, Problem
from peira.tools.calls.values import after_space, call_from, json_of, read_json, write_json

__all__ = ["FORMAT"]

_TAG = "<|python_tag|>"
_EXAMPLE = 'Write {"name": ..., "parameters": {...}} and nothing else; put ; between several.'
_KEYS = ("parameters", "arguments")
_BEGINS = re.compile(r'\{\s{0,100}"(?:name|type|parameters|arguments|id)"\s{0,100}:')


def _named(value: object) -> bool:
    return isinstance(value, dict) and "name" in value and any(key in value for key in _KEYS)


def _unit(text: str, at: int) -> int | None:
    start = at + len(_TAG) if text.startswith(_TAG, at) else at
    try:
        value, end = read_json(text, start)
    except ValueError:
        return None
    return end if _named(value) else None


def _calls(text: str, verbs: tuple[str, ...]) -> tuple[str, list[Item]]:
    del verbs
    start = after_space(text, 0)
    meant = text.startswith(_TAG, start)
    at = start + len(_TAG) if meant else start
    if not meant and not _BEGINS.match(text, at):
        return text, []
    found: list[Item] = []
    while True:
        begin = after_space(text, at)
        if begin == len(text):
            found.append(Problem("empty", f"The tool call is empty. {_EXAMPLE}", start))
            return "", found
        try:
            value, at = read_json(text, begin)
        except ValueError as error:
            return "", [Problem("bad_json", f"The calls are not valid JSON and none was run: {error}. {_EXAMPLE}")]
        if not meant and not found and not _shaped(value):
            return text, []
        found.append(call_from(value, _EXAMPLE, _KEYS).shifted(begin))
        at = after_space(text, at)
        if at == len(text):
            return "", found
        if text[at] != ";":
            said = f"Text follows the JSON object, so nothing was run: {text[at : at + 40]!r}. {_EXAMPLE}"
            return "", [Problem("extra_data", said, at)]
        at += 1
        if after_space(text, at) == len(text):  # a ; at the end separates nothing from nothing
            return "", found


def _shaped(value: object) -> bool:
    """Whether a JSON value without the tag before it was meant as a call: it names something and gives arguments."""
    return isinstance(value, dict) and ("name" in value or any(key in value for key in _KEYS))


def _write(calls: Sequence[Call]) -> str:
    return "; ".join(write_json(json_of(call, "parameters")) for call in calls)


FORMAT = Format("llama3", _EXAMPLE, _calls, _write, opener=r'<\|python_tag\|>|\{(?=\s{0,100}")', unit=_unit, whole=True)
