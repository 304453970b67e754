"""The checks of engines: a right engine passes them all, and each of them fails on the fault it is there for."""

import asyncio
import json
from dataclasses import replace

import numpy as np
import pytest

from peira.agents.engine_check import ENGINE_CHECKS, TableEngine, TableModel, check_engine, table_subject
from peira.agents.engines.base import Engine, Request
from peira.agents.types import Completion, Finish, Legal
from peira.envs.seeding import rng
from peira.tools.errors import Fault, UsageError

NAMES = [check.name for check in ENGINE_CHECKS]
MODEL = TableModel()


def test_the_scripted_engine_passes_every_check():
    report = check_engine(table_subject())
    assert report.findings == ()
    assert list(report.passed) == NAMES
    assert report.skipped == {}
    assert report.ok
    assert {f"log-probs at T={t:g}" for t in (0.5, 1, 1.3)} <= set(report.figures)
    assert max(report.figures.values()) < 1e-5
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["ok"]
    assert isinstance(TableEngine(), Engine)


def test_the_table_is_a_distribution_and_depends_on_the_whole_context():
    weights = MODEL.weights(0)
    context = np.array([3, 1, 2], dtype=np.int32)
    row = MODEL.next(weights, context, 1.3, None)
    assert np.exp(row).sum() == pytest.approx(1.0)
    assert np.isneginf(row[list(MODEL.native)]).all()
    scores = (weights["last"][2] + weights["sum"][6])[: MODEL.vocab] / 1.3
    assert row[5] == pytest.approx(scores[5] - np.log(np.exp(scores).sum()))
    assert not np.allclose(row[:40], MODEL.next(weights, np.array([4, 1, 2]), 1.3, None)[:40])
    narrow = MODEL.next(weights, context, 1.0, Legal(False, (40, 41)))
    assert np.exp(narrow[[40, 41]]).sum() == pytest.approx(1.0)


# ---- planted faults -------------------------------------------------------------------------------------------------


class Edited(TableEngine):
    """A right engine whose answers are changed afterwards."""

    async def generate(self, request: Request) -> Completion:
        return self.edit(await super().generate(request), request)

    def edit(self, answer: Completion, request: Request) -> Completion:
        raise NotImplementedError


class Raw(Edited):
    """Log-probs before temperature."""

    def edit(self, answer, request):
        true = MODEL.logprobs(request.prompt, answer.ids, 1.0, request.legal, 0)
        return replace(answer, logprobs=true)


class Divided(Edited):
    """A log-prob divided by the temperature is not the log-prob at that temperature."""

    def edit(self, answer, request):
        true = MODEL.logprobs(request.prompt, answer.ids, 1.0, request.legal, 0)
        return replace(answer, logprobs=true / np.float32(request.temperature or 1.0))


class Retokenized(Edited):
    """An id is replaced by another of the same text."""

    def edit(self, answer, request):
        ids = answer.ids.copy()
        ids[0] = (ids[0] + 1) % MODEL.vocab if ids[0] < MODEL.vocab else ids[0]
        return replace(answer, ids=ids)


class Shifted(Edited):
    """Log-probs one place off (B08)."""

    def edit(self, answer, request):
        return replace(answer, logprobs=np.roll(answer.logprobs, 1))


class NaN(Edited):
    def edit(self, answer, request):
        return replace(answer, logprobs=np.full(len(answer.ids), np.nan, dtype=np.float32))


class Forgetful(TableEngine):
    """Sees only what a session has added since its last turn."""

    def __init__(self):
        super().__init__()
        self.seen = {}

    async def generate(self, request):
        known = self.seen.get(request.session, 0)
        if request.session is not None:
            self.seen[request.session] = len(request.prompt)
        cut = request.prompt[known:] if known < len(request.prompt) else request.prompt
        return await super().generate(replace(request, prompt=cut))


class OneSeed(TableEngine):
    async def generate(self, request):
        return await super().generate(replace(request, seed=0))


