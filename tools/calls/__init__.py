"""Model text to calls and actions. Nothing here ever raises, repairs, or guesses: what is not a call is a ``Problem``.

The rules, in the order in which they apply:

1. **Reasoning first.** ``<think>...</think>`` is split off before anything is looked for (``reasoning.py`` has the
   rules for think blocks that the prompt opened or that never close). A call drafted there is not a call.
2. **A cut-off turn holds no call.** With ``cut_off=True`` (finish reason *length*) nothing is taken from the text, not
   even a call that looks complete, and the problem's kind is ``cut_off``, apart from bad format.
3. **A call is what its format says**, to the letter: the formats are in ``hermes.py``, ``tags.py``, ``pythonic.py``.
   Bare JSON in prose is prose.
4. **Only the whole text counts.** ``Stream`` collects pieces and parses what they add up to, so that no result depends
   on where a chunk ended.

Ids that a model gave are passed on as they are; calls without one get theirs when they are carried out (``CallIds``).
"""

import codecs
from collections.abc import Sequence
from typing import Literal, get_args

from peira.tools.calls.answers import boxed_answer, marked_answer, tagged_answer
from peira.tools.calls.hermes import hermes_calls, hermes_unit
from peira.tools.calls.pythonic import pythonic_calls
from peira.tools.calls.reasoning import split_reasoning
from peira.tools.calls.tags import ActionParse, action_of, tag_calls
from peira.tools.calls.types import CUT_OFF, Call, Parsed, Problem
from peira.tools.errors import unknown

__all__ = [
    "ActionParse",
    "Call",
    "Format",
    "Parsed",
    "Problem",
    "Stream",
    "action_of",
    "boxed_answer",
    "marked_answer",
    "parse",
    "split_reasoning",
    "tagged_answer",
]

Format = Literal["hermes", "tags", "pythonic"]


def parse(
    text: str,
    form: Format = "hermes",
    *,
    verbs: Sequence[str] = (),
    opened: bool = False,
    cut_off: bool = False,
    special: Sequence[str] = (),
) -> Parsed:
    """Read the calls in a model's message.

    Args:
        text: the model's own words, control tokens of the calls included; never the prompt.
        form: ``hermes`` (``<tool_call>{json}</tool_call>``, Hermes and Qwen), ``tags`` (``<verb>args</verb>``), or
            ``pythonic`` (the message is ``[name(key=value), ...]``).
        verbs: the tags that are calls, for ``tags``.
        opened: the prompt ended inside a think block.
        cut_off: the message was ended by a length limit.
        special: texts of control tokens (an end-of-turn mark) that are left out of ``Parsed.text``.

    Raises:
        UsageError: an unknown format; a text never raises.
    """
    if form not in get_args(Format):
        raise unknown("call format", form, get_args(Format))
    split = split_reasoning(text, opened=opened, unit=hermes_unit if form == "hermes" else None)
    spans = split.spans
    if cut_off or split.problem:
        problem = Problem("cut_off", CUT_OFF) if cut_off else Problem("unclosed_reasoning", split.problem or "")
        shown = "".join(text[low:high] for low, high in spans)
        return Parsed(split.reasoning, _clean(shown, special), (), (problem,), cut_off)
    if form == "pythonic":
        shown, found = pythonic_calls("".join(text[low:high] for low, high in spans))
    else:
        shown, found = "", []
        for low, high in spans:
            kept, items = hermes_calls(text[low:high]) if form == "hermes" else tag_calls(text[low:high], tuple(verbs))
            shown += kept
            found += [item.shifted(low) for item in items]
    calls = tuple(item for item in found if isinstance(item, Call))
    problems = tuple(item for item in found if isinstance(item, Problem))
    return Parsed(split.reasoning, _clean(shown, special), calls, problems)


def _clean(shown: str, special: Sequence[str]) -> str:
    for mark in special:
        shown = shown.replace(mark, "")
    return shown.strip()


class Stream:
    """Collects a message that arrives in pieces, of text or of UTF-8 bytes cut anywhere."""

    def __init__(self) -> None:
        self._pieces: list[str] = []
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")

    def feed(self, piece: str | bytes) -> None:
        """Take the next piece."""
        self._pieces.append(self._decoder.decode(piece) if isinstance(piece, bytes) else piece)

    @property
    def text(self) -> str:
        """Everything so far."""
        return "".join(self._pieces)

    def parse(
        self,
        form: Format = "hermes",
        *,
        verbs: Sequence[str] = (),
        opened: bool = False,
        cut_off: bool = False,
        special: Sequence[str] = (),
    ) -> Parsed:
        """Parse everything so far, as the function ``parse`` does."""
        return parse(self.text, form, verbs=verbs, opened=opened, cut_off=cut_off, special=special)
