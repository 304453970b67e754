"""vLLM as a server of our own on this machine: started here, reached over loopback, ended with this process.

New weights reach it without a restart: requests in flight are held, the weights go over in a file in shared memory or
through the server's API, every cache is dropped, the requests go on. The server says for each id which weights made it.
"""

import asyncio
import base64
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
import weakref
from collections.abc import Iterator, Mapping, Sequence
from itertools import count
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from peira.agents.engines.base import Request
from peira.agents.engines.vllm.asking import spread
from peira.agents.engines.vllm.inside import ENVIRONMENT, require, served_of, settings_of, tensors
from peira.agents.engines.vllm.loopback import HOST, Refused, ask, post
from peira.agents.engines.vllm.names import Manifest, matched
from peira.agents.policy import Policy
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.tools.errors import Fault, UsageError

__all__ = ["VLLMServer"]

_PART = 1 << 25
"""Bytes of weights in one request."""
_LOG = 1_500
"""Characters of the server's log shown when it dies."""
_FLAGS = {"enforce_eager", "enable_prefix_caching", "disable_log_stats"}


class VLLMServer:
    """An ``Engine`` over a vLLM server that this object starts and ends.

    Args:
        policy: the folder that is served.
        slots: requests served at once; more wait.
        context: longest prompt plus completion; by default the policy's own, 2,048 at the most.
        dtype: of the weights served; ``float32`` on a CPU.
        version: version of the folder's weights.
        memory: GiB of key-value cache.
        block: tokens of a cache block; left out, vLLM's choice.
        patience: seconds any one call may take.
        startup: seconds until the server must be ready.
        transport: how weights go over: a file in ``memory`` both processes see, or the ``http`` API.
        options: further options of vLLM's server, as ``name = value``; ``True`` gives a flag.

    Raises:
        UsageError: vLLM is missing, or cannot serve this policy with these numbers; the end of its log is shown.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        slots: int = 256,
        context: int | None = None,
        dtype: str = "float32",
        version: int = 0,
        memory: float = 1.0,
        block: int | None = None,
        patience: float = 600.0,
        startup: float = 900.0,
        transport: Literal["memory", "http"] = "memory",
        options: Mapping[str, Any] | None = None,
    ) -> None:
        require()
        if transport not in ("memory", "http"):
            raise UsageError(f"weights go to a server over 'memory' or 'http', not {transport!r}")
        self._manifest = Manifest.read(policy.path)
        self._served = served_of(policy, self._manifest, context)
        self._first, self._version, self._loads = version, version, 0
        self._patience, self._transport, self._closed = patience, transport, False
        self._broken: str | None = None
        self._numbers = count()
        self.dtype = dtype
        """Of the weights served; what a probe may differ by hangs on it."""
        given = settings_of(policy, self._served, slots=slots, dtype=dtype, memory=memory, block=block)
        self.port = _free_port()
        self._log = tempfile.NamedTemporaryFile("w+b", prefix="peira-vllm-", suffix=".log", delete=False)  # noqa: SIM115
        self.process = _spawn({**given, **(options or {})}, self.port, self._log)
        self._end = weakref.finalize(self, _end, self.process, self._log.name)
        try:
            self._wait(startup)
            self._control("/init_weight_transfer_engine", {"init_info": {}})
        except BaseException as error:
            tail = self._tail()
            self._end()
            if not isinstance(error, Fault):
                raise
            raise UsageError(
                f"vLLM's server cannot serve {policy.path}: {error}. The end of its log:\n{tail}"
            ) from error

    # ---- the contract -----------------------------------------------------------------------------------------------

    @property
    def version(self) -> int:
        """Version of the weights now in use."""
        return self._version

    @property
    def context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        return self._served.context

    async def generate(self, request: Request) -> Completion:
        """Sample one completion; ``max_tokens`` is cut to what the context has left.

        Raises:
            Fault: the server died, hangs, or answered something that cannot be trusted.
            UsageError: a request that can never work.
        """
        self._usable()
        self._served.check(request)
        told = await self._answer(request.prompt.tolist(), self._served.sampling(request))
        if told is None:
            return Completion(*_NOTHING, Finish.ABORT)
        ids = list(told["token_ids"] or ())
        logprobs = [entry["logprob"] for entry in (told["logprobs"] or {}).get("content") or ()]
        spans = [(str(s["version"]), int(s["start"]), int(s["end"])) for s in told["weight_versions"] or ()]
        versions = spread(spans, len(ids), self._first)
        return self._served.completion(request, ids, logprobs, versions, str(told["finish_reason"]))

    async def score(
        self, ids: Ids, candidates: Sequence[int], start: int, legal: Legal | None = None
    ) -> NDArray[np.float32]:
        """Return ``[T - start, C]``: log-prob (temperature 1) of each candidate as the id at positions start..T-1.

        Raises:
            Fault: the server died, hangs, or answered something that cannot be trusted.
            UsageError: ids or candidates outside the model, ``start`` outside 1..T, or an empty legal set.
        """
        self._usable()
        self._served.check_score(ids, candidates, start, legal)
        row, parts = ids.tolist(), self._served.scoring(candidates, legal)
        answers = await asyncio.gather(
            *(self._answer(row[:at], part) for at in range(start, len(row)) for part in parts)
        )
        tables: list[dict[int, float]] = [{} for _ in range(len(row) - start)]
        for index, told in enumerate(answers):
            if told is None:
                raise Fault("the engine was closed", where="engine")
            for first in ((told["logprobs"] or {}).get("content") or ())[:1]:
                tables[index // len(parts)] |= {e["token_id"]: e["logprob"] for e in (*first["top_logprobs"], first)}
        return self._served.scores(tables, candidates, legal)

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights; requests in flight are held meanwhile and go on under them.

        Raises:
            UsageError: names or shapes that do not match; nothing changes.
            Fault: the server failed half-way. It is then ended, because nobody knows what it holds.
        """
        self._usable()
        named = tensors(matched(weights, self._manifest))
        try:
            self._control("/pause?mode=keep")
            self._send(named, version)
            self._forget()
            self._control("/resume")
        except Fault as error:
            self._die(f"the delivery of version {version} failed half-way: {error}")
            raise self._fault() from error
        self._version = version
        self._loads += 1

    def differing(self, weights: Mapping[str, Any]) -> list[str]:
        """Return the names, out of the learner's weights, whose values the server does not compute with."""
        found: set[str] = set()
        for part in self._parts(tensors(matched(weights, self._manifest)), whole=True):
            told = self._control("/collective_rpc", {"method": "peira_differing", "kwargs": part})
            found |= set(told["results"][0])
        return sorted(found)

    def release(self, session: int) -> None:
        """Nothing to do: what an episode leaves in the prefix cache goes when room is needed."""

    async def close(self) -> None:
        """End the server; pending requests end with ``Finish.ABORT``."""
        self._closed = True
        await asyncio.to_thread(self._end)

    # ---- weights ----------------------------------------------------------------------------------------------------

    def _send(self, named: Mapping[str, Any], version: int) -> None:
        try:
            self._control("/start_weight_update")
        except Refused:  # an update that was broken off: close it, then open this one
            self._control("/finish_weight_update", {})
            self._control("/start_weight_update")
        for part in self._parts(named):
            self._control("/update_weights", {"update_info": part})
        self._control("/finish_weight_update", {"weight_version": str(version)})

    def _parts(self, named: Mapping[str, Any], *, whole: bool = False) -> Iterator[dict[str, str]]:
        """Yield the weights as the worker reads them; a file is removed only after whoever asked for it is done."""
        from safetensors.torch import save, save_file

        ready = {name: value.contiguous().cpu() for name, value in named.items()}
        if self._transport == "memory":
            with tempfile.TemporaryDirectory(prefix="peira-weights-", dir=_shared_memory()) as folder:
                path = Path(folder) / "weights.safetensors"
                save_file(ready, path)
                yield {"path": str(path)}
            return
        part: dict[str, Any] = {}
        size = 0
        for name, value in ready.items():
            if part and not whole and size + value.nbytes > _PART:
                yield {"data": base64.b64encode(save(part)).decode()}
                part, size = {}, 0
            part[name] = value
            size += value.nbytes
        yield {"data": base64.b64encode(save(part)).decode()}

    def _forget(self) -> None:
        """Drop the prefix cache; requests in flight compute their context again under the new weights."""
        told = self._control("/reset_prefix_cache?reset_running_requests=true")
        if not (told or {}).get("success"):
            raise Fault("vLLM did not drop its prefix cache", where="engine")

    # ---- the server -------------------------------------------------------------------------------------------------

    @property
    def _salt(self) -> str:
        return f"{self._version}.{self._loads}"

    def _usable(self) -> None:
        if self._closed:
            raise UsageError("this engine was closed; make a new one")
        if self._broken is not None:
            raise self._fault()

    def _fault(self) -> Fault:
        return Fault(f"the vLLM server is dead: {self._broken}", where="engine")

    def _control(self, path: str, body: Any = None) -> Any:
        return ask(self.port, "POST", path, body, deadline=self._patience)

    async def _answer(self, prompt: list[int], params: Mapping[str, Any]) -> Any:
        """Ask for one completion; ``None`` when the engine was closed meanwhile."""
        number = f"peira-{next(self._numbers)}"
        body = {"request_id": number, "token_ids": prompt, "sampling_params": dict(params)}
        if self._salt:
            body["cache_salt"] = self._salt
        try:
            told = await post(self.port, "/inference/v1/generate", body, deadline=self._patience)
        except Fault as error:
            if self._closed:
                return None
            code = self.process.poll()
            if code is not None:
                self._die(f"its process ended with code {code}")
                raise self._fault() from error
            raise
        if number not in str(told.get("request_id")) or len(told.get("choices") or ()) != 1:
            raise Fault("the vLLM server answered another request than the one it was asked", where="engine")
        return told["choices"][0]

    def _die(self, reason: str) -> None:
        self._broken = f"{reason}. The end of its log:\n{self._tail()}"
        self._end()

    def _tail(self) -> str:
        try:
            return Path(self._log.name).read_text(encoding="utf-8", errors="replace")[-_LOG:].strip()
        except OSError:
            return "(no log)"

    def _wait(self, deadline: float) -> None:
        """Wait until the server answers."""
        end = time.monotonic() + deadline
        while time.monotonic() < end:
            code = self.process.poll()
            if code is not None:
                raise Fault(f"its process ended with code {code} before it was ready", where="engine")
            try:
                ask(self.port, "GET", "/health", deadline=5.0)
                return
            except Fault:
                time.sleep(0.2)
        raise Fault(f"it was not ready within {deadline:g} s", where="timeout")


