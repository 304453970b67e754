"""How sure a measured mean is, when every task was tried several times."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peira.envs.seeding import rng

__all__ = ["Estimate", "mean", "share", "wilson"]

Z = 1.959963984540054
"""Two-sided 95 % of the normal distribution."""
_RESAMPLES = 2_000


@dataclass(frozen=True, slots=True)
class Estimate:
    """A mean and its 95 % confidence interval."""

    mean: float
    low: float
    high: float

    def __format__(self, spec: str) -> str:
        spec = spec or ".3g"
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"

    def json(self) -> dict[str, float]:
        """Return plain data."""
        return {"mean": self.mean, "low": self.low, "high": self.high}


def wilson(share: float, n: float) -> tuple[float, float]:
    """Return Wilson's score interval for a share of ``n`` independent trials (E. B. Wilson, 1927).

    Unlike the interval of the normal approximation it never leaves [0, 1], and 20 successes in 20 trials are not
    certainty.
    """
    centre = (share + Z * Z / (2 * n)) / (1 + Z * Z / n)
    half = Z / (1 + Z * Z / n) * math.sqrt(share * (1 - share) / n + Z * Z / (4 * n * n))
    return max(0.0, centre - half), min(1.0, centre + half)


def independent(groups: Sequence[NDArray[np.float64]]) -> float:
    """Return how many independent trials groups of alike trials are worth.

    ``N / (1 + (m - 1) r)`` with the correlation r of two trials of one task (one-way analysis of variance). When
    nothing varies, r is unknown; the tries of a task then count as one.
    """
    groups = [group for group in groups if len(group)]
    sizes = np.array([len(group) for group in groups], dtype=np.float64)
    total, count = float(sizes.sum()), len(groups)
    if total == count or count < 2:
        return float(count)
    size = (total - float((sizes**2).sum()) / total) / (count - 1)
    everything = np.concatenate(groups)
    between = sum(len(g) * float(g.mean() - everything.mean()) ** 2 for g in groups) / (count - 1)
    within = sum(float(((g - g.mean()) ** 2).sum()) for g in groups) / (total - count)
    spread = between + (size - 1) * within
    alike = 1.0 if spread == 0 else min(max((between - within) / spread, 0.0), 1.0)
    return total / (1 + (total / count - 1) * alike)


def share(groups: Sequence[NDArray[np.float64]]) -> Estimate:
    """Estimate a success rate from [tasks][tries] of zeros and ones: Wilson's interval at the effective number."""
    everything = np.concatenate(groups)
    rate = float(everything.mean())
    low, high = wilson(rate, independent(groups))
    return Estimate(rate, min(low, rate), max(high, rate))


def mean(groups: Sequence[NDArray[np.float64]], *key: str | int) -> Estimate:
    """Estimate a mean from [tasks][tries] of numbers by resampling whole tasks (percentile bootstrap).

    Args:
        groups: values of each task's tries; empty ones do not count.
        key: names the resampling, so that the same numbers give the same interval.
    """
    groups = [group for group in groups if len(group)]
    sums = np.array([group.sum() for group in groups])
    sizes = np.array([len(group) for group in groups])
    chosen = rng("bootstrap", *key).integers(len(groups), size=(_RESAMPLES, len(groups)))
    means = sums[chosen].sum(axis=1) / sizes[chosen].sum(axis=1)
    low, high = np.quantile(means, [0.025, 0.975])
    middle = float(sums.sum() / sizes.sum())
    return Estimate(middle, min(float(low), middle), max(float(high), middle))


def json_of(estimates: Mapping[str, Estimate]) -> dict[str, dict[str, float]]:
    """Return several estimates as plain data."""
    return {name: estimate.json() for name, estimate in estimates.items()}
