"""Small worlds in which every expectation is a finite sum, so that an estimator can be held against the truth.

* ``Tree``: vocabulary 3, length 3, one softmax row per prefix; 27 sequences.
* ``AgentTree``: an action, a *stochastic* observation nobody is trained on, a second action.
* ``Bandit``: one choice, with the closed-form optimum of a KL-regularised reward.
* ``binary_groups`` and ``coefficient``: every reward vector of a group, and the scalar an estimator reduces to.

Trees describe a sequence by two arrays of indices, ``rows`` and ``tokens`` (both [S T]): position t of sequence s is
token ``tokens[s, t]`` of the softmax over row ``rows[s, t]`` of ``logits``. The same two arrays gather from a NumPy
array and from a torch tensor. Everything is float64.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from itertools import product

import numpy as np

STEP = 1e-5
TOLERANCE = 1e-6


def log_softmax(logits: np.ndarray) -> np.ndarray:
    """Log-softmax over the last axis."""
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True))


def central(function: Callable[[np.ndarray], float], at: np.ndarray, step: float = STEP) -> np.ndarray:
    """Gradient of a scalar function by central differences."""
    gradient = np.zeros_like(at)
    for index in np.ndindex(at.shape):
        ahead, behind = at.copy(), at.copy()
        ahead[index] += step
        behind[index] -= step
        gradient[index] = (function(ahead) - function(behind)) / (2 * step)
    return gradient


@dataclass(frozen=True)
class Tree:
    """Sequences over softmax rows; ``logits`` is [R V]."""

    logits: np.ndarray
    rows: np.ndarray
    """[S T]"""
    tokens: np.ndarray
    """[S T]"""
    world: np.ndarray
    """[S] probability of what the world did in each sequence, given the actions; 1 where it did nothing."""

    @classmethod
    def make(cls, generator: np.random.Generator, vocabulary: int = 3, length: int = 3) -> "Tree":
        """A tree with one row per prefix and Gaussian logits."""
        prefixes = [p for depth in range(length) for p in product(range(vocabulary), repeat=depth)]
        row_of = {prefix: row for row, prefix in enumerate(prefixes)}
        sequences = list(product(range(vocabulary), repeat=length))
        rows = np.array([[row_of[s[:t]] for t in range(length)] for s in sequences])
        logits = generator.normal(size=(len(prefixes), vocabulary))
        return cls(logits, rows, np.array(sequences), np.ones(len(sequences)))

    def token_logprobs(self, logits: np.ndarray | None = None) -> np.ndarray:
        """[S T] log-prob of every token in every sequence."""
        return log_softmax(self.logits if logits is None else logits)[self.rows, self.tokens]

    def probabilities(self, logits: np.ndarray | None = None) -> np.ndarray:
        """[S] probability of each sequence, the world's part included."""
        return np.exp(self.token_logprobs(logits).sum(axis=1)) * self.world

    def gradient(self, function: Callable[[np.ndarray], float]) -> np.ndarray:
        """Gradient of ``function(logits)`` at this tree's logits, by central differences."""
        return central(function, self.logits)

    def expected_reward(self, rewards: np.ndarray) -> Callable[[np.ndarray], float]:
        """The function ``logits -> E[rewards]``; ``rewards`` is [S]."""
        return lambda logits: float(self.probabilities(logits) @ rewards)

    def kl(self, reference: np.ndarray) -> Callable[[np.ndarray], float]:
        """The function ``logits -> KL(policy || reference)`` over whole sequences; ``reference`` is [R V]."""

        def value(logits: np.ndarray) -> float:
            gap = (self.token_logprobs(logits) - self.token_logprobs(reference)).sum(axis=1)
            return float(self.probabilities(logits) @ gap)

        return value

    def policy_gradient(self, weights: np.ndarray, probabilities: np.ndarray | None = None) -> np.ndarray:
        """[R V] of ``sum_s p(s) sum_t weights[s, t] grad log-prob[s, t]``: what a REINFORCE estimator expects.

        The score of a softmax row is ``onehot - softmax``, written out rather than differentiated.
        """
        sequence = self.probabilities() if probabilities is None else probabilities
        mass = sequence[:, None] * weights
        gradient = np.zeros_like(self.logits)
        np.add.at(gradient, (self.rows, self.tokens), mass)
        at_row = np.bincount(self.rows.ravel(), weights=mass.ravel(), minlength=len(self.logits))
        return gradient - at_row[:, None] * np.exp(log_softmax(self.logits))


@dataclass(frozen=True)
class AgentTree(Tree):
    """First action, observation drawn by the world, second action; a row per (action, observation)."""

    observations: np.ndarray
    """[S] what the world answered."""

    @classmethod
    def make(cls, generator: np.random.Generator, vocabulary: int = 3, length: int = 2) -> "AgentTree":
        """Gaussian logits and a random observation kernel with two outcomes; ``length`` is fixed by the world."""
        assert length == 2, "an agent tree has two actions"
        kernel = generator.dirichlet(np.ones(2), size=vocabulary)
        triples = list(product(range(vocabulary), range(2), range(vocabulary)))
        rows = np.array([[0, 1 + 2 * first + seen] for first, seen, _ in triples])
        tokens = np.array([[first, second] for first, _, second in triples])
        world = np.array([kernel[first, seen] for first, seen, _ in triples])
        logits = generator.normal(size=(1 + 2 * vocabulary, vocabulary))
        return cls(logits, rows, tokens, world, np.array([seen for _, seen, _ in triples]))


@dataclass(frozen=True)
class Bandit:
    """One choice among the arms."""

    rewards: np.ndarray
    """[A]"""
    reference: np.ndarray
    """[A] probabilities."""

    @classmethod
    def make(cls, generator: np.random.Generator, arms: int = 6) -> "Bandit":
        """Gaussian rewards, Dirichlet reference."""
        return cls(generator.normal(size=arms), generator.dirichlet(np.ones(arms)))

    def optimum(self, beta: float) -> np.ndarray:
        """[A] the maximiser of ``E[reward] - beta KL(policy || reference)``: reference tilted by exp(reward / beta)."""
        return np.exp(log_softmax(np.log(self.reference) + self.rewards / beta))

    def objective(self, policy: np.ndarray, beta: float) -> float:
        """Value of that objective; ``policy`` is [A]."""
        return float(policy @ self.rewards - beta * policy @ np.log(policy / self.reference))


def binary_groups(size: int, p: float) -> Iterator[tuple[np.ndarray, float]]:
    """Every vector of ``size`` rewards in {0, 1}, with its probability when each is 1 with probability ``p``."""
    for rewards in product((0.0, 1.0), repeat=size):
        wins = sum(rewards)
        yield np.array(rewards), p**wins * (1 - p) ** (size - wins)


def coefficient(advantages: Callable[[np.ndarray], np.ndarray], size: int, p: float) -> float:
    """The c with ``E[mean_i A_i grad log-prob(r_i)] = c grad p``; ``advantages`` maps [G] rewards to [G].

    For a binary reward the score, averaged over the samples with that reward, is ``grad p / p`` or
    ``-grad p / (1 - p)``.
    """
    total = 0.0
    for rewards, probability in binary_groups(size, p):
        score = rewards / p - (1 - rewards) / (1 - p)
        total += probability * float(np.mean(advantages(rewards) * score))
    return total
