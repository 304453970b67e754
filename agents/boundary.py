"""The border to code that may hang or break: a call with a deadline, and what is told of an error."""

import asyncio
import math
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

from peira.tools.errors import Fault

__all__ = ["Alarm", "TooSlow", "described", "in_thread", "world_fault"]

ResultT = TypeVar("ResultT")


class Alarm:
    """A deadline on what the present task awaits, cheap enough to be moved ten thousand times a second.

    One timer stays armed for the earliest time it could be needed; when it fires too early it is armed anew. (A timer
    for every call, as ``asyncio.timeout`` makes, costs as much as a turn of a fast world.)
    """

    __slots__ = ("_armed", "_due", "_handle", "_loop", "_rang", "_task")

    def __init__(self) -> None:
        task = asyncio.current_task()
        if task is None:
            raise RuntimeError("an alarm needs a running task")
        self._task: asyncio.Task[Any] = task
        self._loop = asyncio.get_running_loop()
        self._handle: asyncio.TimerHandle | None = None
        self._armed = self._due = math.inf
        self._rang = False

    def set(self, due: float) -> None:
        """Cancel what the task awaits at ``due`` (the loop's time), unless cleared before."""
        self._due = due
        if due < self._armed:
            self._arm(due)

    def clear(self) -> None:
        """Leave the task alone."""
        self._due = math.inf

    def rang(self) -> bool:
        """Say, once, whether the cancellation just caught was this alarm's and nobody else's."""
        if not self._rang:
            return False
        self._rang = False
        return self._task.uncancel() <= 0

    def close(self) -> None:
        """Drop the timer."""
        if self._handle is not None:
            self._handle.cancel()
        self._handle, self._armed = None, math.inf

    def _arm(self, when: float) -> None:
        self.close()
        self._handle, self._armed = self._loop.call_at(when, self._fire), when

    def _fire(self) -> None:
        self._handle, self._armed = None, math.inf
        if self._due is math.inf:
            return
        if self._loop.time() >= self._due:
            self._rang = True
            self._task.cancel()
        else:
            self._arm(self._due)


def described(error: BaseException, what: str) -> str:
    """Say what broke and in which line, without paths of this machine."""
    frames = traceback.extract_tb(error.__traceback__)
    place = f" ({Path(frames[-1].filename).name}:{frames[-1].lineno})" if frames else ""
    return f"{what} raised {type(error).__name__}: {error}{place}"


class TooSlow(Exception):
    """A blocking call did not return in time."""

    def __init__(self, seconds: float) -> None:
        super().__init__(seconds)
        self.seconds = seconds


async def in_thread(call: Callable[..., ResultT], *args: Any, seconds: float) -> ResultT:
    """Run a blocking call in a thread of its own; a call that never returns is left behind, not waited for.

    The thread is a daemon, so that it cannot keep the process alive; a pool would be used up by calls that hang.
    """
    loop = asyncio.get_running_loop()
    future: asyncio.Future[ResultT] = loop.create_future()

    def settle(result: Any, error: BaseException | None) -> None:
        if future.done():  # late: nobody waits any more
            return
        if error is None:
            future.set_result(result)
        else:
            future.set_exception(error)

    def work() -> None:
        result, failure = None, None
        try:
            result = call(*args)
        except Exception as error:  # handed over to the waiting coroutine
            failure = error
        with suppress(RuntimeError):  # the loop may be closed by the time a late call returns
            loop.call_soon_threadsafe(settle, result, failure)

    threading.Thread(target=work, daemon=True, name="peira-world").start()
    done, _ = await asyncio.wait([future], timeout=max(0.0, seconds))
    if not done:
        future.cancel()
        raise TooSlow(seconds)
    return future.result()


def world_fault(what: str, error: Exception) -> Fault:
    """Return the fault that a world's error is."""
    if isinstance(error, TooSlow):
        return Fault(f"the world's {what} took longer than {error.seconds:.1f} s", where="timeout")
    if isinstance(error, Fault):
        return Fault(str(error), where="worker" if error.where == "worker" else "world")
    return Fault(described(error, f"the world's {what}"), where="world")
