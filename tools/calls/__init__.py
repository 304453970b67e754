"""Model text to calls and actions. Nothing here ever raises, repairs, or guesses: what is not a call is a ``Problem``.

The rules, in the order in which they apply:

1. **Reasoning first.** ``<think>...</think>`` is split off before anything is looked for (``reasoning.py`` has the
   rules for think blocks that the prompt opened or that never close). A call drafted there is not a call.
2. **A cut-off turn holds no call.** With ``cut_off=True`` (finish reason *length*) nothing is taken from the text, not
   even a call that looks complete, and the problem's kind is ``cut_off``, apart from bad format.
3. **A call is what its format says**, to the letter. Each format is one file that ends in ``FORMAT``; ``formats.py``
   lists them. JSON in prose is prose.
4. **Only the whole text counts.** ``Stream`` collects pieces and parses what they add up to, so that no result depends
   on where a chunk ended.

Ids that a model gave are passed on as they are; calls without one get theirs when they are carried out (``CallIds``).
"""

import codecs
from collections.abc import Sequence

from peira.tools.calls.answers import boxed_answer, marked_answer, tagged_answer
from peira.tools.calls.formats import FORMATS, format_of
from peira.tools.calls.reasoning import split_reasoning
from peira.tools.calls.tags import ActionParse, action_of
from peira.tools.calls.types import CUT_OFF, Call, Format, Item, Parsed, Problem
from peira.tools.calls.values import read_json, write_json
from peira.tools.errors import UsageError

__all__ = [
    "FORMATS",
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
    "write",
]


def parse(
    text: str,
    form: str = "hermes",
    *,
    verbs: Sequence[str] = (),
    opened: bool = False,
    cut_off: bool = False,
    special: Sequence[str] = (),
) -> Parsed:
    """Read the calls in a model's message.

    Args:
        text: the model's own words, control tokens of the calls included; never the prompt.
        form: name of a format: a key of ``FORMATS``.
        verbs: the tags that are calls, for ``tags``.
        opened: the prompt ended inside a think block.
        cut_off: the message was ended by a length limit.
        special: texts of control tokens (an end-of-turn mark) that are no part of what is said: those at the end are
            not read, all are left out of ``Parsed.text``.

    Raises:
        UsageError: an unknown format; a text never raises.
    """
    known = format_of(form)
    text = _without_end(text, special)
    split = split_reasoning(text, opened=opened, opener=known.opener, unit=known.unit)
    spans = split.spans
    if cut_off or split.problem:
        problem = Problem("cut_off", CUT_OFF) if cut_off else Problem("unclosed_reasoning", split.problem or "")
        shown = "".join(text[low:high] for low, high in spans)
        return Parsed(split.reasoning, _clean(shown, special), (), (problem,), cut_off)
    shown, found = _read(known, text, spans, tuple(verbs))
    calls = tuple(item for item in found if isinstance(item, Call))
    problems = tuple(item for item in found if isinstance(item, Problem))
    return Parsed(split.reasoning, _clean(shown, special), calls, problems)


def _read(known: Format, text: str, spans: Sequence[tuple[int, int]], verbs: tuple[str, ...]) -> tuple[str, list[Item]]:
    """Read each span, or all of them as one; the items' places are those in ``text``."""
    shown, found = "", []
    if not known.whole:
        for low, high in spans:
            kept, items = known.read(text[low:high], verbs)
            shown += kept
            found += [item.shifted(low) for item in items]
        return shown, found
    shown, items = known.read("".join(text[low:high] for low, high in spans), verbs)
    for item in items:
        at = item.at
        for low, high in spans:
            if at < high - low:
                found.append(item.shifted(low + at - item.at))
                break
            at -= high - low
        else:
            found.append(item.shifted(len(text) - item.at))
    return shown, found


def write(calls: Sequence[Call], form: str = "hermes") -> str:
    """Return the text that a model writes to make these calls; ``parse`` reads the same calls in it.

    In ``qwen_coder`` arguments that are not text come back as their JSON text, since that format has no types.

    Raises:
        UsageError: an unknown format, or one that cannot express the calls.
    """
    known = format_of(form)
    try:
        text = known.write(calls)
        wanted = [(call.name, read_json(write_json(dict(call.arguments)), 0)[0], call.id) for call in calls]
    except ValueError as error:
        raise UsageError(f"these calls cannot be written in the format {form!r}: {error}") from error
    parsed = parse(text, form, verbs=tuple(dict.fromkeys(call.name for call in calls)))
    told = [(call.name, dict(call.arguments), call.id) for call in parsed.calls]
    for index, call in enumerate(wanted):
        if index >= len(told) or not _same(call, told[index]):
            raise UsageError(
                f"call {index} ({call[0][:60]!r}) cannot be written in the format {form!r}: it would not be read as it "
                f"was meant. Use another format ({', '.join(FORMATS)}) or other arguments"
            )
    if parsed.problems or len(told) != len(wanted):
        raise UsageError(f"these {len(calls)} calls cannot be written in one message of the format {form!r}")
    return text


def _same(wanted: tuple[str, dict[str, object], str | None], told: tuple[str, dict[str, object], str | None]) -> bool:
    if (wanted[0], wanted[2], list(wanted[1])) != (told[0], told[2], list(told[1])):
        return False
    return all(_equal(value, told[1][key]) for key, value in wanted[1].items())


def _equal(wanted: object, told: object) -> bool:
    return write_json(wanted) == write_json(told) or (not isinstance(wanted, str) and told == write_json(wanted))


def _without_end(text: str, special: Sequence[str]) -> str:
    marks = tuple(mark for mark in special if mark)
    while marks and (bare := text.rstrip()).endswith(marks):
        text = bare[: -len(max((mark for mark in marks if bare.endswith(mark)), key=len))]
    return text


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
        form: str = "hermes",
        *,
        verbs: Sequence[str] = (),
        opened: bool = False,
        cut_off: bool = False,
        special: Sequence[str] = (),
    ) -> Parsed:
        """Parse everything so far, as the function ``parse`` does."""
        return parse(self.text, form, verbs=verbs, opened=opened, cut_off=cut_off, special=special)
