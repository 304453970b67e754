"""The terms as they stand, differentiated by torch, against gradients of enumerated expectations."""

from itertools import product

import numpy as np
import pytest

torch = pytest.importorskip("torch")

from peira.training.terms import (  # noqa: E402
    Aggregate,
    Denominators,
    Divergence,
    PolicyGradient,
    aggregate,
    divergence,
    policy_gradient,
)

SURROGATES = [
    {"surrogate": "clip"},
    {"surrogate": "clip", "dual_clip": 3.0},
    {"surrogate": "cispo"},
    {"surrogate": "reinforce"},
]


@pytest.fixture(params=["Tree", "AgentTree"])
def tree(exact, request):
    return getattr(exact, request.param).make(np.random.default_rng(7))


@pytest.fixture
def rewards(tree):
    return np.random.default_rng(9).normal(size=len(tree.tokens))


def decisions(tree, logits):
    """[S T] log-prob of each token, differentiable."""
    return torch.log_softmax(logits, -1)[torch.tensor(tree.rows), torch.tensor(tree.tokens)]


def gradient(tree, loss_of):
    """[R V] gradient of ``loss_of([S T] log-probs)`` at the tree's logits."""
    logits = torch.tensor(tree.logits, requires_grad=True)
    loss_of(decisions(tree, logits)).backward()
    return logits.grad.numpy()


def expected(tree, losses):
    """Mean over sequences of the sum over their tokens; the sampling itself is not differentiated."""
    return (torch.tensor(tree.probabilities()) * losses.sum(1)).sum()


def surrogate(tree, weights, settings):
    weights = torch.tensor(np.broadcast_to(weights, tree.tokens.shape).copy())
    chosen = PolicyGradient(**settings)

    def loss(logprobs):
        old = logprobs.detach()
        return expected(tree, policy_gradient(logprobs, old, old, weights, chosen).losses)

    return -gradient(tree, loss)


@pytest.mark.parametrize("settings", SURROGATES, ids=str)
def test_on_policy_every_surrogate_is_the_policy_gradient(exact, tree, rewards, settings):
    got = surrogate(tree, rewards[:, None], settings)
    np.testing.assert_allclose(got, tree.gradient(tree.expected_reward(rewards)), atol=exact.TOLERANCE)
    by_hand = tree.policy_gradient(np.repeat(rewards[:, None], tree.tokens.shape[1], 1))
    np.testing.assert_allclose(got, by_hand, atol=1e-12)


def pairs(tree, advantages):
    """Gradient expected over every group of two sequences; ``advantages`` maps [2] rewards to [2]."""
    count = len(tree.tokens)
    weights = np.zeros(count)
    p = tree.probabilities()
    for i, j in product(range(count), repeat=2):
        # The first member's share; the second's is the same by symmetry.
        weights[i] += p[j] * advantages(i, j)
    return surrogate(tree, weights[:, None], {"surrogate": "clip"})


def test_a5_leave_one_out_is_the_gradient_of_the_expected_reward(exact, tree, rewards):
    got = pairs(tree, lambda i, j: rewards[i] - rewards[j])
    np.testing.assert_allclose(got, tree.gradient(tree.expected_reward(rewards)), atol=exact.TOLERANCE)


def test_a1_group_mean_of_two_is_half_and_grpo_is_its_coefficient(exact, tree, rewards):
    wins = (rewards > 0).astype(float)
    success = tree.gradient(tree.expected_reward(wins))
    mean_only = pairs(tree, lambda i, j: wins[i] - (wins[i] + wins[j]) / 2)
    np.testing.assert_allclose(mean_only, success / 2, atol=exact.TOLERANCE)
    # N = 2, population std: only groups with one success of two count, with advantages +-1. By the law of group
    # estimators: Binom(1) sqrt(1/4) / (p (1 - p)) = 2 p (1 - p) / 2 / (p (1 - p)) = 1 times grad p.
    grpo = pairs(tree, lambda i, j: np.sign(wins[i] - wins[j]))
    np.testing.assert_allclose(grpo, success, atol=exact.TOLERANCE)


def divergence_gradient(tree, reference, estimator):
    at_reference = torch.tensor(tree.token_logprobs(reference)).flatten()
    plain = torch.ones(len(at_reference), dtype=torch.bool)

    def loss(logprobs):
        term = divergence(logprobs.flatten(), at_reference, plain, Divergence(estimator=estimator))
        return expected(tree, term.losses.reshape(logprobs.shape))

    return gradient(tree, loss)


def local(exact, tree, one_step):
    """Gradient of the summed one-step divergences, the distribution over prefixes frozen."""
    p = tree.probabilities()
    visits = np.bincount(tree.rows.ravel(), weights=np.repeat(p, tree.rows.shape[1]), minlength=len(tree.logits))
    return tree.gradient(lambda logits: float(visits @ one_step(exact.log_softmax(logits))))


def test_fact_2_k1_k2_k3_as_losses(exact, tree):
    reference = tree.logits + np.random.default_rng(8).normal(size=tree.logits.shape)
    rows = exact.log_softmax(reference)
    np.testing.assert_allclose(divergence_gradient(tree, reference, "k1"), 0, atol=1e-12)
    reverse = local(exact, tree, lambda lp: (np.exp(lp) * (lp - rows)).sum(1))
    forward = local(exact, tree, lambda lp: (np.exp(rows) * (rows - lp)).sum(1))
    k2, k3 = (divergence_gradient(tree, reference, k) for k in ("k2", "k3"))
    np.testing.assert_allclose(k2, reverse, atol=exact.TOLERANCE)
    np.testing.assert_allclose(k3, forward, atol=exact.TOLERANCE)
    whole = tree.gradient(tree.kl(reference))
    assert np.abs(k2 - whole).max() > 1e-2
    assert np.abs(k3 - reverse).max() > 1e-2


def test_importance_weights_average_to_one_under_the_sampler(tree):
    """E_mu[w] = 1 per token, where the sampler's prefixes are weighed as the sampler made them."""
    sampler = tree.logits + np.random.default_rng(4).normal(size=tree.logits.shape)
    mu, old = torch.tensor(tree.token_logprobs(sampler)), torch.tensor(tree.token_logprobs())
    term = policy_gradient(old, old, mu, torch.ones_like(old), PolicyGradient(is_cap=1e9))
    p = torch.tensor(tree.probabilities(sampler))
    np.testing.assert_allclose((p[:, None] * term.values["is_weight"]).sum(0), 1, atol=1e-12)


def test_micro_batches_of_a_tree_add_up(tree, rewards):
    """Whatever the cut, the shares of a step add up to one gradient, in every mode."""
    episode = np.repeat(np.arange(len(tree.tokens)), tree.tokens.shape[1])
    whole = Denominators.of([episode])
    weights = torch.tensor(np.repeat(rewards, tree.tokens.shape[1]))

    def step(cuts, mode):
        logits = torch.tensor(tree.logits, requires_grad=True)
        for part in np.split(np.arange(len(episode)), cuts):
            logprobs = decisions(tree, logits).flatten()[part]
            old = logprobs.detach()
            losses = policy_gradient(logprobs, old, old, weights[part], PolicyGradient()).losses
            aggregate(losses, mode, episode[part], whole).backward()
        return logits.grad.numpy()

    for mode in (Aggregate(), Aggregate(mode="seq-mean"), Aggregate(mode="seq-sum"), Aggregate(mode="const", length=9)):
        np.testing.assert_allclose(step([1, 5, 17], mode), step([], mode), atol=1e-12)
