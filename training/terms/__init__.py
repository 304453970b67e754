"""Terms: the summands of the loss.

A term is a pure function of aligned ``[D]`` tensors, one entry per trained decision, that returns a loss per decision
and the per-decision values worth logging. It never sees a reward, a mask or a batch: what is not trained was left out
before, and ``aggregate`` is applied once, with the denominators of the whole step.
"""

from peira.training.terms.aggregate import Aggregate, Denominators, aggregate
from peira.training.terms.base import Term, summarise
from peira.training.terms.divergence import Divergence, divergence, estimate
from peira.training.terms.entropy import EntropyBonus, entropy_bonus
from peira.training.terms.likelihood import Likelihood, likelihood
from peira.training.terms.policy_gradient import PolicyGradient, policy_gradient

__all__ = [
    "Aggregate",
    "Denominators",
    "Divergence",
    "EntropyBonus",
    "Likelihood",
    "PolicyGradient",
    "Term",
    "aggregate",
    "divergence",
    "entropy_bonus",
    "estimate",
    "likelihood",
    "policy_gradient",
    "summarise",
]
