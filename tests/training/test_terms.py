"""Terms and the aggregator: exact values, NumPy oracles, gradients that must be exactly zero."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from peira.tools.errors import UsageError
from peira.training.terms import (
    Aggregate,
    Denominators,
    Divergence,
    PolicyGradient,
    aggregate,
    divergence,
    entropy_bonus,
    estimate,
    likelihood,
    policy_gradient,
    summarise,
)


def tensor(values, grad=False):
    return torch.tensor(values, dtype=torch.float64, requires_grad=grad)


def surrogate(ratios, advantages, **settings):
    """Losses, gradient w.r.t. the log-probs, and values, for given ratios to the old policy."""
    logprobs = torch.log(tensor(ratios)).requires_grad_()
    zeros = torch.zeros(len(ratios), dtype=torch.float64)
    term = policy_gradient(logprobs, zeros, zeros, tensor(advantages), PolicyGradient(**settings))
    (grad,) = torch.autograd.grad(term.losses.sum(), logprobs)
    return term.losses.detach().numpy(), grad.numpy(), {k: v.numpy() for k, v in term.values.items()}


# -- policy gradient ------------------------------------------------------------------------------------------------


def test_p090_clip_objective_gradient_and_share():
    losses, grad, values = surrogate([1.5, 0.5, 1.5, 0.5], [1, 1, -1, -1])
    np.testing.assert_allclose(-losses, [1.2, 0.5, -1.5, -0.8], rtol=1e-12)
    assert grad[0] == 0
    assert grad[3] == 0
    np.testing.assert_allclose(grad[1:3], [-0.5, 1.5], rtol=1e-12)
    assert values["clip_share"].mean() == 0.5


def test_clip_higher_moves_only_the_upper_bound():
    losses, _, _ = surrogate([1.5, 0.5], [1, -1], clip_low=0.2, clip_high=0.28)
    np.testing.assert_allclose(-losses, [1.28, -0.8], rtol=1e-12)


def test_dual_clip_gradient_is_exactly_zero_beyond_c():
    losses, grad, values = surrogate([4.0, 2.0, 4.0], [-1, -1, 1], dual_clip=3.0)
    np.testing.assert_allclose(losses, [3.0, 2.0, -1.2], rtol=1e-12)
    assert grad[0] == 0
    assert grad[2] == 0
    np.testing.assert_allclose(grad[1], 2.0)
    np.testing.assert_array_equal(values["dual_clip_share"], [1, 0, 0])


@given(
    st.lists(st.tuples(st.floats(-3, 3), st.floats(-2, 2)), min_size=1, max_size=20),
    st.floats(0, 0.9),
    st.floats(0, 2),
    st.none() | st.floats(1.01, 5),
)
def test_clip_equals_the_numpy_oracle(pairs, low, high, dual):
    log_ratio, advantages = np.array(pairs).T
    ratio = np.exp(log_ratio)
    objective = np.minimum(ratio * advantages, np.clip(ratio, 1 - low, 1 + high) * advantages)
    if dual is not None:
        objective = np.where(advantages < 0, np.maximum(objective, dual * advantages), objective)
    settings = PolicyGradient(clip_low=low, clip_high=high, dual_clip=dual)
    zeros = torch.zeros(len(pairs), dtype=torch.float64)
    term = policy_gradient(tensor(log_ratio), zeros, zeros, tensor(advantages), settings)
    np.testing.assert_allclose(-term.losses.numpy(), objective, rtol=1e-9, atol=1e-12)


def test_a6_cispo_keeps_its_gradient_where_clip_loses_it():
    _, on_policy_clip, _ = surrogate([1.0, 1.0], [1.0, -0.5])
    _, on_policy_cispo, _ = surrogate([1.0, 1.0], [1.0, -0.5], surrogate="cispo")
    np.testing.assert_array_equal(on_policy_cispo, on_policy_clip)
    _, clip, _ = surrogate([3.0], [2.0])
    _, cispo, _ = surrogate([3.0], [2.0], surrogate="cispo")
    assert clip[0] == 0
    np.testing.assert_allclose(cispo, [-1.2 * 2.0])


def test_reinforce_has_no_ratio():
    _, grad, _ = surrogate([3.0, 0.1], [2.0, -1.0], surrogate="reinforce")
    np.testing.assert_array_equal(grad, [-2.0, 1.0])


def test_importance_weight_is_truncated_and_carries_no_gradient():
    logprobs = tensor([-1.0, -1.0], grad=True)
    old = tensor([-1.0, -1.0], grad=True)
    behaviour = tensor([-2.5, -0.5], grad=True)
    term = policy_gradient(logprobs, old, behaviour, tensor([1.0, 1.0]), PolicyGradient(is_cap=2.0))
    term.losses.sum().backward()
    np.testing.assert_allclose(logprobs.grad, [-2.0, -math.exp(-0.5)], rtol=1e-12)
    assert old.grad is None
    assert behaviour.grad is None


def test_d0_bypass_equals_decoupled_when_old_is_the_sampler():
    logprobs, behaviour, advantages = tensor([-1.0, -2.0]), tensor([-1.3, -1.5]), tensor([1.0, -1.0])
    bypass = policy_gradient(logprobs, tensor([0.0, 0.0]), behaviour, advantages, PolicyGradient(anchor="behaviour"))
    decoupled = policy_gradient(logprobs, behaviour, behaviour, advantages, PolicyGradient(is_cap=2.0))
    assert torch.equal(bypass.losses, decoupled.losses)


def test_b36_logged_extremes_are_raw():
    ratios = [0.1, 1.0, 10.0]
    _, _, values = surrogate(ratios, [1.0, 1.0, 1.0], is_cap=2.0)
    metrics = summarise({"ratio": [torch.tensor(values["ratio"][:1]), torch.tensor(values["ratio"][1:])]})
    assert metrics == pytest.approx({"ratio_mean": 3.7, "ratio_min": 0.1, "ratio_max": 10.0})
    behaviour = -torch.log(tensor(ratios))
    zeros = torch.zeros(3, dtype=torch.float64)
    weighed = policy_gradient(zeros, zeros, behaviour, zeros, PolicyGradient(is_cap=2.0)).values
    np.testing.assert_allclose(weighed["is_weight"], ratios, rtol=1e-12)
    np.testing.assert_array_equal(weighed["is_cap_share"], [0, 0, 1])


def test_hopeless_ratios_neither_overflow_nor_poison():
    logprobs = torch.tensor([0.0, -500.0], requires_grad=True)
    old = torch.tensor([-500.0, 0.0])
    term = policy_gradient(logprobs, old, old, torch.tensor([1.0, 1.0]), PolicyGradient())
    term.losses.sum().backward()
    assert torch.isfinite(logprobs.grad).all()
    assert logprobs.grad[0] == 0


@pytest.mark.parametrize(
    "settings",
    [
        {"surrogate": "reinforce", "dual_clip": 3.0},
        {"anchor": "behaviour", "is_cap": 2.0},
        {"dual_clip": 1.0},
        {"clip": 0.2},
    ],
)
def test_settings_that_contradict_themselves_are_refused(settings):
    with pytest.raises(ValidationError):
        PolicyGradient(**settings)


# -- divergence, likelihood, entropy ----------------------------------------------------------------------------------


def test_p093_k3_table():
    policy, reference = tensor([-1.0, -1.0, -2.0]), tensor([-1.5, -0.2, -2.0])
    k3 = divergence(policy, reference, torch.ones(3, dtype=torch.bool), Divergence(estimator="k3")).losses
    np.testing.assert_allclose(k3, [0.1065, 0.4255, 0.0], atol=5e-5)
    assert k3[2] == 0
    assert (k3 >= 0).all()


@given(st.lists(st.floats(-10, 10), min_size=1, max_size=10))
def test_estimators_equal_the_numpy_oracle(log_ratios):
    x = np.array(log_ratios)
    np.testing.assert_allclose(estimate(tensor(x), "k1"), x)
    np.testing.assert_allclose(estimate(tensor(x), "k2"), x**2 / 2)
    np.testing.assert_allclose(estimate(tensor(x), "k3"), np.exp(-x) - 1 + x, rtol=1e-9, atol=1e-12)


def test_divergence_leaves_native_actions_alone():
    policy = tensor([-1.0, -1.0], grad=True)
    term = divergence(policy, tensor([-2.0, math.nan]), torch.tensor([True, False]), Divergence(estimator="k2"))
    term.losses.sum().backward()
    np.testing.assert_allclose(term.losses.detach(), [0.5, 0.0])
    np.testing.assert_allclose(policy.grad, [1.0, 0.0])


def test_likelihood_weighs_and_logs_the_unweighted():
    term = likelihood(tensor([-1.0, -2.0]), tensor([1.0, 0.5]))
    np.testing.assert_allclose(term.losses, [1.0, 1.0])
    np.testing.assert_allclose(term.values["nll"], [1.0, 2.0])


def test_entropy_bonus_rewards_entropy():
    np.testing.assert_array_equal(entropy_bonus(tensor([0.5, 0.0])).losses, [-0.5, 0.0])


# -- aggregation ------------------------------------------------------------------------------------------------------


def shares(losses, episode, cuts, **settings):
    """Sum of the micro-batches' shares when the decisions are cut at ``cuts``."""
    episode = np.array(episode)
    pieces = np.split(np.arange(len(losses)), cuts)
    whole = Denominators.of([episode[p] for p in pieces])
    values = tensor(losses)
    return sum(float(aggregate(values[p], Aggregate(**settings), episode[p], whole)) for p in pieces)