class NoSeed(TableEngine):
    count = 0

    async def generate(self, request):
        self.count += 1
        return await super().generate(replace(request, seed=self.count))


class Greedy(TableEngine):
    def choose(self, row, request, draw):
        return int(row.argmax())


class TopK(TableEngine):
    """Samples among the five best and reports log-probs of the whole distribution."""

    def choose(self, row, request, draw):
        best = np.argsort(row)[-5:]
        p = np.exp(row[best])
        return int(best[draw.choice(len(best), p=p / p.sum())])


class NeverGreedy(TableEngine):
    def choose(self, row, request, draw):
        p = np.exp(row)
        return int(draw.choice(len(row), p=p / p.sum()))


class DropsStop(Edited):
    """The stop id is left out, as servers do that return text."""

    def edit(self, answer, request):
        if answer.finish is not Finish.STOP or len(answer.ids) < 2:
            return answer
        return Completion(answer.ids[:-1], answer.logprobs[:-1], answer.versions[:-1], Finish.STOP)


class AddsStop(Edited):
    """A stop id that nobody sampled is appended, with probability one (B09)."""

    def edit(self, answer, request):
        if answer.finish is not Finish.LENGTH or not request.stop or len(answer.ids) < 2:
            return answer
        ids, logprobs = answer.ids.copy(), answer.logprobs.copy()
        ids[-1], logprobs[-1] = request.stop[0], 0.0
        return Completion(ids, logprobs, answer.versions, Finish.STOP)


class RunsOn(TableEngine):
    """Knows no stop ids."""

    async def generate(self, request):
        return await super().generate(replace(request, stop=()))


class TooLong(TableEngine):
    async def generate(self, request):
        return await super().generate(replace(request, max_tokens=request.max_tokens + 1))


class Short(TableEngine):
    """Gives one id less than asked for."""

    async def generate(self, request):
        return await super().generate(replace(request, max_tokens=max(1, request.max_tokens - 1)))


class NoReason(Edited):
    """A cut-off turn says it ended by itself (P038)."""

    def edit(self, answer, request):
        return replace(answer, finish=Finish.STOP)


class AnyLength(TableEngine):
    """Cuts a prompt that is too long on the left, silently (B11)."""

    async def generate(self, request):
        return await super().generate(replace(request, prompt=request.prompt[-(self.context - 20) :]))


class Unmasked(TableEngine):
    """Samples from the vocabulary whatever is legal."""

    async def generate(self, request):
        return await super().generate(replace(request, legal=None))


class MaskedAfterwards(Edited):
    """Samples what is legal but reports the probability among all rows."""

    def edit(self, answer, request):
        if request.legal is None:
            return answer
        every = Legal(True, MODEL.native)
        return replace(answer, logprobs=MODEL.logprobs(request.prompt, answer.ids, request.temperature, every, 0))


class OldMask(TableEngine):
    """The first legal set of a session is kept for all its turns."""

    def __init__(self):
        super().__init__()
        self.first = {}

    async def generate(self, request):
        legal = self.first.setdefault(request.session, request.legal) if request.session else request.legal
        return await super().generate(replace(request, legal=legal))


class EmptyMask(TableEngine):
    async def generate(self, request):
        empty = request.legal is not None and not request.legal.vocab and not request.legal.ids
        return await super().generate(replace(request, legal=None) if empty else request)


class Lenient(TableEngine):
    async def generate(self, request):
        return await super().generate(replace(request, max_tokens=max(1, request.max_tokens)))


class Mixed(TableEngine):
    """Answers the newest request to whoever is waiting."""

    newest = None

    async def generate(self, request):
        self.newest = request
        await asyncio.sleep(0)
        return await super().generate(self.newest)


class Crowded(TableEngine):
    """Draws from one stream for all: what a request gets depends on who else is there."""

    def __init__(self):
        super().__init__()
        self.running, self.streams = 0, {}

    async def generate(self, request):
        self.running += 1
        try:
            return await super().generate(replace(request, seed=request.seed + 7 * (self.running > 1)))
        finally:
            self.running -= 1


