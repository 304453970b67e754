"""Confidence intervals against closed forms and simulation."""

import numpy as np
import pytest

from peira.envs.seeding import rng
from peira.training.confidence import independent, mean, share, wilson


def arrays(*groups):
    return [np.array(group, dtype=float) for group in groups]


@pytest.mark.parametrize(
    ("k", "n", "low", "high"),
    [(0, 10, 0.0, 0.2775), (10, 10, 0.7225, 1.0), (5, 10, 0.2366, 0.7634), (81, 263, 0.2553, 0.3662)],
)
def test_wilson_gives_the_published_values(k, n, low, high):
    # The last row is the worked example of R. G. Newcombe, Statistics in Medicine 17 (1998), table I.
    assert wilson(k / n, n) == pytest.approx((low, high), abs=5e-5)


def test_tries_that_always_agree_count_once_and_independent_ones_all():
    assert independent(arrays([1, 1, 1], [0, 0, 0], [1, 1, 1], [0, 0, 0])) == pytest.approx(4)
    # Between and within mean squares are equal here, so the correlation of two tries is exactly zero.
    balanced = arrays([0, 1], [0, 1], [0, 0], [1, 1])
    between, within = 2 * (0.5**2 + 0.5**2) / 3, (4 * 0.25) / 4
    alike = (between - within) / (between + within)
    assert independent(balanced) == pytest.approx(8 / (1 + alike))
    assert independent(arrays([1], [0], [1])) == 3


def test_when_nothing_varies_the_tries_of_a_task_count_as_one():
    assert independent(arrays([1, 1], [1, 1], [1, 1])) == 3
    assert share(arrays([1, 1], [1, 1], [1, 1])).low == pytest.approx(wilson(1.0, 3)[0])


def test_more_tries_of_the_same_tasks_cannot_buy_certainty():
    once = share(arrays(*[[k % 2] for k in range(40)]))
    often = share(arrays(*[[k % 2] * 50 for k in range(40)]))
    assert often.high - often.low == pytest.approx(once.high - once.low)


def test_bootstrap_covers_the_mean_and_repeats_itself():
    covered = 0
    for trial in range(200):
        groups = [rng("coverage", trial, task).normal(3.0, 1.0, size=2) for task in range(40)]
        estimate = mean(groups, "x", trial)
        covered += estimate.low <= 3.0 <= estimate.high
    assert 180 <= covered <= 199
    assert mean(groups, "x") == mean(groups, "x")


def test_a_constant_has_no_spread_and_the_mean_lies_inside():
    estimate = mean(arrays([2.0, 2.0], [2.0], []), "x")
    assert (estimate.mean, estimate.low, estimate.high) == (2.0, 2.0, 2.0)
    assert f"{estimate:.1f}" == "2.0 [2.0, 2.0]"
