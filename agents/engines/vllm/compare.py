"""Which parameters of a served model are not what was delivered, whatever layout the engine keeps them in.

Kernels pack weights and drop the originals, so a matrix is compared by what it does: a few random vectors go through
the layer and through the delivered matrix. Runs inside vLLM's worker, after a delivery that failed its probe.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

__all__ = ["differing"]

_VECTORS = 4
_TOLERANCE = {torch.float32: 1e-5, torch.float16: 4e-3, torch.bfloat16: 2e-2}
"""Largest error of a product, as a share of the sum of its terms' sizes."""
_HEAD = "lm_head"


def differing(model: Any, weights: Mapping[str, Tensor]) -> list[str]:
    """Return the names, out of ``weights``, whose value the model does not compute with.

    Args:
        model: vLLM's module.
        weights: tensors under the names of the policy's folder.
    """
    modules = dict(model.named_modules())
    whole = {part: name for name, parts in getattr(model, "packed_modules_mapping", {}).items() for part in parts}
    order = {part: i for parts in getattr(model, "packed_modules_mapping", {}).values() for i, part in enumerate(parts)}
    layers: dict[tuple[str, str], list[str]] = {}
    for name in weights:
        path, _, kind = name.rpartition(".")
        above, _, last = path.rpartition(".")
        if path not in modules and last in whole:
            path = f"{above}.{whole[last]}".lstrip(".")
        layers.setdefault((path, kind), []).append(name)
    found: list[str] = []
    for (path, kind), names in layers.items():
        names.sort(key=lambda name: order.get(name.split(".")[-2], 0) if "." in name else 0)
        parts = [weights[name] for name in names]
        found += [name for name, same in zip(names, _compare(modules.get(path), kind, parts), strict=True) if not same]
    embedding = next((n for n in weights if n.endswith("embed_tokens.weight")), None)
    head = modules.get(_HEAD)
    tied = embedding is not None and f"{_HEAD}.weight" not in weights and head is not None
    # A tied head has no name of its own in the folder, and may keep a packed copy of an older embedding.
    if tied and not next(_products(head, [weights[str(embedding)]])):
        found.append(f"{_HEAD}.weight (tied to {embedding})")
    return found


def _compare(module: Any, kind: str, parts: list[Tensor]) -> Iterator[bool]:
    """Tell of each part of a layer whether the layer computes with it."""
    if module is None:
        return iter([False] * len(parts))
    own = getattr(module, kind, None)
    method = getattr(module, "quant_method", None)
    matrix = kind == "weight" and parts[0].ndim == 2 and hasattr(method, "apply")
    # An embedding is read by rows; as a head it multiplies, on some machines from a packed copy of its own.
    if matrix and not type(module).__name__.endswith("Embedding"):
        return _products(module, parts)
    return _direct(own, parts)


def _direct(own: Any, parts: list[Tensor]) -> Iterator[bool]:
    """Compare values; an engine pads what it holds at the end of the first dimension."""
    at = 0
    for part in parts:
        size = part.shape[0] if part.ndim else 1
        held = own[at : at + size] if isinstance(own, Tensor) and own.ndim else own
        at += size
        if not isinstance(held, Tensor) or held.shape != part.shape:
            yield False
            continue
        given = part.to(held.device, held.dtype)
        yield bool(torch.allclose(held.float(), given.float(), rtol=_TOLERANCE.get(held.dtype, 0.0), atol=1e-8))


@torch.inference_mode()
def _products(module: Any, parts: list[Tensor]) -> Iterator[bool]:
    """Compare what a matrix does to a few vectors."""
    place = next(module.parameters(), None)
    kind = place.dtype if place is not None and place.is_floating_point() else parts[0].dtype
    device = place.device if place is not None else parts[0].device
    generator = torch.Generator().manual_seed(0)
    vectors = torch.randn(_VECTORS, parts[0].shape[1], generator=generator).to(device, kind)
    try:
        got = module.quant_method.apply(module, vectors, bias=None).float()
    except Exception:  # a layer that cannot even be computed does not hold the weights
        got = torch.full((_VECTORS, 0), torch.nan, device=device)
    at = 0
    for part in parts:
        matrix = part.to(device, kind).float()
        wanted, size = vectors.float() @ matrix.T, vectors.float().abs() @ matrix.abs().T
        piece = got[:, at : at + part.shape[0]]
        at += part.shape[0]
        limit = _TOLERANCE.get(kind, 2e-2) * size + 1e-8
        yield piece.shape == wanted.shape and bool(((piece - wanted).abs() <= limit).all())
