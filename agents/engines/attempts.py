"""Asking a server again: which failures are worth another attempt, how long to wait, and when to give up."""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from typing import Protocol

from peira.agents.engines.wire import Reply, WireError
from peira.envs.seeding import rng
from peira.tools.errors import Fault, UsageError

__all__ = ["AGAIN", "Attempts", "Clock", "LoopClock", "retry_after"]

AGAIN = (408, 425, 429, 500, 502, 503, 504, 529)
"""Statuses of servers that are busy, starting or broken for a moment."""
_FOR_ALL = (429, 503, 529)
"""Those among them that concern every request, not one."""


class Clock(Protocol):
    """Time, as the attempts need it; tests give their own."""

    def now(self) -> float:
        """Return seconds since whenever."""
        ...

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        ...


class LoopClock:
    """The running event loop's time."""

    def now(self) -> float:
        """Return the loop's time."""
        return asyncio.get_running_loop().time()

    async def sleep(self, seconds: float) -> None:
        """Wait."""
        await asyncio.sleep(seconds)


def retry_after(value: str | None, today: datetime | None = None) -> float | None:
    """Return the seconds that a ``Retry-After`` header asks for, given as a number or as a date; ``None`` if none."""
    if not value:
        return None
    try:
        seconds = float(value)
    except ValueError:
        try:
            seconds = (parsedate_to_datetime(value) - (today or datetime.now(UTC))).total_seconds()
        except (TypeError, ValueError):
            return None
    return max(0.0, seconds) if seconds == seconds and seconds != float("inf") else None


class Attempts:
    """Retries with growing, jittered waits; a server that asks for patience is left alone by every request.

    Args:
        retries: further attempts after the first.
        first: wait before the second attempt, in seconds; it doubles each time.
        longest: longest single wait; a server that asks for more is given up.
        clock: what to wait by.
    """

    def __init__(self, retries: int, first: float, longest: float, clock: Clock) -> None:
        self.retries, self.first, self.longest, self.clock = retries, first, longest, clock
        self.repeated = 0
        """Attempts beyond the first, over all requests."""
        self._free = 0.0
        """Time before which nothing is sent."""

    def wait_of(self, seed: int, attempt: int) -> float:
        """Return the wait after a failed attempt: doubling, of which a keyed random half may be missing."""
        full = min(self.longest, self.first * 2.0 ** min(attempt, 60))
        return full * (0.5 + 0.5 * float(rng("server retry", seed, attempt).random()))

    async def run(self, ask: Callable[[], Awaitable[Reply]], seed: int) -> Reply:
        """Ask until there is an answer that another attempt would not change.

        Raises:
            Fault: every attempt failed, or the server asks for a longer wait than allowed.
            UsageError: the server refuses for a reason that a person can put right.
        """
        last = ""
        for attempt in range(self.retries + 1):
            while (rest := self._free - self.clock.now()) > 0:
                await self.clock.sleep(rest)
            asked: float | None = None
            try:
                reply = await ask()
            except WireError as error:
                last = str(error)
            else:
                if reply.status not in AGAIN:
                    return _accepted(reply)
                last = f"status {reply.status}: {excerpt(reply.body)}"
                asked = retry_after(reply.headers.get("retry-after"))
                self._patience(reply.status, asked, last)
            if attempt < self.retries:
                self.repeated += 1
                await self.clock.sleep(max(self.wait_of(seed, attempt), asked or 0.0))
        raise Fault(f"the server failed {self.retries + 1} times; last: {last}", where="engine")

    def _patience(self, status: int, asked: float | None, last: str) -> None:
        if asked is None:
            return
        if asked > self.longest:
            raise Fault(f"the server asks to wait {asked:g} s, longer than {self.longest:g} s ({last})", where="engine")
        if status in _FOR_ALL:
            self._free = max(self._free, self.clock.now() + asked)


def _accepted(reply: Reply) -> Reply:
    if reply.status == 200:
        return reply
    said = f"the server answered status {reply.status}: {excerpt(reply.body)}"
    if reply.status in (401, 403):
        raise UsageError(f"{said}. Give a key that it accepts (--key-env names the variable that holds it)")
    if reply.status in (404, 405):
        raise UsageError(f"{said}. Check the address (it usually ends in /v1), the model's name and the kind of API")
    raise Fault(said, where="engine")


def excerpt(body: bytes) -> str:
    """Return the beginning of an answer's body as one line."""
    return " ".join(body[:2000].decode("utf-8", "replace").split())[:300] or "(no text)"
