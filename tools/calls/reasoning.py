"""Splitting reasoning off a message, before anything else looks at it.

* ``<think>...</think>`` (also ``<thinking>``, and ``[THINK]...[/THINK]``) is reasoning, wherever it stands; a
  ``<think>`` inside one is text.
* A ``</think>`` that nothing opened: the prompt had opened it, so *everything* before it is reasoning.
* A block that never closes: all that follows is reasoning, and the message holds no call and no answer at all.
* Inside a well-formed tool call the words ``<think>`` and ``</think>`` are text (an agent may write about them).
"""

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

__all__ = ["MOST_MISSES", "Split", "split_reasoning"]

MOST_MISSES = 1_000
"""Malformed calls after which a message is read no further: naming an error costs as much as the text is long."""

_UNCLOSED = "Your reasoning was never closed, so nothing was carried out. End it with </think>, then act."
_MARK = r"(?P<think><(?P<close>/?)think(?:ing)?>|\[(?P<shut>/?)THINK\])"


@lru_cache(maxsize=64)
def _marks(opener: str) -> re.Pattern[str]:
    return re.compile(f"{_MARK}|{opener}" if opener else _MARK, re.MULTILINE)


class Split(NamedTuple):
    """A message without its reasoning."""

    reasoning: str
    spans: tuple[tuple[int, int], ...]
    """[low, high) in the text of everything that is not reasoning."""
    problem: str | None
    """What the model reads if its reasoning never ended."""

    def rest(self, text: str) -> str:
        """Return everything that is not reasoning."""
        return "".join(text[low:high] for low, high in self.spans)


def split_reasoning(
    text: str, *, opened: bool = False, opener: str = "", unit: Callable[[str, int], int | None] | None = None
) -> Split:
    """Find the reasoning in a message.

    Args:
        text: the model's own words.
        opened: the prompt ended inside a think block.
        opener: regular expression of where a call may begin.
        unit: tells, for the place of an opener, where that call ends if it is well formed.
    """
    if not opened and "think" not in text and "THINK]" not in text:
        return Split("", ((0, len(text)),) if text else (), None)
    marks = _marks("" if unit is None else opener)
    thoughts: list[tuple[int, int]] = []
    spans: list[tuple[int, int]] = []
    inside, start, at, misses = opened, 0, 0, 0
    while mark := marks.search(text, at):
        at = mark.end()
        closing = mark["close"] or mark["shut"]
        if mark["think"] is None:
            if unit is not None and not inside and misses < MOST_MISSES:
                end = unit(text, mark.start())
                at, misses = (at, misses + 1) if end is None else (end, misses)
        elif closing and inside:
            thoughts.append((start, mark.start()))
            inside, start = False, at
        elif closing:
            thoughts, spans, start = [(0, mark.start())], [], at
        elif not inside:
            spans.append((start, mark.start()))
            inside, start = True, at
    (thoughts if inside else spans).append((start, len(text)))
    kept = tuple(span for span in spans if span[0] < span[1])
    reasoning = "\n".join(text[low:high].strip() for low, high in thoughts)
    return Split(reasoning, kept, _UNCLOSED if inside else None)
