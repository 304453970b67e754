"""What a value is compared with, and in which unit: baselines and scales over plain arrays."""

from typing import Literal, assert_never

import numpy as np
from numpy.typing import NDArray

__all__ = ["Baseline", "Deviation", "baselines", "deviation", "rescaled"]

Array = NDArray[np.float64]
Baseline = Literal["mean", "leave_one_out", "none"]
Deviation = Literal["population", "sample"]


def baselines(totals: Array, kind: Baseline) -> Array:
    """Return [N] what each of the [N] returns of a group is compared with.

    With ``leave_one_out`` that is the mean of the *others* (RLOO, arXiv 2402.14740), which a member's own decisions
    do not influence; a member without others is compared with itself.
    """
    match kind:
        case "none":
            return np.zeros_like(totals)
        case "mean":
            return np.full_like(totals, totals.mean())
        case "leave_one_out":
            return (totals.sum() - totals) / (len(totals) - 1) if len(totals) > 1 else totals.copy()
        case _:
            assert_never(kind)


def deviation(values: Array, kind: Deviation) -> float:
    """Return the standard deviation; 0 for fewer than two values, for which the sample kind is not defined."""
    return float(np.std(values, ddof=1 if kind == "sample" else 0)) if len(values) > 1 else 0.0


def rescaled(values: Array, unit: float, tolerance: float, eps: float) -> Array:
    """Return ``values / (unit + eps)``, and exactly 0 where the unit is no more than rounding noise.

    Without the tolerance a reward difference of 1e-5 becomes an advantage of 1.
    """
    return values / (unit + eps) if unit > tolerance else np.zeros_like(values)