class StaleCache(TableEngine):
    """Answers by prompt and seed, whatever the weights (P097)."""

    def __init__(self):
        super().__init__()
        self.cache = {}

    async def generate(self, request):
        key = (request.prompt.tobytes(), request.seed, request.temperature, request.max_tokens)
        if key not in self.cache:
            self.cache[key] = await super().generate(request)
        answer = self.cache[key]
        return replace(answer, versions=np.full(len(answer.ids), self.version, dtype=np.int32))


class NoDelivery(TableEngine):
    """Counts versions and keeps its weights (P098)."""

    def load(self, weights, version):
        super().load(self.weights, version)


class HalfDelivery(TableEngine):
    """One of the tables stays behind, as a tied head does (P104)."""

    def load(self, weights, version):
        super().load({**weights, "sum": self.weights["sum"]}, version)


class NoVersion(TableEngine):
    def load(self, weights, version):
        super().load(weights, 0)


class StampedAtTheStart(TableEngine):
    """Every id carries the version under which its request began (B38)."""

    async def generate(self, request):
        began = self.version
        answer = await super().generate(request)
        return replace(answer, versions=np.full(len(answer.ids), began, dtype=np.int32))


class StampedAtTheEnd(Edited):
    """Every id carries the version under which its request ended (P077)."""

    def edit(self, answer, request):
        return replace(answer, versions=np.full(len(answer.ids), self.version, dtype=np.int32))


class Aborts(TableEngine):
    """A delivery ends what is in flight (B45)."""

    async def generate(self, request):
        began = self.version
        answer = await super().generate(request)
        return answer if self.version == began else replace(answer, finish=Finish.ABORT)


class Shielded(TableEngine):
    """Goes on when cancelled."""

    async def generate(self, request):
        work = asyncio.ensure_future(super().generate(request))
        while not work.done():
            try:
                await asyncio.shield(work)
            except asyncio.CancelledError:
                continue
        return work.result()


class LosesPlaces(TableEngine):
    """A cancelled request keeps its place for ever."""

    def __init__(self):
        super().__init__()
        self.places = asyncio.Semaphore(40)

    async def generate(self, request):
        await self.places.acquire()
        answer = await super().generate(request)
        self.places.release()
        return answer


class FlatScore(TableEngine):
    async def score(self, ids, candidates, start, legal=None):
        return np.full((len(ids) - start, len(candidates)), -1.0, dtype=np.float32)


class ShiftedScore(TableEngine):
    async def score(self, ids, candidates, start, legal=None):
        return np.roll(await super().score(ids, candidates, start, legal), 1, axis=0)


class Immortal(TableEngine):
    """Answers after it was closed."""

    async def close(self):
        pass


class Abandons(TableEngine):
    """Leaves open requests without an answer when it is closed."""

    async def generate(self, request):
        answer = await super().generate(request)
        if self.closed:
            await asyncio.Event().wait()
        return answer


class Dies(TableEngine):
    async def generate(self, request):
        raise Fault("CUDA error", where="engine")


class Breaks(TableEngine):
    async def generate(self, request):
        raise KeyError("hidden_states")


