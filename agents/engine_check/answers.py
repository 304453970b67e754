"""Checks of single answers: fidelity, log-probs, seeds, ends, legal sets."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np

from peira.agents.engine_check.bench import Bench, EngineCheck
from peira.agents.engines.base import Request
from peira.agents.types import Finish, Legal
from peira.tools.errors import Fault, UsageError

__all__ = ["CHECKS", "TEMPERATURES"]

TEMPERATURES = (0.5, 1.0, 1.3)
_MANY = 256
_SIGMAS = 6.0


async def _fidelity(bench: Bench) -> AsyncIterator[str]:
    """Prompts grow by the ids that were sampled, or jump back (a window), within one session."""
    for number in range(3):
        session = bench.session()
        first = bench.request(number, session=session)
        answer = await bench.engine.generate(first)
        if broken := bench.wrong(first, answer, "token fidelity"):
            yield f"turn 0: {broken}"
        grown = np.concatenate([first.prompt, answer.ids, bench.prompt(100 + number)])
        other = np.concatenate([first.prompt[:2], bench.prompt(200 + number)])
        for turn, prompt in enumerate((grown, other, grown[: len(first.prompt) + 1]), 1):
            request = replace(first, prompt=prompt.astype(np.int32), seed=1000 * number + turn)
            said = await bench.engine.generate(request)
            if broken := bench.wrong(request, said, "token fidelity"):
                yield f"turn {turn} of a session: {broken}"
        bench.engine.release(session)


async def _logprobs(bench: Bench) -> AsyncIterator[str]:
    for temperature in TEMPERATURES:
        requests = [bench.request(300 + n, temperature=temperature) for n in range(6)]
        for request, answer in zip(requests, await bench.all(requests), strict=True):
            broken = bench.wrong(request, answer, f"log-probs at T={temperature:g}")
            if broken is None:
                continue
            raw = bench.gap(replace(request, temperature=1.0), answer)
            hint = "; they are those of temperature 1 (raw)" if temperature != 1 and raw < 1e-3 else ""
            yield f"T={temperature:g}: {broken}{hint}"


async def _greedy(bench: Bench) -> AsyncIterator[str]:
    for number in range(4):
        request = bench.request(400 + number, temperature=0.0)
        answer = await bench.engine.generate(request)
        if broken := bench.wrong(request, answer, "greedy"):
            yield broken
        for t in range(len(answer.ids)):
            context = np.concatenate([request.prompt, answer.ids[:t]]).astype(np.int32)
            row = bench.subject.reference.distribution(context, 1.0, None, bench.weights)
            if row[answer.ids[t]] < row.max() - bench.subject.tolerance:
                yield f"id {int(answer.ids[t])} was chosen at temperature 0; id {int(row.argmax())} is more probable"
                break


async def _sampling(bench: Bench) -> AsyncIterator[str]:
    """The mean log-prob of many samples is the distribution's own, within what chance allows."""
    for temperature in TEMPERATURES:
        first = bench.request(500, temperature=temperature, max_tokens=1)
        requests = [replace(first, seed=10_000 + n) for n in range(_MANY)]
        answers = await bench.all(requests)
        row = bench.subject.reference.distribution(first.prompt, temperature, None, bench.weights)
        p = np.exp(row)
        told = np.where(p > 0, row, 0.0)
        mean = float((p * told).sum())
        spread = float(np.sqrt(max((p * told**2).sum() - mean**2, 0.0) / _MANY))
        seen = float(np.mean([row[int(answer.ids[0])] for answer in answers]))
        if abs(seen - mean) > _SIGMAS * spread + bench.subject.tolerance:
            yield (
                f"T={temperature:g}: {_MANY} samples have a mean log-prob of {seen:.3f}; the distribution they should "
                f"come from has {mean:.3f} (give or take {spread:.3f})"
            )


async def _seeds(bench: Bench) -> AsyncIterator[str]:
    first = bench.request(600, temperature=1.3)
    again = [await bench.engine.generate(first) for _ in range(2)]
    if again[0].ids.tolist() != again[1].ids.tolist():
        yield "the same request with the same seed gave two completions"
    group = await bench.all([replace(first, seed=seed) for seed in range(8)])
    if len({tuple(answer.ids.tolist()) for answer in group}) < 2:
        yield "8 requests with 8 seeds gave one completion"


