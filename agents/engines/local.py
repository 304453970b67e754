"""The local engine: any decoder of the transformers library, driven by a loop over slots in the caller's event loop.

A newcomer prefills into a row of a static cache, a finished row retires, an episode keeps its row between its turns, so
that only new tokens are computed. One forward pass feeds every row whatever it has to feed: one token where it decodes,
several where an observation or a new prompt came in. Between two passes the loop yields until the episodes that were
answered have sent their next requests.
"""

import asyncio
from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from peira.agents.engines.base import Request
from peira.agents.engines.rows import Job, Rows
from peira.agents.engines.sampling import GO_ON, STOP, Rules, draw, uniforms
from peira.agents.engines.scoring import Scoring, score_all
from peira.agents.engines.slots import Feed, SlotCache
from peira.agents.engines.weights import take_weights
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.tools.errors import Fault, UsageError

__all__ = ["LocalEngine"]

_DEFAULT_CONTEXT = 2_048
_TOKENS = 2_048
"""Tokens in one forward pass, at the least room for them; longer prompts are fed in parts beside the decoding rows."""
_SILENT = 2
"""Rounds of the event loop without a new request after which the engine takes its next step."""
_ROUNDS = 16
"""Most rounds it waits: requests that keep trickling in must not stop it."""


class LocalEngine:
    """An ``Engine`` over a model in this process.

    Args:
        model: a causal LM of the transformers library. The engine owns it: train another copy and ``load`` from that.
        slots: requests served at once; more wait.
        context: longest prompt plus completion; by default the model's own, 2,048 at the most.
        vocab: number of plain ids (``Policy.vocab``); output rows from there on are sampled only where a request's
            legal set names them. By default every row is plain.
        version: version of the weights the model has now.

    Raises:
        UsageError: a model this engine cannot drive, or numbers that make no sense.
    """

    def __init__(
        self, model: Any, *, slots: int = 256, context: int | None = None, vocab: int | None = None, version: int = 0
    ) -> None:
        own = int(getattr(model.config, "max_position_embeddings", _DEFAULT_CONTEXT))
        head = model.get_output_embeddings().weight
        rows = int(head.shape[0])
        self._context = min(own, _DEFAULT_CONTEXT) if context is None else context
        self._vocab = rows if vocab is None else vocab
        if slots < 1 or self._context < 2 or not 1 <= self._vocab <= rows:
            raise UsageError(
                f"LocalEngine(slots={slots}, context={context}, vocab={vocab}): slots must be at least 1, the context "
                f"at least 2, and vocab between 1 and the model's {rows} output rows"
            )
        if self._context > own:
            raise UsageError(f"context={context} is longer than the {own} positions the model was made for")
        self._model = model.eval()
        self._version = version
        self._budget = max(_TOKENS, 2 * slots)
        self._rows = Rows(slots, self._context)
        self._cache = SlotCache(model, slots, self._context)
        self._rules = Rules(self._vocab, rows, head.device)
        self._waiting: deque[Job] = deque()
        self._returning: list[Job] = []
        self._scoring: list[Scoring] = []
        self._arrivals = 0
        self._pump: asyncio.Task[None] | None = None
        self._closed = False
        self._verify()

    # ---- the contract -----------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Version of the weights now in use."""
        return self._version

    @property
    def context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        return self._context

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; ``max_tokens`` is cut to what the context has left.

        Raises:
            Fault: the forward pass broke, or the log-prob of a sampled id is not finite.
            UsageError: a request that can never work.
        """
        self._check(request)
        job = Job(request, asyncio.get_running_loop().create_future())
        if self._rows.row_of(request.session) is not None:
            self._returning.append(job)
        else:
            self._waiting.append(job)
        self._wake()
        try:
            return await job.future
        finally:
            if job.row >= 0:  # cancelled: nobody waits for this row any more
                self._vacate(job.row)

    async def score(
        self, ids: Ids, candidates: Sequence[int], start: int, legal: Legal | None = None
    ) -> NDArray[np.float32]:
        """Return ``[T - start, C]``: log-prob (temperature 1) of each candidate as the id at positions start..T-1.

        Raises:
            Fault: the forward pass broke.
            UsageError: ids or candidates outside the model, ``start`` outside 1..T, or an empty legal set.
        """
        self._usable()
        self._check_ids(ids)
        self._rules.check(legal, tuple(candidates), "candidate")
        if not 1 <= start <= len(ids) <= self._context:
            raise UsageError(
                f"score needs 1 <= start <= T <= {self._context}; got start={start}, T={len(ids)} "
                "(the first id has nothing before it and no log-prob)"
            )
        future = asyncio.get_running_loop().create_future()
        self._scoring.append(Scoring(np.asarray(ids), tuple(candidates), start, legal, future))
        self._wake()
        scored: NDArray[np.float32] = await future
        return scored

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights (tensors or arrays by parameter name); requests in flight go on under them.

        Everything cached is dropped; ids already sampled keep the version that made them.

        Raises:
            UsageError: names or shapes that do not match; nothing changes.
        """
        take_weights(self._model, weights)
        self._rows.invalidate()
        self._version = version

    def release(self, session: int) -> None:
        """Forget an episode's cache."""
        self._rows.release(session)

    async def close(self) -> None:
        """Stop; pending requests end with ``Finish.ABORT`` and what they have sampled."""
        self._closed = True
        for job in (*self._returning, *self._waiting):
            _answer(job, Completion(*_NOTHING, Finish.ABORT))
        for row in np.flatnonzero(self._rows.busy).tolist():
            _answer(self._rows.jobs[row], self._rows.completion(row, Finish.ABORT))
            self._vacate(row)
        self._fail_scoring(Fault("the engine was closed", where="engine"))
        self._returning.clear()
        self._waiting.clear()
        pump = self._pump
        if pump is not None and pump.get_loop() is asyncio.get_running_loop():
            await asyncio.wait([pump])

    # ---- requests ---------------------------------------------------------------------------------------------------

    def _usable(self) -> None:
        if self._closed:
            raise UsageError("this engine was closed; make a new one")

    def _check_ids(self, ids: Ids) -> None:
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self._vocab:
            raise UsageError(
                f"a context holds plain ids (0..{self._vocab - 1}); got {int(ids.min())}..{int(ids.max())}. A native "
                "action stands in the context as its text, not as its row"
            )

    def _check(self, request: Request) -> None:
        self._usable()
        length = len(request.prompt)
        if not 1 <= length < self._context:
            raise UsageError(f"a prompt needs 1 to {self._context - 1} ids to leave room for one more; got {length}")
        self._check_ids(request.prompt)
        if request.max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, not {request.max_tokens}")
        if not 0.0 <= request.temperature < np.inf:
            raise UsageError(f"temperature must be a finite number from 0 up, not {request.temperature}")
        self._rules.check(request.legal, request.stop)

    def _wake(self) -> None:
        self._arrivals += 1
        loop = asyncio.get_running_loop()
        if self._pump is None or self._pump.done() or self._pump.get_loop() is not loop:
            self._pump = loop.create_task(self._run(), name="peira-local-engine")

    def _vacate(self, row: int) -> None:
        self._rows.leave(row)
        self._rows.forget(row)

    # ---- the loop ---------------------------------------------------------------------------------------------------

    async def _run(self) -> None:
        try:
            while not self._closed:
                await self._settle()
                if not (self._waiting or self._returning or self._scoring or self._rows.busy.any()):
                    return
                try:
                    with torch.inference_mode():
                        self._turn()
                except Exception as error:  # the boundary: whatever breaks in here, nobody may wait for ever
                    self._fail_all(f"{type(error).__name__}: {error}", error)
        except asyncio.CancelledError:  # the event loop is shutting down
            self._fail_all("the event loop stopped", None)
            raise

    async def _settle(self) -> None:
        """Let every coroutine that can run reach its next request."""
        silent = 0
        for _ in range(_ROUNDS):
            seen = self._arrivals
            await asyncio.sleep(0)
            silent = silent + 1 if self._arrivals == seen else 0
            if silent == _SILENT:
                return

    def _turn(self) -> None:
        if self._scoring:
            jobs, self._scoring = [job for job in self._scoring if not job.future.done()], []
            score_all(self._model, self._rules, jobs)
        self._admit()
        rows = np.flatnonzero(self._rows.busy)
        if len(rows):
            self._step(rows)

    def _admit(self) -> None:
        returning, self._returning = self._returning, []
        for job in returning:
            row = self._rows.row_of(job.request.session)
            if job.over:
                continue
            if row is None:  # evicted in between, or two requests of one session at once
                self._waiting.appendleft(job)
                continue
            self._seat(job, row, self._rows.common(row, job.request.prompt))
        later: list[Job] = []
        while self._waiting and self._rows.vacant():
            job = self._waiting.popleft()
            if job.over:
                continue
            if self._rows.follows(job):
                later.append(job)
                continue
            row, donor, shared = self._rows.lend(job.request.prompt)
            if shared and donor != row:
                self._cache.copy(donor, row, shared)
            self._seat(job, row, shared)
        self._waiting.extendleft(reversed(later))

    def _seat(self, job: Job, row: int, shared: int) -> None:
        busy = self._rows.busy
        rule = self._rules.index(job.request.legal, job.request.stop, lambda: set(self._rows.rule[busy].tolist()))
        self._rows.seat(job, row, shared, rule)

    def _step(self, rows: NDArray[np.int64]) -> None:
        """Feed every busy row what it has to feed, within the budget, and sample where a row is complete."""
        r = self._rows
        counts = r.known[rows] - r.cached[rows]
        if int(counts.sum()) > self._budget:
            # Short feeds first: decoding rows go on while long prompts are fed in parts.
            order = np.argsort(counts, kind="stable")
            before = np.cumsum(counts[order]) - counts[order]
            counts[order] = np.clip(self._budget - before, 0, counts[order])
            rows, counts = rows[counts > 0], counts[counts > 0]
        feed = Feed(rows, r.cached[rows], counts, self._rules.penalty.device)
        complete = r.cached[rows] + counts == r.known[rows]
        ready = rows[complete]
        keep = feed.ends[complete] - 1 if len(ready) else feed.ends[:1] - 1
        logits = self._cache.forward(r.ids[feed.rows, feed.positions], feed, keep)
        r.cached[rows] += counts
        if len(ready):
            self._sample(ready, logits)

    def _sample(self, rows: NDArray[np.int64], logits: torch.Tensor) -> None:
        r = self._rows
        rules, known, done = r.rule[rows], r.known[rows], r.known[rows] - r.prompt[rows]
        ids, logprobs = draw(self._rules.apply(logits, rules), r.temperature[rows], uniforms(r.seed[rows], done))
        r.ids[rows, known], r.logprobs[rows, known], r.versions[rows, known] = ids, logprobs, self._version
        r.known[rows] += 1
        effect = self._rules.effect[rules, ids]
        broken = ~np.isfinite(logprobs)
        for index in np.flatnonzero((effect != GO_ON) | (done + 1 >= r.limit[rows]) | broken).tolist():
            row = int(rows[index])
            if broken[index]:
                self._break(row)
                continue
            code = effect[index]
            finish = Finish.LENGTH if code == GO_ON else Finish.STOP if code == STOP else Finish.ACTION
            _answer(r.jobs[row], r.completion(row, finish))
            r.leave(row)

    # ---- when things break ------------------------------------------------------------------------------------------

    def _break(self, row: int) -> None:
        """End one request whose numbers are not finite; its row is cleaned so that nobody inherits them."""
        job = self._rows.jobs[row]
        self._vacate(row)
        self._rows.cached[row] = 0
        self._cache.wipe(row)
        if job is not None and not job.over:
            job.future.set_exception(Fault("the model gave log-probs that are not finite numbers", where="engine"))

    def _fail_all(self, reason: str, cause: Exception | None) -> None:
        jobs = [job for job in (*self._returning, *self._waiting, *self._rows.jobs) if job is not None]
        for row in np.flatnonzero(self._rows.busy).tolist():
            self._vacate(row)
        self._rows.invalidate()  # a pass that broke half-way leaves keys of some layers only
        self._returning.clear()
        self._waiting.clear()
        for job in jobs:
            if not job.over:
                fault = Fault(f"the local engine's step failed: {reason}", where="engine")
                fault.__cause__ = cause
                job.future.set_exception(fault)
        self._fail_scoring(Fault(f"the local engine's step failed: {reason}", where="engine"))

    def _fail_scoring(self, fault: Fault) -> None:
        jobs, self._scoring = self._scoring, []
        for job in jobs:
            if not job.future.done():
                job.future.set_exception(fault)

    def _verify(self) -> None:
        """Feed a few ids in two parts and compare with the model's own forward pass.

        Raises:
            UsageError: the model computes something that this engine's attention does not.
        """
        ids = (np.arange(min(6, self._context)) * 7 + 1) % self._vocab
        cut = len(ids) // 2
        device = self._model.device
        with torch.inference_mode():
            own = self._model(torch.from_numpy(ids).to(device)[None], use_cache=False).logits[0, -1].float()
            for start, stop in ((0, cut), (cut, len(ids))):
                feed = Feed(np.array([0]), np.array([start]), np.array([stop - start]), device)
                ours = self._cache.forward(ids[start:stop].astype(np.int32), feed, feed.ends - 1)[0]
            self._cache.wipe(0)
        tolerance = 1e-3 if self._model.dtype == torch.float32 else 0.25
        gap = float((own.log_softmax(-1) - ours.log_softmax(-1)).abs().max())
        if gap > tolerance:  # a model that is broken altogether (NaN) is told by its requests
            raise UsageError(
                f"{type(self._model).__name__} does not compute the same in the local engine's slots as by itself "
                f"(log-probs differ by {gap:.2g}); use another engine for this architecture"
            )


_NOTHING = (np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32))


def _answer(job: Job | None, completion: Completion) -> None:
    if job is not None and not job.over:
        job.future.set_result(completion)
