"""What group estimators optimise: ``credit`` itself, in expectation over every reward vector of a group."""

from functools import cache, partial
from math import asin, comb, sqrt

import numpy as np
import pytest

from peira.training.credit import CreditSettings, credit


@pytest.fixture(scope="module")
def advantages(records):
    """``(settings, rewards) -> A``, one number per member, through ``credit``."""

    @cache
    def cached(settings, rewards):
        (result,), _ = credit([records.scored(rewards, lengths=[1] * len(rewards))], settings)
        return np.array([turns[0][0] for turns in result.weights])

    return lambda settings, rewards: cached(settings, tuple(map(float, rewards)))


SIZES = [2, 3, 4, 7]
RATES = [0.05, 0.3, 0.5, 0.9]


@pytest.mark.parametrize("size", SIZES)
@pytest.mark.parametrize("p", RATES)
class TestCoefficient:
    def test_a5_leave_one_out_is_the_plain_gradient(self, exact, advantages, size, p):
        rule = CreditSettings(baseline="leave_one_out", scale="none")
        assert exact.coefficient(partial(advantages, rule), size, p) == pytest.approx(1, abs=1e-6)

    def test_mean_baseline_shrinks_the_gradient(self, exact, advantages, size, p):
        rule = CreditSettings(baseline="mean", scale="none")
        assert exact.coefficient(partial(advantages, rule), size, p) == pytest.approx((size - 1) / size, abs=1e-6)

    def test_no_baseline_is_the_plain_gradient(self, exact, advantages, size, p):
        rule = CreditSettings(baseline="none", scale="none")
        assert exact.coefficient(partial(advantages, rule), size, p) == pytest.approx(1, abs=1e-6)

    def test_a8_maxrl_truncates_the_log_at_one_less_than_the_group(self, exact, advantages, size, p):
        rule = CreditSettings(baseline="mean", scale="mean", eps=0)
        expected = sum((1 - p) ** k for k in range(size - 1))
        assert exact.coefficient(partial(advantages, rule), size, p) == pytest.approx(expected, abs=1e-6)

    def test_a8_without_the_mean_it_truncates_at_the_group_size(self, exact, advantages, size, p):
        rule = CreditSettings(baseline="none", scale="mean", eps=0)
        expected = sum((1 - p) ** k for k in range(size))
        assert exact.coefficient(partial(advantages, rule), size, p) == pytest.approx(expected, abs=1e-6)

    def test_a1_grpo_is_the_binomial_sum_and_not_the_plain_gradient(self, exact, advantages, size, p):
        rule = CreditSettings(eps=0)
        expected = sum(
            comb(size, k) * p**k * (1 - p) ** (size - k) * sqrt(k / size * (1 - k / size)) for k in range(size + 1)
        ) / (p * (1 - p))
        found = exact.coefficient(partial(advantages, rule), size, p)
        assert found == pytest.approx(expected, abs=1e-6)
        # Two members have one possible spread, so the unit is a constant and the gradient is plain.
        assert (abs(found - 1) > 1e-3) == (size > 2)

    def test_sample_deviation_only_rescales(self, exact, advantages, size, p):
        population = exact.coefficient(partial(advantages, CreditSettings(eps=0)), size, p)
        sample = exact.coefficient(partial(advantages, CreditSettings(eps=0, std="sample")), size, p)
        assert sample == pytest.approx(population * sqrt((size - 1) / size), abs=1e-6)


def test_a1_grpo_tends_to_the_gradient_of_the_arcsine():
    p, size = 0.3, 4000
    k = np.arange(1, size)
    log_binomial = np.array([0.0] + [np.log((size - i) / (i + 1)) for i in range(size - 1)]).cumsum()
    log_binomial += np.log(size) - log_binomial[1]
    mass = np.exp(log_binomial[k] + k * np.log(p) + (size - k) * np.log1p(-p))
    coefficient = (mass * np.sqrt(k / size * (1 - k / size))).sum() / (p * (1 - p))
    slope = (2 * asin(sqrt(p + 1e-6)) - 2 * asin(sqrt(p - 1e-6))) / 2e-6
    assert coefficient == pytest.approx(slope, rel=1e-3)


def test_a8_two_with_a_baseline_is_ordinary_rl(exact, advantages):
    rule = CreditSettings(baseline="mean", scale="mean", eps=0)
    for p in RATES:
        assert exact.coefficient(partial(advantages, rule), 2, p) == pytest.approx(1, abs=1e-6)


@pytest.mark.parametrize("size", SIZES)
def test_a5_leave_one_out_is_a_multiple_of_the_mean_baseline_sample_by_sample(exact, advantages, size):
    for rewards, _ in exact.binary_groups(size, 0.5):
        loo = advantages(CreditSettings(baseline="leave_one_out", scale="none"), rewards)
        mean = advantages(CreditSettings(baseline="mean", scale="none"), rewards)
        np.testing.assert_allclose(loo, mean * size / (size - 1), atol=1e-12)


