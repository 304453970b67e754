"""Any OpenAI-compatible server as an engine.

::

    Served("http://localhost:8000/v1", "some-model")                          an agent for evaluation: text in, text out
    ServerEngine(url, model, text=policy.text, settings=ServerSettings(api="completions", exact=True))     for training

*Evaluation* needs text alone. Over the chat API a prompt's ids are taken apart into messages again (``ByteText`` keeps
them exactly), the server's own template renders them, and the reply is tokenized here: ``exact`` is ``False``, so its
ids are an expert's, never the policy's. *Training* needs the server to return the ids it sampled and their log-probs,
and to say which prompt they belong to: the completions API with ``exact=True``. A server that does not is refused.
"""

import asyncio
import json
from collections import deque
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from peira.agents.engines.attempts import Attempts, Clock, LoopClock
from peira.agents.engines.base import Request
from peira.agents.engines.openai_api import Answer, chat_body, completion_body, read_answer, sampled
from peira.agents.engines.wire import Reply, Wire
from peira.agents.text import ByteText, Text
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.agents.view import View
from peira.tools.errors import Fault, UsageError, unknown

__all__ = ["Served", "ServerEngine", "ServerSettings"]

Api = Literal["chat", "completions"]

_PATHS = {"chat": "/chat/completions", "completions": "/completions"}
_REMEMBERED = 65_536
"""Ids of answers that are remembered, to notice one that comes twice."""


@dataclass(frozen=True, slots=True)
class ServerSettings:
    """How a server is spoken to."""

    api: Api = "chat"
    exact: bool = False
    """Ask for sampled ids and log-probs, and refuse answers without them: what training needs."""
    context: int = 131_072
    """Longest prompt plus completion, in ids of the view's text (bytes, without a tokenizer)."""
    seconds: float = 300.0
    """Longest wait for one answer; a server that says nothing for so long has hung."""
    connect_seconds: float = 10.0
    retries: int = 5
    """Further attempts after a broken connection or a status that says *busy*."""
    first_wait: float = 0.5
    """Seconds before the second attempt; doubled each time, up to half of which is left out at random."""
    longest_wait: float = 60.0
    """Longest single wait; a server that asks for more (Retry-After) is given up."""
    concurrency: int = 64
    """Requests in flight at once."""
    limit: str = "max_tokens"
    """Name of the field that holds the token limit; some servers want ``max_completion_tokens``."""
    extra: Mapping[str, Any] = field(default_factory=dict)
    """Further fields of every request; ``None`` leaves a field out."""

    def __post_init__(self) -> None:
        if self.api not in get_args(Api):
            raise unknown("API of a server", self.api, get_args(Api))
        if self.exact and self.api != "completions":
            raise UsageError(
                "training over the chat API is refused: the server's template renders the conversation anew, so nobody "
                "here knows the ids of the prompt; use api='completions', whose prompt is ids"
            )
        for name in ("context", "concurrency"):
            if getattr(self, name) < 1:
                raise UsageError(f"server setting {name} must be at least 1, not {getattr(self, name)}")
        for name in ("seconds", "connect_seconds", "first_wait", "longest_wait"):
            if not 0 < getattr(self, name) < float("inf"):
                raise UsageError(f"server setting {name} must be a positive number, not {getattr(self, name)}")
        if self.retries < 0:
            raise UsageError(f"server setting retries must not be negative, not {self.retries}")