PLANTED = [
    (Raw, "log-probs"),
    (Divided, "log-probs"),
    (Retokenized, "token fidelity"),
    (Shifted, "token fidelity"),
    (NaN, "token fidelity"),
    (Forgetful, "token fidelity"),
    (OneSeed, "seeds"),
    (NoSeed, "seeds"),
    (Greedy, "sampling"),
    (TopK, "sampling"),
    (NeverGreedy, "greedy"),
    (DropsStop, "stop"),
    (AddsStop, "stop"),
    (RunsOn, "stop"),
    (TooLong, "length"),
    (Short, "length"),
    (NoReason, "length"),
    (AnyLength, "length"),
    (Unmasked, "legality"),
    (MaskedAfterwards, "legality"),
    (OldMask, "legality"),
    (EmptyMask, "legality"),
    (Lenient, "refusals"),
    (Mixed, "64 at once"),
    (Crowded, "64 at once"),
    (StaleCache, "cache after delivery"),
    (NoDelivery, "cache after delivery"),
    (HalfDelivery, "cache after delivery"),
    (NoVersion, "cache after delivery"),
    (StampedAtTheStart, "in flight over a delivery"),
    (StampedAtTheEnd, "in flight over a delivery"),
    (Aborts, "in flight over a delivery"),
    (Shielded, "cancellation"),
    (LosesPlaces, "cancellation"),
    (FlatScore, "score"),
    (ShiftedScore, "score"),
    (Immortal, "closing"),
    (Abandons, "closing"),
    (Dies, "token fidelity"),
    (Breaks, "token fidelity"),
]


@pytest.mark.parametrize(("engine", "check"), PLANTED, ids=lambda value: getattr(value, "__name__", value))
def test_each_check_fails_on_the_fault_it_is_there_for(engine, check):
    seconds = 2.0 if engine in (LosesPlaces, Abandons) else 120.0
    report = check_engine(table_subject(open=engine, seconds=seconds))
    assert check in [finding.check for finding in report.findings]
    assert check not in report.passed
    assert not report.ok
    assert "FAILED" in str(report)


def test_every_check_has_a_planted_fault():
    assert {check for _, check in PLANTED} == set(NAMES)


def test_raw_logprobs_are_recognised_for_what_they_are():
    report = check_engine(table_subject(open=Raw))
    causes = [finding.cause for finding in report.findings if finding.check == "log-probs"]
    assert any("temperature 1 (raw)" in cause for cause in causes)
    assert all(not cause.startswith("T=1:") for cause in causes)


def test_b50_an_engine_that_hangs_is_named_within_the_bound():
    class Hangs(TableEngine):
        async def generate(self, request):
            await asyncio.Event().wait()

    report = check_engine(table_subject(open=Hangs, seconds=0.2))
    assert {finding.check for finding in report.findings} >= set(NAMES) - {"score"}
    assert any("no answer in time" in finding.cause for finding in report.findings)


def test_what_an_engine_lacks_is_skipped_and_said():
    report = check_engine(table_subject(lacks=frozenset({"delivery", "score"})))
    assert report.ok
    assert report.skipped == {
        "cache after delivery": "delivery",
        "in flight over a delivery": "delivery",
        "score": "score",
    }
    assert "skipped  score (the engine has no score)" in str(report)


def test_an_engine_may_open_and_load_with_await():
    class Awaited(TableEngine):
        def load(self, weights, version):
            async def later():
                await asyncio.sleep(0)
                super(Awaited, self).load(weights, version)

            return later()

    async def opened():
        await asyncio.sleep(0)
        return Awaited()

    assert check_engine(table_subject(open=opened)).ok


def test_an_engine_that_cannot_be_opened_is_the_persons_error():
    def opened():
        raise UsageError("no weights")

    with pytest.raises(UsageError, match="no weights"):
        check_engine(table_subject(open=opened))


def test_two_equal_sets_of_weights_try_nothing_and_that_is_said():
    weights = MODEL.weights(0)
    report = check_engine(table_subject(weights=(weights, weights), reference=_Still()))
    assert any("say the same" in finding.cause for finding in report.findings)


class _Still(TableModel):
    def weights(self, number):
        return super().weights(0)


def test_prompts_of_the_checks_differ_and_repeat():
    draws = [rng("engine check", "prompt", n).integers(0, 40, size=3).tolist() for n in (1, 1, 2)]
    assert draws[0] == draws[1] != draws[2]


def test_peira_check_engine_on_the_scripted_engine(capsys):
    from peira.training.cli import main

    assert main(["check", "--engine", "scripted"]) == 0
    assert "passed   log-probs" in capsys.readouterr().out
    assert main(["check", "--engine", "scripted", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["passed"] == NAMES
