"""What runs inside vLLM: the mask of legal rows, the taking of new weights, and the look at what is held.

vLLM imports this module by name in whatever process its workers live; nothing else of peira's engines may import it.
"""

import base64
from collections import OrderedDict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor
from vllm.distributed.weight_transfer.base import (
    WeightTransferEngine,
    WeightTransferInitInfo,
    WeightTransferUpdateInfo,
)
from vllm.distributed.weight_transfer.factory import WeightTransferEngineFactory
from vllm.model_executor.model_loader.reload import finalize_layerwise_reload, initialize_layerwise_reload
from vllm.v1.sample.logits_processor import LogitsProcessor
from vllm.v1.sample.logits_processor.interface import MoveDirectionality

from peira.agents.engines.vllm.asking import LEGAL
from peira.agents.engines.vllm.compare import differing

__all__ = ["BACKEND", "Extension", "LegalRows", "Transfer"]

BACKEND = "peira"
_MASKS = 512

Rule = tuple[int, tuple[int, ...]]


class LegalRows(LogitsProcessor):  # type: ignore[misc]
    """Sets the logits of rows outside a request's legal set to ``-inf``, before temperature and softmax.

    So an illegal row has no probability, and the log-probs vLLM reports are those among the legal rows.
    """

    def __init__(self, vllm_config: Any, device: torch.device, is_pin_memory: bool) -> None:
        del vllm_config, is_pin_memory
        self._device = device
        self._rules: dict[int, Rule] = {}
        self._masks: OrderedDict[Rule, Tensor] = OrderedDict()
        self._batch: tuple[Tensor, Tensor] | None = None

    @classmethod
    def validate_params(cls, sampling_params: Any) -> None:
        """Refuse a legal set that is not one."""
        rule = _rule(sampling_params)
        if rule is not None and not rule[0] and not rule[1]:
            raise ValueError("the legal set is empty")

    def is_argmax_invariant(self) -> bool:
        """A mask changes which row is best, so greedy requests need it too."""
        return False

    def update_state(self, batch_update: Any) -> None:
        """Follow the requests through the rows of the batch."""
        if batch_update is None:
            return
        self._batch = None
        for index in batch_update.removed:
            self._rules.pop(index, None)
        for index, params, *_ in batch_update.added:
            self._set(index, _rule(params))
        for one, other, direction in batch_update.moved:
            moved, displaced = self._rules.pop(one, None), self._rules.pop(other, None)
            self._set(other, moved)
            if direction == MoveDirectionality.SWAP:
                self._set(one, displaced)

    def _set(self, index: int, rule: Rule | None) -> None:
        if rule is None:
            self._rules.pop(index, None)
        else:
            self._rules[index] = rule

    def apply(self, logits: Tensor) -> Tensor:
        """Mask the rows of the batch that have a rule."""
        if not self._rules:
            return logits
        if self._batch is None:
            index = torch.tensor(list(self._rules), device=logits.device)
            masks = torch.stack([self._mask(rule, logits.shape[-1]) for rule in self._rules.values()])
            self._batch = (index, masks.to(logits.device))
        index, masks = self._batch
        logits[index] = logits[index].masked_fill(masks, -torch.inf)
        return logits

    def _mask(self, rule: Rule, rows: int) -> Tensor:
        mask = self._masks.get(rule)
        if mask is None:
            plain, ids = rule
            mask = torch.ones(rows, dtype=torch.bool)
            mask[:plain] = False
            mask[list(ids)] = False
            mask = self._masks[rule] = mask.to(self._device)
            if len(self._masks) > _MASKS:
                self._masks.popitem(last=False)
        else:
            self._masks.move_to_end(rule)
        return mask


def _rule(params: Any) -> Rule | None:
    given = (getattr(params, "extra_args", None) or {}).get(LEGAL)
    return None if given is None else (int(given["plain"]), tuple(int(i) for i in given["ids"]))