ROWS = [4.0] + [1.0] * 9 + [1.0] * 2
EPISODES = [0] + [1] * 9 + [2] * 2


@pytest.mark.parametrize("cuts", [[], [1], [10], [1, 10], [3, 7, 11], list(range(1, 12))])
def test_p089_one_value_for_every_split(cuts):
    assert shares(ROWS, EPISODES, cuts, mode="tok") == pytest.approx(1.25, abs=1e-12)
    assert shares(ROWS, EPISODES, cuts, mode="seq-mean") == pytest.approx(2.0, abs=1e-12)
    assert shares(ROWS, EPISODES, cuts, mode="seq-sum") == pytest.approx(5.0, abs=1e-12)
    assert shares(ROWS, EPISODES, cuts, mode="const", length=10) == pytest.approx(0.5, abs=1e-12)
    assert shares(ROWS, EPISODES, cuts, mode="const", length=10, episodes=6) == pytest.approx(0.25, abs=1e-12)


def test_p091_masked_episodes_do_not_dilute():
    # Episode 1's four decisions were masked as truncated: they are not among the trained ones at all.
    for mode in ("tok", "seq-mean"):
        assert shares([1.0] * 4, [0] * 4, [], mode=mode) == 1.0
        assert shares([1.0] * 4, [1] * 4, [2], mode=mode) == 1.0


