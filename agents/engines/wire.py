"""HTTP/1.1 as far as a client of inference servers needs it: POST, JSON in and out, kept connections, cancellation.

Written on asyncio's streams, so that no further package is needed and a cancelled request closes its connection, which
is how a server learns that nobody waits any more. Every size is bounded.
"""

import asyncio
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from urllib.parse import urlsplit

from peira.tools.errors import UsageError

__all__ = ["Reply", "Wire", "WireError"]

_MAX_HEADERS = 200
_MAX_BODY = 1 << 28
_CHUNK = 1 << 16


class WireError(Exception):
    """The connection broke, or what came over it is no HTTP."""


@dataclass(frozen=True, slots=True)
class Reply:
    """A server's answer."""

    status: int
    headers: Mapping[str, str]
    """Names in lower case."""
    body: bytes


@dataclass(slots=True)
class _Line:
    reader: asyncio.StreamReader
    writer: asyncio.StreamWriter
    used: bool = False
    """It has carried an answer already; a server may have closed it since."""


class Wire:
    """Connections to one server. Bound to the event loop in which it was first used.

    Args:
        url: ``http://host:port/base`` or ``https://...``; paths are appended to it.
        headers: sent with every request.
        connect_seconds: longest wait for a connection.

    Raises:
        UsageError: no such address can be.
    """

    def __init__(self, url: str, *, headers: Mapping[str, str] | None = None, connect_seconds: float = 10.0) -> None:
        try:
            parts = urlsplit(url)
            port = parts.port
        except ValueError as error:
            raise UsageError(f"{url!r} is no address of a server ({error}); give http://HOST:PORT/v1") from error
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
            raise UsageError(f"{url!r} is no address of a server; give http://HOST:PORT/v1 or https://HOST/v1")
        self.host, self.secure = parts.hostname, parts.scheme == "https"
        self.port = port or (443 if self.secure else 80)
        self._base = parts.path.rstrip("/")
        self._connect_seconds = connect_seconds
        shown = f"[{self.host}]" if ":" in self.host else self.host
        self._headers = {"Host": f"{shown}:{self.port}", "Accept": "application/json", **(headers or {})}
        self._idle: list[_Line] = []
        self._closed = False
        for name, value in self._headers.items():
            if not (name + value).isascii() or any(sign in name + value for sign in "\r\n\0"):
                raise UsageError(f"the header {name} cannot be sent: it holds line breaks or letters beyond ASCII")

    async def post(self, path: str, body: bytes) -> Reply:
        """Send JSON to a path and return the answer, whatever its status.

        Raises:
            WireError: no connection, or it broke before the whole answer had come.
        """
        while True:
            line = self._idle.pop() if self._idle else await self._connect()
            used, kept, first = line.used, False, b""
            try:
                first = await self._send(line, path, body)
                if first or not used:
                    reply, kept = await self._receive(line, first)
                    return reply
            except (ConnectionError, asyncio.IncompleteReadError, OSError, ValueError) as error:
                if first or not used:
                    raise WireError(f"the connection to {self.host}:{self.port} broke: {_told(error)}") from error
            finally:
                if kept and not self._closed:
                    line.used = True
                    self._idle.append(line)
                else:
                    line.writer.close()
            self._drop_idle()  # the server had closed a kept connection before it answered: ask over a fresh one

    async def close(self) -> None:
        """Close what is open."""
        self._closed = True
        lines, self._idle = self._idle, []
        for line in lines:
            line.writer.close()
        for line in lines:
            with suppress(ConnectionError, OSError):
                await line.writer.wait_closed()

    def _drop_idle(self) -> None:
        for line in self._idle:
            line.writer.close()
        self._idle.clear()

    async def _connect(self) -> _Line:
        context = None
        if self.secure:
            import ssl

            context = ssl.create_default_context()
        try:
            async with asyncio.timeout(self._connect_seconds):
                reader, writer = await asyncio.open_connection(self.host, self.port, ssl=context, limit=_CHUNK)
        except TimeoutError as error:
            raise WireError(f"no connection to {self.host}:{self.port} in {self._connect_seconds:g} s") from error
        except OSError as error:
            raise WireError(f"no connection to {self.host}:{self.port}: {_told(error)}") from error
        return _Line(reader, writer)

    async def _send(self, line: _Line, path: str, body: bytes) -> bytes:
        """Write a request; return the first line of the answer, empty if the connection ended instead."""
        headers = {**self._headers, "Content-Type": "application/json", "Content-Length": str(len(body))}
        head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
        line.writer.write(f"POST {self._base}{path} HTTP/1.1\r\n{head}\r\n".encode("ascii") + body)
        await line.writer.drain()
        return await line.reader.readline()

    async def _receive(self, line: _Line, first: bytes) -> tuple[Reply, bool]:
        """Read an answer; also say whether the connection can be used again."""
        status, version = _status(first)
        headers = await _read_headers(line.reader)
        while 100 <= status < 200:  # an interim answer; the real one follows
            status, version = _status(await line.reader.readline())
            headers = await _read_headers(line.reader)
        sized = "content-length" in headers
        chunked = headers.get("transfer-encoding", "").lower() == "chunked"
        if chunked:
            body = await _read_chunks(line.reader)
        elif sized:
            body = await line.reader.readexactly(_bounded(int(headers["content-length"])))
        elif status in (204, 304):
            body = b""
        else:
            body = await line.reader.read(_MAX_BODY)
        connection = headers.get("connection", "").lower()
        again = (chunked or sized) and connection != "close" and (version != b"HTTP/1.0" or connection == "keep-alive")
        return Reply(status, headers, body), again


def _told(error: BaseException) -> str:
    if isinstance(error, asyncio.IncompleteReadError):
        return f"the answer ended early, after {len(error.partial)} bytes of its next part"
    return str(error) or type(error).__name__


def _status(line: bytes) -> tuple[int, bytes]:
    version, _, rest = line.partition(b" ")
    code = rest[:3]
    if not line:
        raise ConnectionError("closed without an answer")
    if version not in (b"HTTP/1.1", b"HTTP/1.0") or not code.isdigit():
        raise ValueError(f"no HTTP answer but {line[:40]!r}")
    return int(code), version


async def _read_headers(reader: asyncio.StreamReader) -> dict[str, str]:
    headers: dict[str, str] = {}
    for _ in range(_MAX_HEADERS):
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("closed within the headers")
        if not line.strip():
            return headers
        name, _, value = line.decode("latin-1").partition(":")
        headers[name.strip().lower()] = value.strip()
    raise ValueError(f"more than {_MAX_HEADERS} headers")


async def _read_chunks(reader: asyncio.StreamReader) -> bytes:
    pieces: list[bytes] = []
    total = 0
    while True:
        line = await reader.readline()
        if not line.endswith(b"\n"):
            raise ConnectionError("closed within the answer")
        size = _bounded(int(line.partition(b";")[0].strip() or b"x", 16))
        if size == 0:
            await _read_headers(reader)  # trailers, and the empty line that ends them
            return b"".join(pieces)
        total = _bounded(total + size)
        pieces.append(await reader.readexactly(size))
        await reader.readexactly(2)


def _bounded(size: int) -> int:
    if not 0 <= size <= _MAX_BODY:
        raise ValueError(f"an answer of {size} bytes is not read (at most {_MAX_BODY})")
    return size
