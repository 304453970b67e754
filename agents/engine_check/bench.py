"""What the checks share: requests to make, and ways to hold an answer against the truth."""

import asyncio
import inspect
import itertools
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Protocol

import numpy as np
from numpy.typing import NDArray

from peira.agents.engines.base import Engine, Request
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.envs.seeding import rng

__all__ = ["Bench", "EngineCheck", "Reference", "Subject"]

_SESSIONS = itertools.count(1_000_000)
_ROUNDS = 20
"""Turns of the event loop after which a request is certainly being served."""


class Reference(Protocol):
    """The truth: what the learner says about given ids under the k-th of the subject's weights."""

    def logprobs(
        self, prompt: Ids, ids: Ids, temperature: float, legal: Legal | None, weights: int
    ) -> NDArray[np.float32]:
        """Return ``[L]``: log-prob of each of ``ids`` after ``prompt`` and the ids before it."""
        ...

    def distribution(self, prompt: Ids, temperature: float, legal: Legal | None, weights: int) -> NDArray[np.float64]:
        """Return ``[R]``: log-prob of each output row as the next id; ``-inf`` where it is not legal."""
        ...


@dataclass(frozen=True)
class Subject:
    """An engine under test, and what is known of it."""

    name: str
    open: Callable[[], Engine | Awaitable[Engine]]
    """A fresh engine with the first of ``weights``."""
    vocab: int
    """Number of plain ids."""
    reference: Reference
    weights: Sequence[Mapping[str, Any]] = ()
    """At least two sets, for deliveries; the engine begins with the first."""
    native: tuple[int, ...] = ()
    """Rows of native actions."""
    lacks: frozenset[str] = frozenset()
    """What the engine cannot do by its nature: ``delivery``, ``score``, ``legality``, ``seeds``."""
    tolerance: float = 1e-3
    """Largest difference of a log-prob from the learner's: 1e-3 in float32; every silent fault known exceeds 0.1."""
    seconds: float = 120.0
    """Longest a check may take; an engine that hangs is named after that."""

    async def opened(self) -> Engine:
        """Open the engine."""
        made = self.open()
        return await made if inspect.isawaitable(made) else made


@dataclass(frozen=True, slots=True)
class EngineCheck:
    """One check."""

    name: str
    run: Callable[["Bench"], AsyncIterator[str]]
    """Yields what is broken."""
    remedy: str
    needs: tuple[str, ...] = ()


@dataclass
class Bench:
    """The engine under test."""

    subject: Subject
    engine: Engine
    weights: int = 0
    """Index of the weights that the engine has now."""
    figures: dict[str, float] = field(default_factory=dict)

    # ---- requests ---------------------------------------------------------------------------------------------------

    def prompt(self, number: int, size: int | None = None) -> Ids:
        """Return a prompt of random ids: a split that no tokenizer would make."""
        draw = rng("engine check", "prompt", number)
        size = int(draw.integers(3, 20)) if size is None else size
        return np.asarray(draw.integers(0, self.subject.vocab, size=min(size, self.room)), dtype=np.int32)

    @property
    def room(self) -> int:
        """Longest prompt that leaves space for a few ids."""
        return max(2, self.engine.context - 24)

    def request(self, number: int, **given: Any) -> Request:
        """Return a request with its own prompt and seed."""
        plain = Request(self.prompt(number), max_tokens=12, seed=number + 1)
        return replace(plain, **given)

    def session(self) -> int:
        """Return the number of a new episode."""
        return next(_SESSIONS)

    def ids(self, number: int, count: int) -> tuple[int, ...]:
        """Return some plain ids, sorted."""
        draw = rng("engine check", "ids", number)
        count = min(count, self.subject.vocab - 1)
        return tuple(sorted(int(i) for i in draw.choice(self.subject.vocab, size=count, replace=False)))

    async def all(self, requests: Sequence[Request]) -> list[Completion]:
        """Make completions, all at once."""
        return list(await asyncio.gather(*(self.engine.generate(request) for request in requests)))

    async def begun(self, requests: Sequence[Request]) -> list["asyncio.Task[Completion]"]:
        """Begin completions and let the engine take them up."""
        tasks = [asyncio.ensure_future(self.engine.generate(request)) for request in requests]
        for _ in range(_ROUNDS):
            await asyncio.sleep(0)
        return tasks

    async def load(self, weights: int) -> None:
        """Deliver the k-th weights under the next version."""
        load: Any = self.engine.load  # an engine in another process may want to be awaited
        done = load(self.subject.weights[weights], self.engine.version + 1)
        if inspect.isawaitable(done):
            await done
        self.weights = weights

    # ---- answers ----------------------------------------------------------------------------------------------------

    def shape(self, request: Request, answer: Completion) -> str | None:
        """Return what is wrong with an answer by itself; ``None``: nothing."""
        ids, logprobs = answer.ids.tolist(), np.asarray(answer.logprobs)
        if answer.finish is Finish.ABORT or not 0 < len(ids) <= request.max_tokens:
            return f"{len(ids)} ids, finish {answer.finish}, where 1..{request.max_tokens} were asked for"
        if not len(ids) == len(logprobs) == len(answer.versions):
            return f"{len(ids)} ids, {len(logprobs)} log-probs, {len(answer.versions)} versions"
        if not np.isfinite(logprobs).all() or logprobs.max() > self.subject.tolerance:
            return f"log-probs that cannot be: {logprobs[~np.isfinite(logprobs) | (logprobs > 0)][:3].tolist()}"
        legal = request.legal
        plain = self.subject.vocab if legal is None or legal.vocab else 0
        more = () if legal is None else legal.ids
        if wrong := [i for i in ids if not 0 <= i < plain and i not in more]:
            return f"id {wrong[0]} was sampled, which was not legal"
        return self._end(request, answer, ids, more)

    def _end(self, request: Request, answer: Completion, ids: Sequence[int], more: Sequence[int]) -> str | None:
        ends = {*request.stop, *more}
        early = [i for i in ids[:-1] if i in ends]
        if early:
            return f"id {early[0]}, which ends a completion, stands in the middle of it"
        wanted = Finish.STOP if ids[-1] in request.stop else Finish.ACTION if ids[-1] in more else Finish.LENGTH
        if answer.finish is not wanted:
            return f"a completion that ends in id {ids[-1]} has finish {answer.finish}, not {wanted}"
        full = min(request.max_tokens, self.engine.context - len(request.prompt))
        if wanted is Finish.LENGTH and len(ids) != full:
            return f"cut off after {len(ids)} ids where {full} were allowed"
        return None

    def gap(self, request: Request, answer: Completion, weights: int | None = None) -> float:
        """Return the largest difference of a log-prob from the learner's."""
        k = self.weights if weights is None else weights
        temperature = request.temperature or 1.0
        true = self.subject.reference.logprobs(request.prompt, answer.ids, temperature, request.legal, k)
        return float(np.abs(np.asarray(answer.logprobs, dtype=np.float64) - true).max())

    def wrong(self, request: Request, answer: Completion, figure: str) -> str | None:
        """Return what is wrong with an answer's shape or its log-probs; the difference is noted under ``figure``."""
        broken = self.shape(request, answer)
        if broken is not None:
            return broken
        gap = self.gap(request, answer)
        self.figures[figure] = max(self.figures.get(figure, 0.0), gap)
        if gap <= self.subject.tolerance:
            return None
        return f"log-probs differ from the learner's by {gap:.3g} (tolerance {self.subject.tolerance:g})"
