"""Checks of an engine over time: many requests at once, new weights, cancellation, scoring, the end."""

import asyncio
from collections.abc import AsyncIterator
from dataclasses import replace

import numpy as np

from peira.agents.engine_check.answers import TEMPERATURES
from peira.agents.engine_check.bench import Bench, EngineCheck
from peira.agents.types import Finish
from peira.tools.errors import Fault, UsageError

__all__ = ["CHECKS"]

_AT_ONCE = 64
_LONG = 200


async def _concurrent(bench: Bench) -> AsyncIterator[str]:
    requests = [bench.request(2000 + n, temperature=TEMPERATURES[n % 3], max_tokens=4 + n % 9) for n in range(_AT_ONCE)]
    answers = await bench.all(requests)
    for request, answer in zip(requests, answers, strict=True):
        if broken := bench.wrong(request, answer, f"{_AT_ONCE} at once"):
            yield f"among {_AT_ONCE} at once: {broken}"
    if "seeds" in bench.subject.lacks:
        return
    for request, answer in list(zip(requests, answers, strict=True))[::8]:
        alone = await bench.engine.generate(request)
        if alone.ids.tolist() != answer.ids.tolist():
            yield f"a request gave other ids among {_AT_ONCE} than alone"


async def _delivery(bench: Bench) -> AsyncIterator[str]:
    request = bench.request(2100, prompt=bench.prompt(2100, _LONG), session=bench.session())
    before = await bench.engine.generate(request)
    version = bench.engine.version
    try:
        for k in (1, 0):
            await bench.load(k)
            if bench.engine.version == version:
                yield f"the version is still {version} after a delivery"
            version = bench.engine.version
            for again in (request, replace(request, session=None)):
                after = await bench.engine.generate(again)
                if broken := bench.wrong(again, after, "after a delivery"):
                    yield f"after a delivery, the same prompt: {broken}"
                if set(after.versions.tolist()) != {version}:
                    yield f"ids made with version {version} are stamped {sorted(set(after.versions.tolist()))}"
        if bench.gap(request, before, 0) <= bench.subject.tolerance >= bench.gap(request, before, 1):
            yield "the two sets of weights say the same, so nothing was tried; bring others"
    finally:
        bench.engine.release(request.session or 0)
        if bench.weights != 0:
            await bench.load(0)


async def _in_flight(bench: Bench) -> AsyncIterator[str]:
    size = min(32, bench.engine.context // 2)
    requests = [bench.request(2200 + n, max_tokens=size) for n in range(4)]
    old = bench.engine.version
    tasks = await bench.begun(requests)
    await bench.load(1)
    new = bench.engine.version
    try:
        for request, answer in zip(requests, await asyncio.gather(*tasks), strict=True):
            if broken := bench.shape(request, answer):
                yield f"in flight over a delivery: {broken}"
                continue
            made = answer.versions.tolist()
            if made != sorted(made) or not set(made) <= {old, new}:
                yield f"versions {sorted(set(made))} where {old} and {new} made the ids"
                continue
            true = np.where(
                answer.versions == old,
                *(
                    bench.subject.reference.logprobs(request.prompt, answer.ids, request.temperature, None, k)
                    for k in (0, 1)
                ),
            )
            gap = float(np.abs(answer.logprobs - true).max())
            if gap > bench.subject.tolerance:
                yield f"ids differ by {gap:.3g} from what the weights they are stamped with say"
    finally:
        await bench.load(0)


async def _cancelled(bench: Bench) -> AsyncIterator[str]:
    size = min(64, bench.engine.context // 2)
    for round_ in range(3):
        tasks = await bench.begun([bench.request(2300 + n, max_tokens=size) for n in range(16)])
        waiting = [task for task in tasks if not task.done()]
        for task in waiting:
            task.cancel()
        done, pending = await asyncio.wait(tasks, timeout=bench.subject.seconds / 8)
        if pending:
            yield f"{len(pending)} of {len(waiting)} cancelled requests did not end"
            return
        late = [task for task in done if task in waiting and not task.cancelled() and task.exception() is None]
        if late and len(late) == len(waiting):
            yield "a cancelled request went on to its end"
        request = bench.request(2350 + round_)
        async with asyncio.timeout(bench.subject.seconds / 4):
            answer = await bench.engine.generate(request)
        if broken := bench.wrong(request, answer, "after cancellation"):
            yield f"after cancellation: {broken}"


async def _score(bench: Bench) -> AsyncIterator[str]:
    candidates = (*bench.ids(5, 5), *bench.subject.native)
    ids = bench.prompt(2400, 12)
    table = await bench.engine.score(ids, bench.ids(5, 5), 1)
    if table.shape != (len(ids) - 1, len(bench.ids(5, 5))):
        yield f"score gave {table.shape}, not {(len(ids) - 1, len(bench.ids(5, 5)))}"
        return
    for t in range(1, len(ids)):
        row = bench.subject.reference.distribution(ids[:t], 1.0, None, bench.weights)
        gap = float(np.abs(table[t - 1] - row[list(candidates[: table.shape[1]])]).max())
        if gap > bench.subject.tolerance:
            yield f"scores differ from the learner's by {gap:.3g}"
            return


async def _closed(bench: Bench) -> AsyncIterator[str]:
    size = min(64, bench.engine.context // 2)
    tasks = await bench.begun([bench.request(2500 + n, max_tokens=size) for n in range(4)])
    async with asyncio.timeout(bench.subject.seconds / 4):
        await bench.engine.close()
    done, pending = await asyncio.wait(tasks, timeout=bench.subject.seconds / 4)
    if pending:
        yield f"{len(pending)} requests were left without an answer when the engine was closed"
        for task in pending:
            task.cancel()
    for task in done:
        error = None if task.cancelled() else task.exception()
        if task.cancelled() or (error is not None and not isinstance(error, Fault | UsageError)):
            yield f"a request that was open when the engine closed ended with {error or 'a cancellation of its own'!r}"
        elif error is None and task.result().finish is not Finish.ABORT and not len(task.result().ids):
            yield "a request that was open when the engine closed came back empty, and not as aborted"
    try:
        async with asyncio.timeout(bench.subject.seconds / 4):
            await bench.engine.generate(bench.request(2600))
    except (UsageError, Fault):
        return
    yield "a closed engine goes on answering"


CHECKS = (
    EngineCheck(f"{_AT_ONCE} at once", _concurrent, "keep requests apart: no answer, seed or cache of another's"),
    EngineCheck(
        "cache after delivery", _delivery, "drop every cache when weights arrive, and load all of them", ("delivery",)
    ),
    EngineCheck(
        "in flight over a delivery",
        _in_flight,
        "keep requests in flight, recompute what was cached for them, stamp each id with what made it",
        ("delivery",),
    ),
    EngineCheck("cancellation", _cancelled, "stop work that nobody waits for, and free its place"),
    EngineCheck("score", _score, "score given ids by a plain forward pass", ("score",)),
    EngineCheck("closing", _closed, "end pending requests as aborted and refuse new ones"),
)
"""In the order in which they run; closing comes last."""