class ServerEngine:
    """An ``Engine`` over an OpenAI-compatible server.

    Args:
        url: address of the API, usually ending in ``/v1``.
        model: the model's name there.
        text: tokenizer and template of the view; ``None``: bytes, for the chat API.
        settings: how to speak to it.
        key: sent as a bearer token.
        clock: what retries wait by.

    Raises:
        UsageError: an address that cannot be, or a tokenizer where none fits or none where one is needed.
    """

    def __init__(
        self,
        url: str,
        model: str,
        *,
        text: Text | None = None,
        settings: ServerSettings | None = None,
        key: str | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.settings = settings or ServerSettings()
        self.text: Text = text or ByteText()
        self.model, self._url = model, url
        if self.settings.api == "chat" and not isinstance(self.text, ByteText):
            raise UsageError("over the chat API the server has the template: leave text out, or use api='completions'")
        if self.settings.api == "completions" and isinstance(self.text, ByteText):
            raise UsageError(
                "the completions API takes ids of the model's own tokenizer: give its folder (--tokenizer)"
            )
        self._headers = {"Authorization": f"Bearer {key}"} if key else {}
        self._connect()
        s = self.settings
        self._attempts = Attempts(s.retries, s.first_wait, s.longest_wait, clock or LoopClock())
        self._loop: asyncio.AbstractEventLoop | None = None
        self._gate = asyncio.Semaphore(s.concurrency)
        self._running: set[asyncio.Task[Completion]] = set()
        self._told: set[str] = set()
        self._order: deque[str] = deque()
        self._closed = False
        self.retokenised = 0
        """Completions that came as text and were tokenized here."""

    # ---- the contract -----------------------------------------------------------------------------------------------

    @property
    def exact(self) -> bool:
        """Whether completions are the sampled ids with their log-probs."""
        return self.settings.exact

    @property
    def version(self) -> int:
        """Always 0: the weights are the server's own."""
        return 0

    @property
    def context(self) -> int:
        """Longest prompt plus completion, in ids of the view's text."""
        return self.settings.context

    @property
    def repeated(self) -> int:
        """Attempts beyond the first, over all requests."""
        return self._attempts.repeated

    async def generate(self, request: Request) -> Completion:
        """Ask the server for one completion.

        Raises:
            Fault: it failed, hung, or gave an answer that cannot be trusted.
            UsageError: a request it can never answer, or a refusal that a person can put right.
        """
        self._check(request)
        self._bind()
        work = asyncio.ensure_future(self._answered(request))
        self._running.add(work)
        try:
            return await work
        except asyncio.CancelledError:
            me = asyncio.current_task()
            if not self._closed or (me is not None and me.cancelling()):
                raise
            return Completion(np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32), Finish.ABORT)
        finally:
            self._running.discard(work)

    async def score(
        self, ids: Ids, candidates: Sequence[int], start: int, legal: Legal | None = None
    ) -> NDArray[np.float32]:
        """Refuse: the API has no way to ask for the log-probs of given ids.

        Raises:
            UsageError: always.
        """
        del ids, candidates, start, legal
        raise UsageError("an OpenAI-compatible server cannot score given ids; use the local engine for that")

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Refuse: the API has no way to bring weights.

        Raises:
            UsageError: always.
        """
        del weights, version
        raise UsageError("weights cannot be brought to an OpenAI-compatible server; it answers with its own")

    def release(self, session: int) -> None:
        """Nothing to forget: the server keeps its own caches."""

    async def close(self) -> None:
        """Stop; pending requests end with ``Finish.ABORT``."""
        self._closed = True
        running = list(self._running)
        for work in running:
            work.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        await self._wire.close()

    # ---- one request ------------------------------------------------------------------------------------------------

    def _connect(self) -> None:
        self._wire = Wire(self._url, headers=self._headers, connect_seconds=self.settings.connect_seconds)

    def _bind(self) -> None:
        """Begin anew in another event loop: connections and locks belong to one."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            if self._loop is not None:
                self._connect()
            self._loop, self._gate = loop, asyncio.Semaphore(self.settings.concurrency)

    def _check(self, request: Request) -> None:
        if self._closed:
            raise Fault("the engine is closed", where="engine")
        size = len(request.prompt)
        if not 1 <= size < self.context or request.max_tokens < 1:
            raise UsageError(
                f"a prompt of {size} ids and {request.max_tokens} new ones do not fit a context of {self.context}"
            )
        legal = request.legal
        if legal is not None and not self.exact:
            raise UsageError(
                "a server that returns text cannot choose among native actions; use the world with actions='tags'"
            )
        if legal is not None and not legal.vocab and not legal.ids:
            raise UsageError("the legal set is empty, so there is nothing to choose")
        if self.exact and not 0 <= int(min(request.prompt)) <= int(max(request.prompt)) < self.text.vocab:
            raise UsageError(f"a prompt holds plain ids (0..{self.text.vocab - 1})")

    def _body(self, request: Request) -> bytes:
        s = self.settings
        if s.api == "completions":
            body = completion_body(
                self.model, request, exact=s.exact, vocab=self.text.vocab, limit=s.limit, extra=s.extra
            )
        else:
            assert isinstance(self.text, ByteText)  # seen to when the engine was made
            body = chat_body(
                self.model, self.text.messages(request.prompt.tolist()), request, limit=s.limit, extra=s.extra
            )
        return json.dumps(body).encode()

    async def _answered(self, request: Request) -> Completion:
        body = self._body(request)
        async with self._gate:
            reply = await self._attempts.run(lambda: self._post(body), request.seed)
        answer = read_answer(reply.body)
        self._once(answer)
        if not self.exact:
            return self._read(answer, request)
        ids, logprobs = sampled(answer, request, self.model, self.text.vocab)
        return Completion(
            np.array(ids, dtype=np.int32),
            np.minimum(np.array(logprobs, dtype=np.float32), 0.0),
            np.zeros(len(ids), dtype=np.int32),
            _finish(answer, ids[-1], request),
        )

    async def _post(self, body: bytes) -> Reply:
        limit = asyncio.timeout(self.settings.seconds)
        try:
            async with limit:
                return await self._wire.post(_PATHS[self.settings.api], body)
        except TimeoutError as error:
            text = f"the server did not answer within {self.settings.seconds:g} s"
            raise Fault(text, where="timeout") from error

    def _once(self, answer: Answer) -> None:
        """Refuse an answer that was given before: somebody else's, from a cache or a muddled proxy."""
        if answer.id is None:
            return
        if answer.id in self._told:
            raise Fault(f"the server gave the answer {answer.id!r} twice: it is another request's", where="engine")
        self._told.add(answer.id)
        self._order.append(answer.id)
        if len(self._order) > _REMEMBERED:
            self._told.discard(self._order.popleft())

    def _read(self, answer: Answer, request: Request) -> Completion:
        """Tokenize a text; nobody knows its log-probs, and 0 stands for them (see ``is_exact``)."""
        size = len(request.prompt)
        if self.settings.api == "completions" and answer.prompt_tokens not in (None, size, size + 1):
            raise Fault(
                f"the server counted {answer.prompt_tokens} ids in a prompt of {size}: it answered another one",
                where="engine",
            )
        self.retokenised += 1
        row = self.text.encode(answer.text)
        if answer.finish == "stop":
            row = [*row, self.text.stop[0]]
        finish = Finish.STOP if answer.finish == "stop" else Finish.LENGTH
        zeros = np.zeros(len(row), dtype=np.int32)
        return Completion(np.array(row, dtype=np.int32), zeros.astype(np.float32), zeros, finish)