@pytest.mark.parametrize("world", ["Tree", "AgentTree"])
def test_leave_one_out_is_exact_on_a_tree_with_any_reward(exact, advantages, world):
    """N = 2 over every pair of sequences, Gaussian rewards, a stochastic observation between two actions."""
    generator = np.random.default_rng(3)
    tree = getattr(exact, world).make(generator)
    rewards = generator.normal(size=len(tree.tokens))
    p = tree.probabilities()
    assert p.sum() == pytest.approx(1)
    rule = CreditSettings(baseline="leave_one_out", scale="none", flat=0)
    weights = np.zeros(len(p))
    for i in range(len(p)):
        for j in range(len(p)):
            a = advantages(rule, (rewards[i], rewards[j]))
            weights[i] += p[j] * a[0] / 2
            weights[j] += p[i] * a[1] / 2
    estimate = tree.policy_gradient(np.repeat(weights[:, None], tree.tokens.shape[1], axis=1))
    np.testing.assert_allclose(estimate, tree.gradient(tree.expected_reward(rewards)), atol=exact.TOLERANCE)


def test_the_bandit_optimum_is_stationary(exact):
    """Sanity of the fixture: no other policy does better than the tilted reference."""
    generator = np.random.default_rng(1)
    bandit = exact.Bandit.make(generator)
    best = bandit.optimum(0.3)
    for _ in range(50):
        other = generator.dirichlet(np.ones(len(best)))
        assert bandit.objective(other, 0.3) <= bandit.objective(best, 0.3) + 1e-12


def _grpo(groups, **kwargs):
    return credit(groups, CreditSettings(eps=0, **kwargs))[0]


def _values(credited):
    return np.array([turns[0][0] for turns in credited.weights])


def test_a7_lite_ppo_keeps_the_spread_of_groups_apart(records):
    wide, narrow = records.scored([0.0, 4.0, 2.0]), records.scored([0.4, 0.6, 0.5], seed=1)
    a, b = (_values(c) for c in _grpo([wide, narrow], scale="std_batch"))
    assert a[1] / b[1] == pytest.approx(2.0 / 0.1)
    a, b = (_values(c) for c in _grpo([wide, narrow], scale="std_group"))
    assert a[1] / b[1] == pytest.approx(1.0)


def test_a7_with_one_group_lite_ppo_is_grpo(records):
    group = records.scored([0.0, 1.0, 0.25, 1.0])
    lite, grpo = _grpo([group], scale="std_batch"), _grpo([group], scale="std_group")
    np.testing.assert_array_equal(_values(lite[0]), _values(grpo[0]))


class TestReinforcePlusPlus:
    RULE = CreditSettings(baseline="none", scale="whiten_batch", returns="to_go", eps=0)

    def test_a4_one_rollout_per_prompt_still_has_credit(self, records):
        groups = [records.scored([score], seed=i) for i, score in enumerate([0.0, 1.0, 1.0])]
        whitened = [_values(c)[0] for c in credit(groups, self.RULE)[0]]
        np.testing.assert_allclose(whitened, [-sqrt(2), 1 / sqrt(2), 1 / sqrt(2)])
        assert all(_values(c)[0] == 0 for c in _grpo(groups))

    def test_a4_affine_rewards_with_scaled_penalties_change_nothing(self, records):
        scores, lengths = [0.0, 1.0, 0.3, 0.9], [2, 5, 3, 1]
        k1 = [[[np.linspace(-1, 1, n)] for n in lengths]]
        one = credit([records.scored(scores, lengths=lengths)], self.RULE, _times(k1, -0.1))[0][0]
        other_scores = [3 * s + 7 for s in scores]
        two = credit([records.scored(other_scores, lengths=lengths)], self.RULE, _times(k1, -0.3))[0][0]
        for a, b in zip(one.weights, two.weights, strict=True):
            np.testing.assert_allclose(a[0], b[0], atol=1e-12)

    def test_a4_baseline_kind_centres_groups_first(self, records):
        rule = CreditSettings(baseline="mean", scale="whiten_batch", returns="to_go", eps=0)
        groups = [records.scored([0.0, 1.0], lengths=[1, 1]), records.scored([5.0, 9.0], lengths=[1, 1], seed=1)]
        found = np.concatenate([_values(c) for c in credit(groups, rule)[0]])
        centred = np.array([-0.5, 0.5, -2.0, 2.0])
        np.testing.assert_allclose(found, centred / centred.std())


def _times(nested, factor):
    return [[[values * factor for values in turns] for turns in episodes] for episodes in nested]
