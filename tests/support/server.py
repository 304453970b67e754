"""A loopback HTTP server in this process that answers as a test wants: well, badly, or not at all."""

import asyncio
import json
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

DROP, HALF, HANG, GARBAGE, CLOSE_AFTER = "drop", "half", "hang", "garbage", "close after"


@dataclass
class Status:
    """An answer other than a plain 200."""

    code: int
    body: Any = field(default_factory=lambda: {"error": {"message": "not now"}})
    headers: dict[str, str] = field(default_factory=dict)
    chunked: bool = False


@dataclass
class Asked:
    """A request as it came in."""

    path: str
    headers: dict[str, str]
    body: dict[str, Any]
    number: int
    """Requests before this one."""


Behaviour = Callable[[Asked], Any]
"""What to do: a ``dict`` (sent as JSON), a ``Status``, or one of the words above. It may be a coroutine function."""


class Loopback:
    """A server in a thread; ``with Loopback(behaviour) as server: ... server.url``."""

    def __init__(self, behaviour: Behaviour) -> None:
        self.behaviour = behaviour
        self.asked: list[Asked] = []
        self.connections = 0
        self.hanging = 0
        """Requests that are being left without an answer."""
        self._ready = threading.Event()

    def __enter__(self) -> "Loopback":
        self._thread = threading.Thread(target=lambda: asyncio.run(self._serve()), daemon=True)
        self._thread.start()
        assert self._ready.wait(60)
        self.url = f"http://127.0.0.1:{self.port}/v1"
        return self

    def __exit__(self, *_: object) -> None:
        self._loop.call_soon_threadsafe(self._over.set)
        self._thread.join(60)

    async def _serve(self) -> None:
        self._loop, self._over = asyncio.get_running_loop(), asyncio.Event()
        self._lines: set[asyncio.StreamWriter] = set()
        server = await asyncio.start_server(self._line, "127.0.0.1", 0)
        self.port = server.sockets[0].getsockname()[1]
        self._ready.set()
        await self._over.wait()
        server.close()
        for writer in self._lines:
            writer.close()
        if rest := asyncio.all_tasks() - {asyncio.current_task()}:
            await asyncio.wait(rest, timeout=30)

    async def _line(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        self._lines.add(writer)
        try:
            while (asked := await self._read(reader)) is not None and await self._answer(asked, reader, writer):
                pass
        except (ConnectionError, asyncio.IncompleteReadError):
            pass
        finally:
            self._lines.discard(writer)
            writer.close()

    async def _read(self, reader: asyncio.StreamReader) -> Asked | None:
        first = await reader.readline()
        if not first:
            return None
        headers = {}
        while (line := await reader.readline()).strip():
            name, _, value = line.decode().partition(":")
            headers[name.lower()] = value.strip()
        body = json.loads(await reader.readexactly(int(headers["content-length"])))
        asked = Asked(first.split()[1].decode(), headers, body, len(self.asked))
        self.asked.append(asked)
        return asked

    async def _answer(self, asked: Asked, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        made = self.behaviour(asked)
        if asyncio.iscoroutine(made):
            made = await made
        if made == DROP:
            return False
        if made == HANG:
            self.hanging += 1
            try:
                await reader.read()  # until the client has closed the connection
            finally:
                self.hanging -= 1
            return False
        if made == GARBAGE:
            writer.write(b"SSH-2.0-OpenSSH_9.2\r\n")
            await writer.drain()
            return False
        if made == HALF:
            writer.write(b'HTTP/1.1 200 OK\r\nContent-Length: 1000\r\n\r\n{"id": "x", "choi')
            await writer.drain()
            return False
        status = made if isinstance(made, Status) else Status(200, made)
        body = status.body if isinstance(status.body, bytes) else json.dumps(status.body).encode()
        head = "".join(f"{name}: {value}\r\n" for name, value in status.headers.items())
        if status.chunked:
            parts = [body[n : n + 7] for n in range(0, len(body), 7)]
            sent = b"".join(b"%x;note\r\n%s\r\n" % (len(part), part) for part in parts) + b"0\r\nTrailer: x\r\n\r\n"
            head += "Transfer-Encoding: chunked\r\n"
        else:
            sent, head = body, f"{head}Content-Length: {len(body)}\r\n"
        writer.write(f"HTTP/1.1 {status.code} Any Reason\r\n{head}\r\n".encode() + sent)
        await writer.drain()
        return "close" not in status.headers.get("Connection", "")


def chat(text: str | None, finish: str = "stop", **more: Any) -> dict[str, Any]:
    """A chat answer."""
    choice = {"index": 0, "message": {"role": "assistant", "content": text}, "finish_reason": finish}
    return {"object": "chat.completion", "choices": [choice], **more}


def tokens(asked: Asked, ids: list[int], logprobs: list[Any] | None = None, finish: str = "stop", **more: Any) -> Any:
    """A completions answer with ids and log-probs, as training needs them."""
    row = [-0.5] * len(ids) if logprobs is None else logprobs
    choice = {
        "index": 0,
        "text": "",
        "finish_reason": finish,
        "token_ids": ids,
        "prompt_token_ids": asked.body["prompt"],
        "logprobs": {"token_logprobs": row, "tokens": [str(i) for i in ids]},
    }
    return {"id": f"cmpl-{asked.number}", "model": asked.body["model"], "choices": [{**choice, **more}]}