# ---- weights --------------------------------------------------------------------------------------------------------


def begin(model: Any) -> None:
    """Open a model for new weights."""
    initialize_layerwise_reload(model)


def put(model: Any, dtype: torch.dtype, weights: Iterable[tuple[str, Tensor]]) -> None:
    """Hand over some of the weights, cast to the dtype that is served.

    Tensors are held until their layer is whole, so their memory must not be used for the next part.
    """
    model.load_weights((name, value.to(dtype) if value.is_floating_point() else value) for name, value in weights)


def finish(model: Any, model_config: Any) -> None:
    """Close the model: what was handed over is packed as the kernels want it, a tied head included.

    vLLM packs again only layers that were handed a tensor by name. A tied head is handed none, and on machines whose
    kernels work on a packed copy it would go on with the old embedding.
    """
    with torch.inference_mode():
        finalize_layerwise_reload(model, model_config)
        settle_tied_head(model)


def settle_tied_head(model: Any) -> None:
    """Pack the head again where it is the input embedding."""
    embedding = getattr(getattr(model, "model", None), "embed_tokens", None)
    head = getattr(model, "lm_head", None)
    if embedding is None or head is None or head is embedding:
        return
    if getattr(model.config, "tie_word_embeddings", False):
        head.weight = embedding.weight
        head.quant_method.process_weights_after_loading(head)


def _read(path: str, data: str) -> dict[str, Tensor]:
    """Return the tensors of a safetensors file, or of the bytes of one."""
    from safetensors.torch import load, load_file

    return dict(load_file(path)) if path else dict(load(base64.b64decode(data)))


@dataclass
class Init(WeightTransferInitInfo):  # type: ignore[misc]
    """Nothing has to be agreed on."""


@dataclass
class Part(WeightTransferUpdateInfo):  # type: ignore[misc]
    """Some of the weights, in the format of a safetensors file."""

    path: str = ""
    """A file, in memory that both processes see; or"""
    data: str = ""
    """the file's bytes in base64, for a server that shares no memory with the learner."""


class Transfer(WeightTransferEngine[Init, Part]):  # type: ignore[misc]
    """Takes weights from files in shared memory or out of the request itself."""

    init_info_cls, update_info_cls = Init, Part

    def init_transfer_engine(self, init_info: Init) -> None:
        """Nothing to prepare."""

    def start_weight_update(self) -> None:
        """Open the model; a delivery that was broken off before leaves nothing behind."""
        begin(self.model)

    def update_weights(self, update_info: dict[str, Any]) -> None:
        """Take one part. The base class waits for an accelerator here, which a CPU does not have."""
        self.receive_weights(self.parse_update_info(update_info))
        if self.device.type != "cpu":
            torch.accelerator.synchronize()

    def receive_weights(self, update_info: Part) -> None:
        """Hand one part to the model."""
        put(self.model, self.model_config.dtype, _read(update_info.path, update_info.data).items())

    def finish_weight_update(self) -> None:
        """Close the model."""
        finish(self.model, self.model_config)

    def shutdown(self) -> None:
        """Nothing to give back."""


if BACKEND not in WeightTransferEngineFactory._registry:
    WeightTransferEngineFactory.register_engine(BACKEND, Transfer)


class Extension:
    """Methods vLLM adds to its worker; they are called by name."""

    model_runner: Any

    def peira_take(self, weights: Mapping[str, Tensor]) -> None:
        """Take all weights at once, from this process's memory."""
        runner = self.model_runner
        begin(runner.model)
        put(runner.model, runner.model_config.dtype, weights.items())
        finish(runner.model, runner.model_config)

    def peira_differing(self, weights: Mapping[str, Tensor] | None = None, path: str = "", data: str = "") -> list[str]:
        """Return the names of the given weights that the model does not compute with."""
        return differing(self.model_runner.model, _read(path, data) if weights is None else weights)
