"""Throw texts at every call format and see that the contract holds: ``python tests/fuzz/fuzz_calls.py --seconds 3600``.

A text is random pieces of formats, a message that was written and then damaged, or noise. For each, in every format:

* nothing raises, and a cut-off message holds no call;
* cutting the message into chunks changes nothing;
* a call's place lies inside the message, and reading twice gives the same;
* calls that ``write`` writes come back as they were.

The seed and number of a text that breaks something are printed: ``--seed S --start N --texts 1`` shows it again.
"""

import argparse
import sys
import time
from collections.abc import Callable
from typing import Any

import numpy as np

from peira.envs.seeding import rng
from peira.tools.calls import FORMATS, Call, Parsed, Stream, action_of, boxed_answer, parse, tagged_answer, write
from peira.tools.errors import UsageError

VERBS = ("search", "list", "answer")
SHARDS = (
    *("<think>", "</think>", "[THINK]", "[/THINK]", "<tool_call>", "</tool_call>", "<function=f>", "</function>"),
    *("<parameter=x>", "</parameter>", "<search>", "</search>", "<answer>", "</answer>", "<list/>", "[TOOL_CALLS]"),
    *("[ARGS]", "[CALL_ID]", "<|python_tag|>", "Action:", "Action Input:", "Observation:", "Thought:", "Final Answer:"),
    *('{"name":"f","arguments":{}}', '{"name":"f","parameters":{"x":1}}', '{"name":"f"', '{"x":', "[f(x=1)]", "[f(x="),
    *('"', "\\", "{", "}", "[", "]", "(", ")", "'", "'''", "=", ",", ":", ";", "<", ">", "</", "f", "1e999", "-", "0x"),
    *(" ", "\n", "\t", "\r\n", "A B", "é", "🚪", "\x00", "\ud800", "\ufdd0", "\u2028", "\\u00e9", "\\ud83d", "null"),
    *("\\boxed{", "####", "NaN", "True", "<|im_end|>", "<|eot_id|>"),
)
Parser = Callable[..., Parsed]


def value(draw: np.random.Generator, depth: int = 0) -> Any:
    """A JSON value whose texts are hostile."""
    kind = int(draw.integers(8 if depth < 3 else 5))
    if kind == 0:
        return [None, True, False][int(draw.integers(3))]
    if kind == 1:
        return int(draw.integers(-(10**9), 10**9))
    if kind == 2:
        return float(draw.normal() * 10.0 ** int(draw.integers(-8, 8)))
    if kind < 6:
        return "".join(pieces(draw, 6))
    if kind == 6:
        return [value(draw, depth + 1) for _ in range(int(draw.integers(4)))]
    return {f"k{n}": value(draw, depth + 1) for n in range(int(draw.integers(4)))}


def pieces(draw: np.random.Generator, most: int) -> list[str]:
    """Up to ``most`` pieces, mostly those that formats are made of."""
    size = int(draw.integers(most + 1))
    noise = draw.integers(0x20, 0x2FF, size=size)
    return [chr(int(noise[n])) if draw.random() < 0.2 else SHARDS[int(draw.integers(len(SHARDS)))] for n in range(size)]


def calls(draw: np.random.Generator) -> list[Call]:
    """A few calls."""
    return [
        Call(
            str(draw.choice(["search", "list", "f", "a-b.c"])), {f"x{n}": value(draw) for n in range(draw.integers(4))}
        )
        for _ in range(int(draw.integers(1, 4)))
    ]


def damaged(draw: np.random.Generator, text: str) -> str:
    """Cut out, double or insert something a few times."""
    for _ in range(int(draw.integers(1, 4))):
        low, high = sorted(int(n) for n in draw.integers(0, len(text) + 1, size=2))
        high = min(high, low + 12)
        piece = ["", text[low:high] * 2, "".join(pieces(draw, 2))][int(draw.integers(3))]
        text = text[:low] + piece + text[high:]
    return text


def message(draw: np.random.Generator) -> str:
    """One text of the kinds above."""
    if draw.random() < 0.5:
        return "".join(pieces(draw, 30))
    form = str(draw.choice(list(FORMATS)))
    try:
        return damaged(draw, write(calls(draw), form))
    except UsageError:
        return "".join(pieces(draw, 30))


def check(draw: np.random.Generator, text: str, parser: Parser = parse) -> None:
    """Hold one text against the contract.

    Raises:
        AssertionError: it is broken.
    """
    opened = bool(draw.integers(2))
    cuts = sorted(int(n) for n in draw.integers(0, len(text) + 1, size=3))
    for form in FORMATS:
        given: dict[str, Any] = {"verbs": VERBS, "opened": opened, "special": ("<|im_end|>",)}
        parsed = parser(text, form, **given)
        assert parsed == parser(text, form, **given), f"{form}: two readings differ"
        assert all(0 <= item.at <= len(text) for item in parsed.items), f"{form}: a place outside the text"
        assert not parser(text, form, cut_off=True, **given).calls, f"{form}: a call in a cut-off message"
        stream = Stream()
        for low, high in zip([0, *cuts], [*cuts, len(text)], strict=True):
            stream.feed(text[low:high])
        assert stream.parse(form, **given) == parsed, f"{form}: chunks changed the result"
    action_of(text, VERBS, opened=opened)
    tagged_answer(text, opened=opened)
    boxed_answer(text, opened=opened)


def round_trip(draw: np.random.Generator, parser: Parser = parse) -> int:
    """Write calls in every format that can express them and read them again; return how many formats could."""
    made, done = calls(draw), 0
    for form in FORMATS:
        try:
            text = write(made, form)
        except UsageError:
            continue
        parsed = parser(text, form, verbs=tuple({call.name for call in made}))
        assert [call.name for call in parsed.calls] == [call.name for call in made], f"{form}: other calls came back"
        assert not parsed.problems, f"{form}: a problem came back"
        typed = form not in ("qwen_coder", "tags")
        for sent, got in zip(made, parsed.calls, strict=True):
            assert not typed or dict(got.arguments) == dict(sent.arguments), f"{form}: other arguments came back"
        done += 1
    return done


def run(seed: int, start: int, texts: int | None, seconds: float | None, parser: Parser = parse) -> tuple[int, int]:
    """Check texts ``start``, ``start + 1``, ...; return how many, and how many round trips were made."""
    until = None if seconds is None else time.monotonic() + seconds
    number, trips = start, 0
    while (texts is None or number < start + texts) and (until is None or time.monotonic() < until):
        draw = rng("fuzz calls", seed, number)
        text = message(draw)
        try:
            check(draw, text, parser)
            trips += round_trip(draw, parser)
        except Exception as error:
            raise AssertionError(f"seed {seed}, text {number}: {error!r}\n{text!r}") from error
        number += 1
    return number - start, trips


def main() -> int:
    """Fuzz from the command line."""
    options = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    options.add_argument("--seconds", type=float, help="how long")
    options.add_argument("--texts", type=int, help="how many")
    options.add_argument("--seed", type=int, default=0)
    options.add_argument("--start", type=int, default=0, help="number of the first text")
    given = options.parse_args()
    if given.seconds is None and given.texts is None:
        options.error("say --seconds or --texts")
    done, trips = run(given.seed, given.start, given.texts, given.seconds)
    sys.stdout.write(
        f"{done} texts in {len(FORMATS)} formats, {trips} round trips, nothing broke (seed {given.seed})\n"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