def test_b26_dropping_half_the_episodes_changes_survivors_by_the_documented_factor():
    def weight(episode, **settings):
        losses = torch.ones(len(episode), dtype=torch.float64, requires_grad=True)
        episode = np.array(episode)
        aggregate(losses, Aggregate(**settings), episode, Denominators.of([episode])).backward()
        return float(losses.grad[0])

    both, half = [0, 0, 1, 1], [0, 0]
    for settings in ({"mode": "tok"}, {"mode": "seq-mean"}, {"mode": "seq-sum"}, {"mode": "const", "length": 5}):
        assert weight(half, **settings) == pytest.approx(2 * weight(both, **settings))
    fixed = {"mode": "const", "length": 5, "episodes": 2}
    assert weight(half, **fixed) == weight(both, **fixed)


def test_a3_token_mean_is_the_gradient_of_the_concatenated_list():
    short_long = shares([1.0, 3.0, 3.0, 3.0], [0, 1, 1, 1], [1], mode="tok")
    assert short_long == shares([1.0, 3.0, 3.0, 3.0], [0, 0, 0, 0], [], mode="tok")
    assert shares([1.0, 3.0, 3.0, 3.0], [0, 1, 1, 1], [1], mode="seq-mean") != short_long


def test_b39_an_episode_in_one_row_or_many_has_one_loss():
    # The episode index, not the row, decides: cutting rows does not show in any mode.
    for settings in ({"mode": "tok"}, {"mode": "seq-mean"}, {"mode": "seq-sum"}, {"mode": "const", "length": 8}):
        whole = shares([1.0, 2.0, 6.0, 4.0], [0, 0, 0, 1], [], **settings)
        assert shares([1.0, 2.0, 6.0, 4.0], [0, 0, 0, 1], [1, 3], **settings) == pytest.approx(whole, abs=1e-12)


def test_aggregate_refuses_an_empty_step():
    nothing = np.zeros(0, dtype=np.int64)
    with pytest.raises(UsageError, match="no trained decision"):
        aggregate(tensor([]), Aggregate(), nothing, Denominators.of([nothing]))


def test_const_needs_its_length():
    with pytest.raises(ValidationError, match="length"):
        Aggregate(mode="const")
    with pytest.raises(ValidationError, match="length"):
        Aggregate(mode="tok", length=3)
