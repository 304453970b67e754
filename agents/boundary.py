"""The border to code that may hang or break: a call with a deadline, and what is told of an error."""

import asyncio
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

__all__ = ["TooSlow", "described", "in_thread"]

ResultT = TypeVar("ResultT")


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
