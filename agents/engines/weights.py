"""Taking new weights into a model: by name and shape, all or nothing."""

from collections.abc import Mapping
from typing import Any

import torch

from peira.tools.errors import UsageError

__all__ = ["take_weights"]

_SHOWN = 8


def take_weights(model: torch.nn.Module, weights: Mapping[str, Any]) -> None:
    """Copy tensors or arrays over the model's parameters and persistent buffers.

    A tied tensor may be given under one of its names or under all of them, then with one value.

    Raises:
        UsageError: names are missing, unknown or contradictory, or shapes differ; nothing was changed.
    """
    state = model.state_dict()
    groups: dict[tuple[int, tuple[int, ...]], list[str]] = {}
    for name, tensor in state.items():
        groups.setdefault((tensor.data_ptr(), tuple(tensor.shape)), []).append(name)
    given = {name: torch.as_tensor(value) for name, value in weights.items()}
    missing = [names[0] for names in groups.values() if not any(name in given for name in names)]
    strange = [name for name in given if name not in state]
    if missing or strange:
        raise UsageError(
            f"weights do not match the model. Missing: {_listed(missing)}. Unknown: {_listed(strange)}. Deliver every "
            "parameter under the model's own name"
        )
    wrong = [
        f"{name} {tuple(value.shape)} instead of {tuple(state[name].shape)}"
        for name, value in given.items()
        if value.shape != state[name].shape
    ]
    if wrong:
        raise UsageError(f"weights do not match the model's shapes: {_listed(wrong)}")
    for names in groups.values():
        present = [name for name in names if name in given]
        if any(not torch.equal(given[present[0]], given[name]) for name in present[1:]):
            raise UsageError(f"{' and '.join(present)} are one tensor in this model, but two different ones were given")
    with torch.no_grad():
        for name, value in given.items():
            state[name].copy_(value)


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more
