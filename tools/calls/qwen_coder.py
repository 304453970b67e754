"""The format of Qwen3-Coder: calls in XML, whose values are plain text.

::

    <tool_call>
    <function=search>
    <parameter=q>
    any text, as it is
    </parameter>
    </function>
    </tool_call>

Every value is the text between its tags, without the one line break after the opening and the one before the closing
tag. It is never interpreted here: the tool's own types say whether ``5`` is a number. A value ends at the first closing
tag with another parameter, or the end of the function, behind it; so a value may speak of ``</parameter>``. A value in
which another parameter seems to begin has two readings, so it is none.
"""

import re
from collections.abc import Sequence

from peira.tools.calls.reasoning import MOST_MISSES
from peira.tools.calls.types import Call, Format, Item, Problem
from peira.tools.calls.values import after_space, write_json

__all__ = ["FORMAT"]

_EXAMPLE = "Write <tool_call><function=NAME><parameter=KEY>value</parameter></function></tool_call>."
_S = r"[ \t\r\n]{0,1000}"
_OPEN, _CLOSE = "<tool_call>", "</tool_call>"
_TAG = re.compile(r"</?tool_call>|<function=")
_BLOCK = re.compile(r"</?tool_call>")
_OPENS = re.compile(r"<(?:parameter|function)=")
_FUNCTION = re.compile(rf"{_S}<function=([^\s<>=]{{1,200}})>{_S}")
_PARAMETER = re.compile(r"<parameter=([^\s<>=]{1,200})>")
_VALUE_ENDS = re.compile(rf"</parameter>{_S}(?=<parameter=[^\s<>=]{{1,200}}>|</function>{_S}</tool_call>)")
_FUNCTION_ENDS = re.compile(rf"</function>{_S}</tool_call>")


class _Unread(Exception):
    """Why a block is no call: ``kind`` and words."""

    def __init__(self, kind: str, why: str) -> None:
        super().__init__(why)
        self.kind = kind


def _block(text: str, at: int) -> tuple[Call, int]:
    """Read the call after an opening tag; return it, and where the block ends.

    Raises:
        _Unread: it is none.
    """
    function = _FUNCTION.match(text, at)
    if function is None:
        begin = after_space(text, at)
        empty = begin == len(text) or text.startswith(_CLOSE, begin)
        raise _Unread("empty" if empty else "bad_syntax", "<function=NAME> is missing")
    arguments: dict[str, str] = {}
    here = function.end()
    while (end := _FUNCTION_ENDS.match(text, here)) is None:
        parameter = _PARAMETER.match(text, here)
        if parameter is None:
            closed = text.find(_CLOSE, here) >= 0
            raise _Unread("bad_syntax" if closed else "unclosed", "<parameter=KEY> or the end of the call is missing")
        key = parameter[1]
        if key in arguments:
            raise _Unread("bad_arguments", f"{key} is given twice")
        stop = _VALUE_ENDS.search(text, parameter.end())
        if stop is None:
            raise _Unread("unclosed", f"the value of {key} has no end")
        if _OPENS.search(text, parameter.end(), stop.start()):
            raise _Unread("unclosed", f"another parameter or function begins before the end of the value of {key}")
        arguments[key] = _value(text[parameter.end() : stop.start()])
        here = stop.end()
    return Call(function[1], arguments), end.end()


def _value(text: str) -> str:
    """Return a value without the line break that the format puts on either side of it."""
    return text.removeprefix("\n").removesuffix("\n")


def _unit(text: str, at: int) -> int | None:
    try:
        return _block(text, at + len(_OPEN))[1]
    except _Unread:
        return None


def _calls(text: str, verbs: tuple[str, ...]) -> tuple[str, list[Item]]:
    del verbs
    kept: list[str] = []
    found: list[Item] = []
    at = misses = 0
    while misses < MOST_MISSES and (tag := _TAG.search(text, at)) is not None:
        kept.append(text[at : tag.start()])
        at = tag.end()
        if tag.group() == _CLOSE:
            continue
        try:
            if tag.group() == "<function=":
                raise _Unread("bad_syntax", "<function=...> stands outside <tool_call>")
            call, at = _block(text, at)
            found.append(call.shifted(tag.start()))
        except _Unread as error:
            misses += 1
            said = f"The tool call could not be read and was not run: {error}. {_EXAMPLE}"
            found.append(Problem(error.kind, said, tag.start()))
            at = _resume(text, at)
    return "".join([*kept, text[at:]]), found


def _resume(text: str, at: int) -> int:
    """Return where to read on after a block that is no call: behind its end, or at the next beginning."""
    tag = _BLOCK.search(text, at)
    if tag is None:
        return len(text)
    return tag.end() if tag.group() == _CLOSE else tag.start()


def _write(calls: Sequence[Call]) -> str:
    return "\n".join(_written(call) for call in calls)


def _written(call: Call) -> str:
    lines = [_OPEN, f"<function={call.name}>"]
    for key, value in call.arguments.items():
        lines += [f"<parameter={key}>", value if isinstance(value, str) else write_json(value), "</parameter>"]
    return "\n".join([*lines, "</function>", _CLOSE])


FORMAT = Format("qwen_coder", _EXAMPLE, _calls, _write, opener=_OPEN, unit=_unit)