async def _stop(bench: Bench) -> AsyncIterator[str]:
    """Many stop ids, so that completions end at one; and few, so that most are cut off beside one."""
    many, few = bench.ids(1, max(2, bench.subject.vocab // 6)), bench.ids(3, 1)
    requests = [
        bench.request(700 + n, stop=few if n % 2 else many, max_tokens=8 if n % 2 else 24, temperature=1.3)
        for n in range(16)
    ]
    answers = await bench.all(requests)
    for request, answer in zip(requests, answers, strict=True):
        if broken := bench.wrong(request, answer, "stop"):
            yield broken
    if all(answer.finish is not Finish.STOP for answer in answers):
        yield f"none of {len(answers)} completions ended at one of up to {len(many)} stop ids"


async def _length(bench: Bench) -> AsyncIterator[str]:
    for size in (1, 2, 7):
        request = bench.request(800 + size, max_tokens=size)
        if broken := bench.wrong(request, await bench.engine.generate(request), "length"):
            yield broken
    context = bench.engine.context
    if context > 4096:  # filling it would take longer than it teaches
        return
    draw = bench.prompt(810, 3)
    full = np.resize(draw, context - 3).astype(np.int32)
    request = Request(full, max_tokens=20, seed=1)
    if broken := bench.wrong(request, await bench.engine.generate(request), "length"):
        yield f"at the end of the context: {broken}"
    if told := await _accepted(bench, replace(request, prompt=np.resize(draw, context).astype(np.int32))):
        yield f"a prompt as long as the context: {told}"


async def _legal(bench: Bench) -> AsyncIterator[str]:
    session = bench.session()
    for number in range(6):
        some = bench.subject.native or bench.ids(2, 6)
        sets = [Legal(False, some), Legal(False, some[:1]), Legal(False, bench.ids(10 + number, 4))]
        if bench.subject.native:
            sets.append(Legal(True, some[: 1 + number % len(some)]))
        for legal in sets:
            request = bench.request(900 + number, legal=legal, session=session, temperature=1.3)
            answer = await bench.engine.generate(request)
            if broken := bench.wrong(request, answer, "legality"):
                yield f"{len(legal.ids)} legal ids{' and the vocabulary' if legal.vocab else ''}: {broken}"
    bench.engine.release(session)
    if told := await _accepted(bench, bench.request(950, legal=Legal(False, ()))):
        yield f"an empty legal set: {told}"


async def _refusals(bench: Bench) -> AsyncIterator[str]:
    bad = np.array([0, bench.subject.vocab + len(bench.subject.native) + 1_000_000], dtype=np.int32)
    for what, request in (
        ("a prompt with an id beyond the model", bench.request(1, prompt=bad)),
        ("max_tokens of 0", bench.request(1, max_tokens=0)),
    ):
        if told := await _accepted(bench, request):
            yield f"{what}: {told}"


async def _accepted(bench: Bench, request: Request) -> str | None:
    """Return what came of a request that can never work, if it was not refused."""
    try:
        answer = await bench.engine.generate(request)
    except (UsageError, Fault):
        return None
    except asyncio.CancelledError:
        raise
    except Exception as error:  # the boundary to the engine under test
        return f"raised {type(error).__name__}, not UsageError or Fault"
    return f"was answered with {len(answer.ids)} ids instead of being refused"


CHECKS = (
    EngineCheck("token fidelity", _fidelity, "send and return token ids; never re-tokenize, never edit a completion"),
    EngineCheck(
        "log-probs",
        _logprobs,
        "return log-probs of what was sampled from, temperature and mask applied",
    ),
    EngineCheck("greedy", _greedy, "at temperature 0 take the most probable id and report its log-prob at 1"),
    EngineCheck("sampling", _sampling, "sample from the model's own distribution: no top-p, top-k, penalties, bias"),
    EngineCheck("seeds", _seeds, "give every request its own stream, from its seed alone", ("seeds",)),
    EngineCheck("stop", _stop, "end at the first stop id, and return it with its log-prob"),
    EngineCheck("length", _length, "cut at max_tokens and at the context's end, with finish length"),
    EngineCheck("legality", _legal, "mask before the softmax; end a completion at an id of legal.ids", ("legality",)),
    EngineCheck("refusals", _refusals, "raise UsageError for a request that can never work"),
)
"""In the order in which they run."""
