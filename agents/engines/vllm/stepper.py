"""The thread that owns a vLLM engine: requests, cancellations and new weights reach it between two of its steps.

One thread touches the engine, so nothing in it has to be locked, and weights change while no step is running: a request
in flight goes on, its ids before and after the change under one version each.
"""

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping
from concurrent.futures import Future, InvalidStateError
from dataclasses import dataclass, field
from itertools import count
from typing import Any, TypeVar

from peira.tools.errors import Fault

__all__ = ["Stepper", "Ticket"]

T = TypeVar("T")


@dataclass(eq=False, slots=True)
class Ticket:
    """A request on its way; the future holds vLLM's output, or ``None`` when the engine was closed."""

    number: str
    future: "Future[Any]" = field(default_factory=Future)


class Stepper:
    """Runs one engine.

    Args:
        make: builds the engine (``vllm.v1.engine.llm_engine.LLMEngine`` or what behaves like it), called in the thread.
        add: gives the engine a request: engine, number, prompt, parameters, salt.
        stop: takes the engine down.

    Raises:
        Exception: whatever ``make`` raised.
    """

    def __init__(
        self,
        make: Callable[[], Any],
        add: Callable[[Any, str, list[int], Mapping[str, Any], str], None],
        stop: Callable[[Any], None],
    ) -> None:
        self._make, self._add, self._stop = make, add, stop
        self._numbers = count()
        self._wake = threading.Condition()
        self._work: deque[Callable[[], None]] = deque()
        self._open: dict[str, Ticket] = {}
        self._closing = False
        self._moved = time.monotonic()
        self.engine: Any = None
        self.broken: str | None = None
        """Why the engine can no longer be used."""
        started: Future[None] = Future()
        self._thread = threading.Thread(target=self._run, args=(started,), name="peira-vllm", daemon=True)
        self._thread.start()
        started.result()

    @property
    def still(self) -> float:
        """Seconds since the engine last did anything."""
        return time.monotonic() - self._moved

    def ask(self, prompt: list[int], params: Mapping[str, Any], salt: str) -> Ticket:
        """Hand in a request.

        Raises:
            Fault: the engine is dead.
        """
        ticket = Ticket(str(next(self._numbers)))

        def begin() -> None:
            try:
                self._add(self.engine, ticket.number, prompt, params, salt)
                self._open[ticket.number] = ticket
            except Exception as error:  # vLLM refuses what it cannot serve by errors of several types
                _settle(ticket.future, error=error)

        self._hand_in(begin)
        return ticket

    def abort(self, ticket: Ticket) -> None:
        """Stop work on a request nobody waits for."""

        def end() -> None:
            if self._open.pop(ticket.number, None) is not None:
                self.engine.abort_request([ticket.number])

        if self.broken is None and not self._closing:
            self._hand_in(end)

    def between(self, work: Callable[[Any], T], deadline: float) -> T:
        """Do something to the engine between two steps, and wait for it.

        Raises:
            Fault: the engine is dead, or does not come to it within ``deadline`` seconds.
        """
        done: Future[T] = Future()

        def run() -> None:
            try:
                _settle(done, work(self.engine))
            except BaseException as error:  # raised again in the caller's thread
                _settle(done, error=error)

        self._hand_in(run)
        try:
            return done.result(deadline)
        except TimeoutError as error:
            if done.done():
                raise
            raise Fault(f"the vLLM engine did not come to a pause within {deadline:g} s", where="timeout") from error

    def give_up(self, reason: str) -> None:
        """Call the engine dead: whoever waits gets a ``Fault``, and so does whoever asks later."""
        self.broken = reason
        tickets, self._open = list(self._open.values()), {}
        for ticket in tickets:
            _settle(ticket.future, error=self._fault())

    def close(self, deadline: float) -> None:
        """Answer whoever waits with ``None`` and take the engine down."""
        with self._wake:
            self._closing = True
            self._wake.notify()
        self._thread.join(deadline)

    def _fault(self) -> Fault:
        return Fault(f"the vLLM engine is dead: {self.broken}", where="engine")

    def _hand_in(self, job: Callable[[], None]) -> None:
        if self.broken is not None:
            raise self._fault()
        with self._wake:
            self._work.append(job)
            self._wake.notify()

    def _run(self, started: "Future[None]") -> None:
        try:
            self.engine = self._make()
        except BaseException as error:  # raised again in the thread that asked for the engine
            started.set_exception(error)
            return
        started.set_result(None)
        while not self._closing:
            self._turn()
        for ticket in self._open.values():
            _settle(ticket.future, None)
        self._open.clear()
        self._drain()
        self._stop(self.engine)
        self.engine = None

    def _drain(self) -> None:
        while self._work:
            self._work.popleft()()

    def _turn(self) -> None:
        """Take what was handed in, then make one step."""
        with self._wake:
            while not (self._work or self._closing or self._open):
                self._moved = time.monotonic()
                self._wake.wait(1.0)
        try:
            self._drain()
            if self._open and not self._closing:
                for output in self.engine.step():
                    if output.finished:
                        ticket = self._open.pop(output.request_id, None)
                        if ticket is not None:
                            _settle(ticket.future, output)
        except Exception as error:  # the boundary: after a step that broke, what vLLM holds cannot be trusted
            self.give_up(f"{type(error).__name__}: {error}")
        self._moved = time.monotonic()


def _settle(future: "Future[Any]", value: Any = None, *, error: BaseException | None = None) -> None:
    """Answer a future unless its owner has left."""
    try:
        if error is None:
            future.set_result(value)
        else:
            future.set_exception(error)
    except InvalidStateError:
        pass
