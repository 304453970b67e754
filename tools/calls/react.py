"""The format of ReAct: lines that begin with a word and a colon.

::

    Thought: I should look it up.
    Action: search
    Action Input: {"q": "Oslo"}
    Observation: ...

One action a message, the first: ``Action: name`` with an ``Action Input:``, or ``Action: name[text]``. An input that
begins with ``{`` is a JSON object; any other is the argument ``text``, as in the tags format. The observation is the
world's to write: from the line ``Observation:`` on, a message is imagined, and nothing in it is read. A second action
before that line was chosen without an answer to the first: it is not run, and the model is told.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import islice

from peira.tools.calls.reasoning import MOST_MISSES
from peira.tools.calls.types import Call, Format, Item, Problem
from peira.tools.calls.values import object_of, read_json, write_json

__all__ = ["FORMAT"]

_EXAMPLE = 'Write two lines, "Action: name" and "Action Input: {...}", then stop.'
_WORDS = "Thought|Action Input|Action|Observation|Final Answer"
_LINE = re.compile(rf"^[ \t]{{0,20}}({_WORDS})[ \t]{{0,4}}:[ \t]{{0,20}}", re.MULTILINE)
_ACTION = r"(?m:^[ \t]{0,20}Action[ \t]{0,4}:)"
_SHORT = re.compile(r"([^\s\[\]]{1,200})\[(.*)\]", re.DOTALL)
_NAME = re.compile(r"[^\s\[\]{}\"]{1,200}")


def _lines(text: str, at: int = 0) -> Iterator[tuple[str, int, int]]:
    """Yield (word, start, end of the colon) of every line that begins with one of the words, up to Observation.

    An Action Input that is JSON is stepped over, so that a line inside one of its strings is not taken for another.
    """
    misses = 0
    while line := _LINE.search(text, at):
        yield line[1], line.start(), line.end()
        at = line.end()
        if line[1] == "Observation":
            return
        if line[1] == "Action Input" and text.startswith("{", at) and misses < MOST_MISSES:
            try:
                _, at = read_json(text, at)
            except ValueError:
                misses += 1


def _unit(text: str, at: int) -> int | None:
    lines = list(islice(_lines(text, at), 2))
    if [word for word, _, _ in lines] != ["Action", "Action Input"] or not text.startswith("{", lines[1][2]):
        return None
    try:
        return read_json(text, lines[1][2])[1]
    except ValueError:
        return None


def _calls(text: str, verbs: tuple[str, ...]) -> tuple[str, list[Item]]:
    del verbs
    lines = [*_lines(text), ("", len(text), len(text))]
    stop = next(index for index, line in enumerate(lines) if line[0] in ("Observation", ""))
    actions = [index for index in range(stop) if lines[index][0] == "Action"]
    if not actions:
        return text[: lines[stop][1]], []
    index = actions[0]
    start, after = lines[index][1], index + 1
    name = text[lines[index][2] : lines[after][1]].strip()
    body = None
    if after < stop and lines[after][0] == "Action Input":
        body = text[lines[after][2] : lines[after + 1][1]].strip()
        after += 1
    found: list[Item] = [_item(name, body).shifted(start)]
    last = lines[stop][1]
    if len(actions) > 1:
        last = lines[actions[1]][1]
        said = f"One action a message: only the first of {len(actions)} counts. {_EXAMPLE}"
        found.append(Problem("extra_data", said, last))
    return text[:start] + text[lines[after][1] : last], found


def _item(name: str, body: str | None) -> Item:
    if body is None:
        if short := _SHORT.fullmatch(name):
            return Call(short[1], {"text": short[2]})
        if not name:
            return Problem("empty", f"The action is empty. {_EXAMPLE}")
        said = f"{name[:60]}: the line Action Input is missing, so it was not run; write {{}} if there is none."
        return Problem("bad_arguments", f"{said} {_EXAMPLE}")
    if not _NAME.fullmatch(name):
        return Problem("missing_name", f"{name[:60]!r} is not the name of a tool, so nothing was run. {_EXAMPLE}")
    if not body.startswith("{"):
        return Call(name, {"text": body})
    try:
        value, end = read_json(body, 0)
    except ValueError as error:
        return Problem("bad_json", f"{name}: the input is not valid JSON and was not run: {error}. {_EXAMPLE}")
    if body[end:].strip():
        return Problem("extra_data", f"{name}: text follows the JSON object. It was not run. {_EXAMPLE}")
    arguments = object_of(name, "Action Input", value)
    return arguments if isinstance(arguments, Problem) else Call(name, arguments)


def _write(calls: Sequence[Call]) -> str:
    return "\n".join(f"Action: {call.name}\nAction Input: {write_json(dict(call.arguments))}" for call in calls)


FORMAT = Format("react", _EXAMPLE, _calls, _write, opener=_ACTION, unit=_unit, whole=True)
