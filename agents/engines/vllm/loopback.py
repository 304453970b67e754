"""JSON over HTTP to a server on this machine: requests beside each other, a deadline on each, no package needed."""

import asyncio
import http.client
import json
from typing import Any

from peira.tools.errors import Fault

__all__ = ["HOST", "Refused", "ask", "post"]

HOST = "127.0.0.1"


class Refused(Fault):
    """The server answered, but with an error."""

    def __init__(self, path: str, status: int, body: str) -> None:
        super().__init__(f"the vLLM server refused {path} ({status}): {body[:500]}", where="engine")
        self.status = status


def _parsed(path: str, status: int, body: bytes) -> Any:
    text = body.decode("utf-8", "replace")
    if not 200 <= status < 300:
        raise Refused(path, status, text)
    try:
        return json.loads(text) if text.strip() else None
    except ValueError as error:
        raise Fault(
            f"the vLLM server answered {path} with something that is not JSON ({error})", where="engine"
        ) from error


def ask(port: int, method: str, path: str, body: Any = None, *, deadline: float) -> Any:
    """Send one request and wait for its answer.

    Raises:
        Refused: the server answered with an error.
        Fault: no connection, a broken one, no answer within ``deadline`` seconds, or an answer that is not JSON.
    """
    connection = http.client.HTTPConnection(HOST, port, timeout=deadline)
    try:
        data = None if body is None else json.dumps(body).encode()
        connection.request(method, path, data, {"Content-Type": "application/json"})
        answer = connection.getresponse()
        return _parsed(path, answer.status, answer.read())
    except TimeoutError as error:
        raise Fault(f"the vLLM server did not answer {path} within {deadline:g} s", where="timeout") from error
    except (OSError, http.client.HTTPException) as error:
        raise Fault(f"the connection to the vLLM server broke at {path}: {error!r}", where="engine") from error
    finally:
        connection.close()


async def post(port: int, path: str, body: Any, *, deadline: float) -> Any:
    """Send one request beside others; cancelling hangs up, which tells the server to stop working on it.

    Raises:
        Refused: the server answered with an error.
        Fault: as ``ask``.
    """
    try:
        async with asyncio.timeout(deadline):
            status, answer = await _exchange(port, path, json.dumps(body).encode())
    except TimeoutError as error:
        raise Fault(f"the vLLM server did not answer {path} within {deadline:g} s", where="timeout") from error
    except (OSError, asyncio.IncompleteReadError, ValueError) as error:
        raise Fault(f"the connection to the vLLM server broke at {path}: {error!r}", where="engine") from error
    return _parsed(path, status, answer)


async def _exchange(port: int, path: str, data: bytes) -> tuple[int, bytes]:
    """One request on a connection of its own, which the server closes after its answer."""
    reader, writer = await asyncio.open_connection(HOST, port, limit=1 << 24)
    try:
        writer.write(
            f"POST {path} HTTP/1.1\r\nHost: {HOST}:{port}\r\nContent-Type: application/json\r\n"
            f"Content-Length: {len(data)}\r\nConnection: close\r\n\r\n".encode()
            + data
        )
        await writer.drain()
        head = await reader.readuntil(b"\r\n\r\n")
        first, *lines = head.decode("latin-1").split("\r\n")
        status = int(first.split(" ", 2)[1])
        fields = {name.strip().lower(): value.strip() for name, _, value in (line.partition(":") for line in lines)}
        if fields.get("transfer-encoding", "").lower() == "chunked":
            return status, await _chunks(reader)
        if "content-length" in fields:
            return status, await reader.readexactly(int(fields["content-length"]))
        return status, await reader.read()
    finally:
        writer.close()


async def _chunks(reader: asyncio.StreamReader) -> bytes:
    parts: list[bytes] = []
    while size := int((await reader.readline()).split(b";")[0], 16):
        parts.append(await reader.readexactly(size))
        await reader.readline()
    return b"".join(parts)
