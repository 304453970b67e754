"""Engines as subjects of the engine checks, with the learner as the truth. A new engine is one function and one line.

The reference is the very function that the learner scores decisions with, over a copy of the policy's weights.
"""

import copy
from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from peira.agents.engine_check import Subject, table_subject
from peira.agents.engines.base import Engine
from peira.agents.policy import Policy
from peira.agents.types import Ids, Legal
from peira.tools.errors import UsageError, unknown
from peira.training.model import decision_logprobs
from peira.training.types import MicroBatch

__all__ = ["ENGINES", "Learned", "policy_subject", "subject_of"]

Opener = Callable[[Policy, str | None, str | None, str | None], Engine]
"""From a policy, and a server's address, model and key, to an engine that serves the policy's weights."""

_MOVED = 0.05
"""Size of the noise that makes the second set of weights, as a share of a matrix's own spread."""


class Learned:
    """What the learner says, for several sets of weights.

    Args:
        model: the policy's model; its weights are the first set.
        vocab: number of plain ids.
    """

    def __init__(self, model: Any, vocab: int) -> None:
        moved = copy.deepcopy(model)
        generator = torch.Generator().manual_seed(0)
        with torch.no_grad():
            for parameter in moved.parameters():
                noise = torch.randn(parameter.shape, generator=generator).to(parameter.device, parameter.dtype)
                parameter.add_(noise, alpha=_MOVED + 0.5 * float(parameter.std()) if parameter.numel() > 1 else _MOVED)
        self.models, self.vocab = (model, moved), vocab

    def weights(self) -> tuple[dict[str, Any], ...]:
        """Return the sets, as the learner would deliver them."""
        return tuple(
            {name: tensor.detach().clone() for name, tensor in model.state_dict().items()} for model in self.models
        )

    @torch.no_grad()
    def logprobs(
        self, prompt: Ids, ids: Ids, temperature: float, legal: Legal | None, weights: int
    ) -> NDArray[np.float32]:
        """Return ``[L]``: the learner's log-prob of each of ``ids``."""
        micro = _micro(prompt, ids, temperature, legal)
        decided = decision_logprobs(self.models[weights], micro, self.vocab)
        return np.asarray(decided.logprobs.cpu().numpy(), dtype=np.float32)

    @torch.no_grad()
    def distribution(self, prompt: Ids, temperature: float, legal: Legal | None, weights: int) -> NDArray[np.float64]:
        """Return ``[R]`` log-probs of the next id by one plain forward pass."""
        model = self.models[weights]
        ids = torch.as_tensor(np.asarray(prompt, dtype=np.int64), device=model.device)[None]
        logits = model(input_ids=ids, use_cache=False).logits[0, -1].double().cpu()
        allowed = torch.zeros(len(logits), dtype=torch.bool)
        allowed[: self.vocab] = legal is None or legal.vocab
        if legal is not None:
            allowed[list(legal.ids)] = True
        scores = (logits.masked_fill(~allowed, -torch.inf) / (temperature or 1.0)).log_softmax(-1)
        return np.asarray(scores.numpy(), dtype=np.float64)


def _micro(prompt: Ids, ids: Ids, temperature: float, legal: Legal | None) -> MicroBatch:
    count = len(ids)
    row = np.concatenate([prompt, ids[:-1]]).astype(np.int64)
    zeros = np.zeros(count, dtype=np.int64)
    return MicroBatch(
        ids=row[None],
        rows=zeros,
        at=len(prompt) - 1 + np.arange(count, dtype=np.int64),
        targets=np.asarray(ids, dtype=np.int64),
        logprobs=np.zeros(count, dtype=np.float32),
        weights=np.ones(count, dtype=np.float32),
        tags=np.zeros(count, dtype=np.uint8),
        episode=zeros,
        temperature=np.full(count, temperature, dtype=np.float32),
        legal=zeros if legal is not None else zeros - 1,
        legal_sets=() if legal is None else (legal,),
    )


def _local(policy: Policy, url: str | None, model: str | None, key: str | None) -> Engine:
    del url, model, key
    from peira.agents.engines.local import LocalEngine

    return LocalEngine(policy.model(), vocab=policy.vocab)


def _server(policy: Policy, url: str | None, model: str | None, key: str | None) -> Engine:
    from peira.agents.engines.server import ServerEngine, ServerSettings

    if url is None or model is None:
        raise UsageError("checking a server needs its address and the model's name: give --server and --model")
    own = policy.model().config
    context = int(getattr(own, "max_position_embeddings", 2048))
    settings = ServerSettings(api="completions", exact=True, context=context)
    return ServerEngine(url, model, text=policy.text, settings=settings, key=key)


ENGINES: Mapping[str, tuple[Opener, frozenset[str]]] = {
    "local": (_local, frozenset()),
    "server": (_server, frozenset({"delivery", "score"})),
}
"""Engines over a policy, and what each lacks; ``scripted`` needs none. Any other is ``module:function``."""


def policy_subject(name: str, opener: Opener, lacks: frozenset[str], policy: Policy, **given: Any) -> Subject:
    """Return an engine over a policy as a subject; ``given`` are a server's ``url``, ``model`` and ``key``."""
    told = Learned(policy.model(), policy.vocab)
    native = () if policy.actions is None else tuple(policy.actions.ids)
    place = tuple(given.get(part) for part in ("url", "model", "key"))
    return Subject(
        name=f"{name}: {policy.path}",
        open=lambda: opener(policy, *place),
        vocab=policy.vocab,
        reference=told,
        weights=told.weights(),
        native=native,
        lacks=lacks,
    )


def subject_of(
    name: str, policy: str | None, *, url: str | None = None, model: str | None = None, key: str | None = None
) -> Subject:
    """Return the engine of a name as a subject.

    Args:
        name: ``scripted``, a key of ``ENGINES``, or ``module:function``, a function from a ``Policy`` to an engine.
        policy: folder of the policy whose weights the engine serves.
        url: address of a server.
        model: the model's name there.
        key: the key it wants.

    Raises:
        UsageError: an unknown name, or something missing.
    """
    if name == "scripted":
        return table_subject()
    known = ENGINES.get(name)
    if known is None and ":" not in name:
        raise unknown("engine", name, ("scripted", *ENGINES), remedy="Or give module:function.")
    if policy is None:
        raise UsageError(f"the engine {name!r} is checked against a policy's weights: give --policy DIR")
    opened = Policy.load(policy)
    if known is not None:
        return policy_subject(name, *known, opened, url=url, model=model, key=key)
    made = _found(name)
    return policy_subject(name, lambda folder, *_: made(folder), frozenset(getattr(made, "lacks", ())), opened)


def _found(name: str) -> Callable[[Policy], Engine]:
    module, _, attribute = name.partition(":")
    try:
        made = getattr(import_module(module), attribute)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"the engine {name!r} cannot be found: {error}") from error
    if not callable(made):
        raise UsageError(f"the engine {name!r} is no function from a policy to an engine")
    found: Callable[[Policy], Engine] = made
    return found