def _finish(answer: Answer, last: int, request: Request) -> Finish:
    if last in request.stop:
        return Finish.STOP
    if request.legal is not None and last in request.legal.ids:
        return Finish.ACTION
    if answer.finish == "length":
        return Finish.LENGTH
    raise Fault(
        f"the server stopped after id {last}, which is none of the stop ids {list(request.stop)}: what made it stop "
        "was not returned, so it could not be trained",
        where="engine",
    )


@dataclass(frozen=True, slots=True)
class Served:
    """A model behind a server, as an agent: ``evaluate(world, Served(url, model))``."""

    url: str
    model: str
    settings: ServerSettings = field(default_factory=ServerSettings)
    tokenizer: str | Path | None = None
    """Folder of the model's tokenizer, for the completions API."""
    key: str | None = field(default=None, repr=False)

    def seat(self) -> tuple[ServerEngine, View]:
        """Return an engine, which the caller closes, and the view through which it reads and answers.

        Raises:
            UsageError: as ``ServerEngine``, or the folder holds no tokenizer.
        """
        text: Text | None = None
        if self.tokenizer is not None:
            from peira.agents.policy.folder import read_tokenizer
            from peira.agents.text import HFText

            text = HFText(read_tokenizer(self.tokenizer))
        engine = ServerEngine(self.url, self.model, text=text, settings=self.settings, key=self.key)
        return engine, View(engine.text)
