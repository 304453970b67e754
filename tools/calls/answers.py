r"""The final answer in a message: the last complete one outside reasoning, from the model's own words alone."""

import re

from peira.tools.calls.reasoning import split_reasoning
from peira.tools.calls.tags import ANSWER, complete_tags

__all__ = ["boxed_answer", "marked_answer", "tagged_answer"]

_BRACE = re.compile(r"\\boxed\s{0,4}\{|\\.|[{}]", re.DOTALL)


def _said(text: str, opened: bool) -> str:
    """Return what stands outside reasoning; nothing if the reasoning never ended."""
    split = split_reasoning(text, opened=opened)
    return "" if split.problem else split.rest(text)


def tagged_answer(text: str, tag: str = ANSWER, *, opened: bool = False) -> str | None:
    """Return the body of the last complete ``<answer>...</answer>``; ``None`` if there is none, or it is empty."""
    found = list(complete_tags(_said(text, opened), (tag,)))
    return found[-1].body or None if found else None


def boxed_answer(text: str, *, opened: bool = False) -> str | None:
    r"""Return the body of the last ``\boxed{...}`` whose braces balance; ``None`` if there is none, or it is empty."""
    said = _said(text, opened)
    opened_at: list[int | None] = []
    last: str | None = None
    for mark in _BRACE.finditer(said):
        if mark.group().startswith("\\boxed"):
            opened_at.append(mark.end())
        elif mark.group() == "{":
            opened_at.append(None)
        elif mark.group() == "}" and opened_at and (start := opened_at.pop()) is not None:
            last = said[start : mark.start()].strip()
    return last or None


def marked_answer(text: str, mark: str = "####", *, opened: bool = False) -> str | None:
    """Return all that follows the last ``####``, untouched; ``None`` if the mark does not occur."""
    said = _said(text, opened)
    _, found, answer = said.rpartition(mark)
    return answer if found else None
