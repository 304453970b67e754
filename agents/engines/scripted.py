"""Engines without a model, for tests of worlds, views, methods and one's own code: they answer what a script says.

::

    engine = Scripted(lambda prompt, request: "done", ByteText())          # a function
    engine = replay(["<compare>A B</compare>", "done"], ByteText())        # the same turns in every episode
    engine = table({"Sort ascending: B A.": "done"}, ByteText())           # by what the prompt contains
"""

import asyncio
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peira.agents.engines.base import Request
from peira.agents.text import Text
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.tools.errors import Fault, UsageError

__all__ = ["Answer", "Script", "Scripted", "replay", "table"]

Answer = str | Sequence[int] | Ids | Completion
"""Text (the stop id is added), exact ids, or a whole completion."""
Script = Callable[[Ids, Request], Answer]
"""From the prompt's ids and the request, what to answer. It may raise: so does the engine then."""


class Scripted:
    """An ``Engine`` that asks a function.

    Exact ids are returned as they are, cut at ``max_tokens``: a completion that ends in a stop id has finish *stop*,
    one that ends in a legal native action has finish *action*, every other one counts as cut off (*length*).

    Args:
        script: the function.
        text: encodes texts that the script gives.
        context: longest prompt plus completion.
        logprob: log-prob of every sampled id.
        delay: seconds before each answer; ``0`` lets others run first, ``None`` answers on the spot.
        keep: keep every request in ``requests``.
    """

    def __init__(
        self,
        script: Script,
        text: Text,
        *,
        context: int = 32_768,
        logprob: float = -1.0,
        delay: float | None = None,
        keep: bool = False,
    ) -> None:
        self.script, self.text, self.delay = script, text, delay
        self.requests: list[Request] = []
        self.released: list[int] = []
        self.weights: Mapping[str, Any] = {}
        self.running = 0
        """Requests being answered at this moment."""
        self._keep, self._context, self._logprob = keep, context, logprob
        self._version, self._closed = 0, False

    @property
    def version(self) -> int:
        """Version given with the last ``load``."""
        return self._version

    @property
    def context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        return self._context

    @property
    def closed(self) -> bool:
        """Whether ``close`` was called."""
        return self._closed

    async def generate(self, request: Request) -> Completion:
        """Answer what the script says.

        Raises:
            Fault: the engine is closed.
            UsageError: a prompt that leaves no room in the context, or an empty legal set.
        """
        if self._closed:
            raise Fault("the engine is closed", where="engine")
        size, legal = len(request.prompt), request.legal
        if size >= self._context or request.max_tokens < 1:
            raise UsageError(
                f"a prompt of {size} ids and {request.max_tokens} new ones do not fit a context of {self._context}"
            )
        if legal is not None and not legal.vocab and not legal.ids:
            raise UsageError("the legal set is empty, so there is nothing to choose")
        if self._keep:
            self.requests.append(request)
        if self.delay is not None:
            self.running += 1
            try:
                await asyncio.sleep(self.delay)
            finally:
                self.running -= 1
        return self._completion(self.script(request.prompt, request), request)

    def _completion(self, answer: Answer, request: Request) -> Completion:
        if isinstance(answer, Completion):
            return answer
        row = [*self.text.encode(answer), self.text.stop[0]] if isinstance(answer, str) else answer
        ids = np.asarray(row[: request.max_tokens], dtype=np.int32)
        last = int(ids[-1]) if len(ids) else -1
        if last in request.stop:
            finish = Finish.STOP
        elif request.legal is not None and last in request.legal.ids:
            finish = Finish.ACTION
        else:
            finish = Finish.LENGTH
        logprobs = np.full(len(ids), self._logprob, dtype=np.float32)
        return Completion(ids, logprobs, np.full(len(ids), self._version, dtype=np.int32), finish)

    async def score(
        self, ids: Ids, candidates: Sequence[int], start: int, legal: Legal | None = None
    ) -> NDArray[np.float32]:
        """Return ``[T - start, C]``: the constant log-prob, ``-inf`` for candidates that are not legal."""
        table = np.full((len(ids) - start, len(candidates)), self._logprob, dtype=np.float32)
        if legal is not None:
            plain = self.text.vocab if legal.vocab else 0
            for column, candidate in enumerate(candidates):
                if candidate not in legal.ids and not 0 <= candidate < plain:
                    table[:, column] = -np.inf
        return table

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Remember the weights and their version; the script goes on as before."""
        self.weights, self._version = weights, version

    def release(self, session: int) -> None:
        """Note that an episode is over."""
        if self._keep:
            self.released.append(session)

    async def close(self) -> None:
        """Refuse further requests."""
        self._closed = True


def replay(turns: Sequence[Answer], text: Text, **options: Any) -> Scripted:
    """Return an engine that gives the same turns, in order, to every episode.

    An episode that asks for more turns than there are gets the last one again.
    """
    if not turns:
        raise UsageError("replay needs at least one turn")
    told: dict[int | None, int] = {}

    def script(prompt: Ids, request: Request) -> Answer:
        del prompt
        turn = told.get(request.session, 0)
        told[request.session] = turn + 1
        return turns[min(turn, len(turns) - 1)]

    return Scripted(script, text, **options)


def table(answers: Mapping[str, Answer], text: Text, *, otherwise: Answer | None = None, **options: Any) -> Scripted:
    """Return an engine that looks its answer up by the piece of text that stands last in the prompt.

    Raises (when asked):
        Fault: no piece stands in the prompt, and there is no ``otherwise``.
    """

    def script(prompt: Ids, request: Request) -> Answer:
        del request
        shown = text.decode(prompt.tolist())
        where, found = max(
            ((shown.rfind(piece), answer) for piece, answer in answers.items()), key=lambda pair: pair[0]
        )
        if where >= 0:
            return found
        if otherwise is None:
            raise Fault(f"the table has no answer to a prompt that ends in {shown[-200:]!r}", where="engine")
        return otherwise

    return Scripted(script, text, **options)
