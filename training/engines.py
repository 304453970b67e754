"""The engine of a run, from its configuration."""

from peira.agents.engines.base import Engine
from peira.agents.engines.local import LocalEngine
from peira.agents.policy import Policy
from peira.training.config import RunConfig

__all__ = ["engine_of"]

_SLOTS = 1_024


def engine_of(config: RunConfig, policy: Policy) -> Engine:
    """Make the engine that plays the run's episodes.

    Raises:
        UsageError: an engine that is not installed, or one that cannot serve this policy.
    """
    chosen, context = config.policy, config.rollout.context
    slots = min(config.rollout.concurrency, _SLOTS)
    if chosen.engine == "local":
        model = policy.model(device=chosen.device, dtype=chosen.dtype)
        return LocalEngine(model, slots=slots, vocab=policy.vocab, context=context)
    if chosen.engine == "vllm":
        from peira.agents.engines.vllm.inside import VLLMEngine

        return VLLMEngine(policy, slots=slots, context=context, dtype=chosen.dtype, memory=chosen.cache)
    from peira.agents.engines.vllm.server import VLLMServer

    return VLLMServer(policy, slots=slots, context=context, dtype=chosen.dtype, memory=chosen.cache)
