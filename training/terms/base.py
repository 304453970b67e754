"""What a term returns, and how its values become metrics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import torch
from torch import Tensor

__all__ = ["LOG_RATIO_LIMIT", "Term", "summarise"]

LOG_RATIO_LIMIT = 20.0
"""exp() of much more overflows float32 in products; such a ratio is far outside every clip range."""

EXTREMES = frozenset({"ratio", "is_weight"})
"""Values whose extremes matter as much as their mean."""


@dataclass(frozen=True, slots=True)
class Term:
    """Losses of one term, and what it saw."""

    losses: Tensor
    """[D], differentiable."""
    values: Mapping[str, Tensor] = field(default_factory=dict)
    """Name to ``[D]``, detached and raw: taken before any clip, cap or coefficient."""


def summarise(collected: Mapping[str, Sequence[Tensor]]) -> dict[str, float]:
    """Turn per-decision values of a whole update into metrics: the mean, and the extremes where they matter.

    Working on every value, not on means of micro-batches, keeps metrics independent of how the batch was cut.
    """
    metrics = {}
    for name, pieces in collected.items():
        values = torch.cat(list(pieces)).double()
        if len(values) == 0:
            continue
        if name in EXTREMES:
            metrics[f"{name}_mean"] = float(values.mean())
            metrics[f"{name}_min"] = float(values.min())
            metrics[f"{name}_max"] = float(values.max())
        else:
            metrics[name] = float(values.mean())
    return metrics
