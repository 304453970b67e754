"""Verb tags: ``<compare>A B</compare>`` is the action ``compare A B``.

Which tag counts, when a message holds several:

* For a verb of the world the **first** tag that is complete is carried out. The world has not answered yet when the
  model writes on, so whatever follows (an imagined answer, a second call, a final answer built on it) is not seen.
* ``answer`` is a statement, not an operation: the **last** complete one wins, and only if no operation was called.
* Complete means both tags. A closing tag belongs to the nearest opening one of its verb; ``<done/>`` is
  ``<done></done>``. Capitals and a few spaces inside a tag do not matter; attributes make it another tag.
* A message without any tag of a known verb is plain text, and as a whole the action.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

from peira.tools.calls.reasoning import split_reasoning
from peira.tools.calls.types import CUT_OFF, Call, Format, Item, Problem

__all__ = ["ANSWER", "FORMAT", "ActionParse", "Tagged", "action_of", "complete_tags"]

ANSWER = "answer"
"""The verb whose last occurrence counts."""

_NOTHING = "Your message holds no action."
_SHORT = 256


class ActionParse(NamedTuple):
    """What a message does: exactly one of ``action`` and ``problem`` is there."""

    action: str | None
    """What the world gets: ``verb args``, or the plain text of a message without tags."""
    problem: str | None
    """What the model reads when there is no action."""
    reasoning: str
    kind: str | None = None
    """The problem's kind, to be counted by: ``cut_off``, ``unclosed_reasoning``, ``unclosed`` or ``empty``."""
    end: int | None = None
    """Where in the text the action's closing tag ends; what follows was not acted on. ``None`` for plain text."""


class Tagged(NamedTuple):
    """A complete tag."""

    verb: str
    body: str
    start: int
    end: int


@lru_cache(maxsize=256)
def _tags(verbs: tuple[str, ...]) -> re.Pattern[str]:
    # Longest first, so that no verb hides behind its own beginning; bounded spaces, so that no text is slow to refuse.
    names = "|".join(re.escape(verb) for verb in sorted(verbs, key=len, reverse=True))
    return re.compile(rf"<\s{{0,4}}(/?)\s{{0,4}}({names})\s{{0,4}}(/?)>", re.IGNORECASE)


@lru_cache(maxsize=256)
def _spellings(verbs: tuple[str, ...]) -> dict[str, str]:
    return {verb.lower(): verb for verb in verbs}


def complete_tags(text: str, verbs: tuple[str, ...]) -> Iterator[Tagged]:
    """Yield every complete tag in the order in which they are completed."""
    names = _spellings(verbs)
    opened: dict[str, re.Match[str]] = {}
    for mark in _tags(verbs).finditer(text):
        verb = names[mark[2].lower()]
        if mark[3]:
            yield Tagged(verb, "", mark.start(), mark.end())
        elif not mark[1]:
            opened[verb] = mark
        elif (first := opened.pop(verb, None)) is not None:
            yield Tagged(verb, text[first.end() : mark.start()].strip(), first.start(), mark.end())


def action_of(text: str, verbs: tuple[str, ...], *, cut_off: bool = False, opened: bool = False) -> ActionParse:
    """Return the one action of a message. Never raises.

    Args:
        text: the model's own words, never the prompt.
        verbs: the world's verbs; none: the text itself is the action.
        cut_off: the message was ended by a length limit: it holds no action, whatever it looks like.
        opened: the prompt ended inside a think block.
    """
    # Agents say the same few short things again and again; a long text is not worth remembering.
    return (_remembered if len(text) <= _SHORT else _action_of)(text, verbs, cut_off, opened)


def _action_of(text: str, verbs: tuple[str, ...], cut_off: bool, opened: bool) -> ActionParse:
    split = split_reasoning(text, opened=opened)
    if cut_off:
        return ActionParse(None, CUT_OFF, split.reasoning, "cut_off")
    if split.problem:
        return ActionParse(None, split.problem, split.reasoning, "unclosed_reasoning")
    if verbs and "<" in text:
        answer: tuple[Tagged, int] | None = None
        for low, high in split.spans:
            for tag in complete_tags(text[low:high], verbs):
                if tag.verb != ANSWER:
                    return ActionParse(f"{tag.verb} {tag.body}".rstrip(), None, split.reasoning, None, low + tag.end)
                answer = tag, low
        if answer is not None:
            return _answered(*answer, split.reasoning)
        for low, high in split.spans:
            if mark := _tags(verbs).search(text, low, high):
                verb = mark[2].lower()
                problem = f"<{verb}> is not complete, so nothing was carried out. Write <{verb}>...</{verb}>."
                return ActionParse(None, problem, split.reasoning, "unclosed")
    plain = split.rest(text).strip()
    return ActionParse(plain or None, None if plain else _NOTHING, split.reasoning, None if plain else "empty")


_remembered = lru_cache(maxsize=8192)(_action_of)


def _answered(tag: Tagged, low: int, reasoning: str) -> ActionParse:
    if not tag.body:
        return ActionParse(None, f"<{tag.verb}> is empty: no answer was given.", reasoning, "empty")
    return ActionParse(f"{tag.verb} {tag.body}", None, reasoning, None, low + tag.end)


def _calls(text: str, verbs: tuple[str, ...]) -> tuple[str, list[Item]]:
    """Return the text without its tags, and *every* complete tag as a call whose argument ``text`` is its body."""
    if not verbs:
        return text, []
    found: list[Item] = []
    kept: list[str] = []
    at = 0
    for tag in [*sorted(complete_tags(text, verbs), key=lambda tag: tag.start), Tagged("", "", len(text), len(text))]:
        if tag.start < at:
            continue  # inside the tag before it: part of its text
        kept.append(text[at : tag.start])
        if stray := _tags(verbs).search(text, at, tag.start):
            verb = stray[2].lower()
            problem = f"<{verb}> is not complete and was not run. Write <{verb}>...</{verb}>."
            found.append(Problem("unclosed", problem, stray.start()))
        if tag.verb:
            found.append(Call(tag.verb, {"text": tag.body}, None, tag.start))
        at = tag.end
    return "".join(kept), found


def _write(calls: Sequence[Call]) -> str:
    return "\n".join(f"<{call.name}>{call.arguments.get('text', '')}</{call.name}>" for call in calls)


FORMAT = Format("tags", "Write <verb>...</verb>.", _calls, _write)
