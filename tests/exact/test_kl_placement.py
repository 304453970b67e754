"""Where a KL term enters decides what is optimised: the identities, by enumeration, in float64."""

import numpy as np
import pytest

from peira.training.credit import CreditSettings, credit

BETA = 0.3


@pytest.fixture(params=["Tree", "AgentTree"])
def tree(exact, request):
    return getattr(exact, request.param).make(np.random.default_rng(7))


@pytest.fixture
def reference(tree):
    return tree.logits + np.random.default_rng(8).normal(size=tree.logits.shape)


@pytest.fixture
def rewards(tree):
    return np.random.default_rng(9).normal(size=len(tree.tokens))


def log_ratio(tree, reference):
    return tree.token_logprobs() - tree.token_logprobs(reference)


def utility(tree, rewards, reference):
    """Gradient of E[R] - beta KL(policy || reference)."""
    return tree.gradient(tree.expected_reward(rewards)) - BETA * tree.gradient(tree.kl(reference))


def by_credit(records, tree, rewards, penalties, rule):
    """[S T] weights that ``credit`` gives each sequence as a group of its own, one turn per action."""
    groups, given = [], []
    for s in range(len(tree.tokens)):
        last = tree.tokens.shape[1] - 1
        turns = [records.turn(1, reward=rewards[s] if t == last else 0.0) for t in range(last + 1)]
        groups.append(records.group([records.episode(turns)]))
        given.append([[np.array([value]) for value in penalties[s]]])
    credited, _ = credit(groups, rule, given)
    return np.array([np.concatenate(c.weights[0]) for c in credited])


@pytest.mark.parametrize("returns", ["total", "to_go"])
def test_k1_in_the_reward_is_the_exact_gradient(exact, records, tree, rewards, reference, returns):
    rule = CreditSettings(baseline="none", scale="none", returns=returns)
    weights = by_credit(records, tree, rewards, -BETA * log_ratio(tree, reference), rule)
    np.testing.assert_allclose(tree.policy_gradient(weights), utility(tree, rewards, reference), atol=exact.TOLERANCE)


def test_k3_in_the_reward_is_biased(exact, records, tree, rewards, reference):
    ratio = log_ratio(tree, reference)
    rule = CreditSettings(baseline="none", scale="none")
    weights = by_credit(records, tree, rewards, -BETA * (np.exp(-ratio) - 1 + ratio), rule)
    assert np.abs(tree.policy_gradient(weights) - utility(tree, rewards, reference)).max() > 1e-2


def loss_gradient(tree, per_token):
    """Expected gradient of a loss summed over sampled tokens; the sampling itself is not differentiated."""
    p = tree.probabilities()
    return tree.gradient(lambda logits: float((p * per_token(tree.token_logprobs(logits)).sum(axis=1)).sum()))


def local(exact, tree, divergence):
    """Gradient of the sum of one-step divergences, with the distribution over prefixes frozen."""
    p = tree.probabilities()
    visits = np.bincount(tree.rows.ravel(), weights=np.repeat(p, tree.rows.shape[1]), minlength=len(tree.logits))
    return tree.gradient(lambda logits: float(visits @ divergence(exact.log_softmax(logits))))


def test_k1_as_a_loss_has_no_gradient(exact, tree, reference):
    at_reference = tree.token_logprobs(reference)
    np.testing.assert_allclose(loss_gradient(tree, lambda lp: lp - at_reference), 0, atol=exact.TOLERANCE)


def test_k2_as_a_loss_is_the_local_reverse_kl_and_not_the_full_one(exact, tree, reference):
    at_reference, rows = tree.token_logprobs(reference), exact.log_softmax(reference)
    found = loss_gradient(tree, lambda lp: (lp - at_reference) ** 2 / 2)
    expected = local(exact, tree, lambda lp: (np.exp(lp) * (lp - rows)).sum(axis=1))
    np.testing.assert_allclose(found, expected, atol=exact.TOLERANCE)
    assert np.abs(found - tree.gradient(tree.kl(reference))).max() > 1e-2


def test_k3_as_a_loss_is_the_local_forward_kl(exact, tree, reference):
    at_reference, rows = tree.token_logprobs(reference), exact.log_softmax(reference)
    found = loss_gradient(tree, lambda lp: np.exp(at_reference - lp) - 1 + lp - at_reference)
    expected = local(exact, tree, lambda lp: (np.exp(rows) * (rows - lp)).sum(axis=1))
    np.testing.assert_allclose(found, expected, atol=exact.TOLERANCE)


def normalised(records, tree, rewards, penalties=None):
    """[S T] expected weights of each sequence in groups of two, with the group's deviation as the unit."""
    p, shape = tree.probabilities(), tree.tokens.shape
    pairs = [(i, j) for i in range(shape[0]) for j in range(shape[0])]
    one = [records.episode([records.turn(shape[1], reward=r)]) for r in rewards]
    groups = [records.group([one[i], one[j]]) for i, j in pairs]
    given = None if penalties is None else [[[penalties[i]], [penalties[j]]] for i, j in pairs]
    credited, _ = credit(groups, CreditSettings(), given)
    weights = np.zeros(shape)
    for (i, j), c in zip(pairs, credited, strict=True):
        weights[i] += p[j] * c.weights[0][0] / 2
        weights[j] += p[i] * c.weights[1][0] / 2
    return weights


def parallel(a, b):
    return float((a * b).sum() / np.sqrt((a * a).sum() * (b * b).sum()))


def test_normalisation_and_kl_do_not_commute(exact, records, rewards, reference, tree):
    ratio = log_ratio(tree, reference)
    utility_only = tree.policy_gradient(normalised(records, tree, rewards))
    kl = tree.gradient(tree.kl(reference))
    folded = tree.policy_gradient(normalised(records, tree, rewards, -BETA * ratio))
    assert parallel(folded, utility_only - BETA * kl) < 0.999
    # Taken off the finished advantage, from each decision on, it is exact.
    to_go = np.cumsum(ratio[:, ::-1], axis=1)[:, ::-1]
    after = tree.policy_gradient(normalised(records, tree, rewards) - BETA * to_go)
    np.testing.assert_allclose(after, utility_only - BETA * kl, atol=exact.TOLERANCE)


def test_observation_probabilities_never_enter_a_gradient(exact, rewards):
    """Only actions are differentiated: the world's kernel scales sequences, it has no row of logits."""
    tree = exact.AgentTree.make(np.random.default_rng(7))
    estimate = tree.policy_gradient(np.repeat(np.resize(rewards, len(tree.tokens))[:, None], 2, axis=1))
    truth = tree.gradient(tree.expected_reward(np.resize(rewards, len(tree.tokens))))
    np.testing.assert_allclose(estimate, truth, atol=exact.TOLERANCE)