_NOTHING = (np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32))


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((HOST, 0))
        return int(probe.getsockname()[1])


def _shared_memory() -> str | None:
    return "/dev/shm" if os.access("/dev/shm", os.W_OK) else None


def _spawn(given: Mapping[str, Any], port: int, log: Any) -> "subprocess.Popen[bytes]":
    """Start the server in a process group of its own, with a pipe whose other end tells it that we live."""
    command = [sys.executable, "-m", "peira.agents.engines.vllm.child", "--host", HOST, "--port", str(port)]
    command += [
        "--weight-transfer-config",
        '{"backend": "peira"}',
        "--enable-scale-out",
        "--disable-uvicorn-access-log",
    ]
    for name, value in given.items():
        flag = "--" + name.replace("_", "-")
        if value is True or name in _FLAGS:
            command.append(flag)
        else:
            command += [flag, *(map(str, value) if isinstance(value, list) else [str(value)])]
    environment = {**ENVIRONMENT, **os.environ, "VLLM_SERVER_DEV_MODE": "1", "VLLM_USE_V2_MODEL_RUNNER": "0"}
    return subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=log, stderr=subprocess.STDOUT, env=environment, start_new_session=True
    )


def _end(process: "subprocess.Popen[bytes]", log: str) -> None:
    """End the server with everything it started, gently first; then remove its log."""
    for sign, seconds in ((signal.SIGTERM, 10.0), (signal.SIGKILL, 30.0)):
        try:
            os.killpg(process.pid, sign)
        except (ProcessLookupError, PermissionError):
            break
        try:
            process.wait(seconds)
        except subprocess.TimeoutExpired:
            continue
    process.poll()
    if process.stdin is not None:
        process.stdin.close()
    Path(log).unlink(missing_ok=True)
