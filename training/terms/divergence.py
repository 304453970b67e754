"""The divergence term: what keeps the policy near a reference, as a loss.

With ``l = log pi - log ref`` on tokens drawn from the policy, the estimators of KL(pi || ref) are (J. Schulman,
"Approximating KL divergence", 2020)::

    k1 = l            k2 = l^2 / 2            k3 = exp(-l) - 1 + l

As a *loss* they are three different objectives, none of which is the gradient of the sequence KL: ``k1`` pulls nowhere
on average, ``k2`` follows the reverse KL of each step's distribution, ``k3`` the *forward* KL of each step's
distribution. The sequence KL's own gradient is ``k1`` in the *reward*, which is credit's business, not this term's.
"""

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor

from peira.training.settings import Settings
from peira.training.terms.base import LOG_RATIO_LIMIT, Term

__all__ = ["Divergence", "Estimator", "divergence", "estimate"]

Estimator = Literal["k1", "k2", "k3"]


class Divergence(Settings):
    """A divergence from the reference in the loss."""

    coefficient: float = Field(default=0.001, ge=0)
    estimator: Estimator = "k3"


def estimate(log_ratio: Tensor, estimator: Estimator) -> Tensor:
    """Return the estimator of KL(policy || reference) for each entry of ``log pi - log ref``."""
    match estimator:
        case "k1":
            return log_ratio
        case "k2":
            return log_ratio.square() / 2
        case "k3":
            # expm1 keeps small ratios exact; the limit keeps a hopeless one from overflowing into the gradient.
            return torch.expm1((-log_ratio).clamp(max=LOG_RATIO_LIMIT)) + log_ratio


def divergence(vocab_logprobs: Tensor, reference: Tensor, plain: Tensor, settings: Divergence) -> Term:
    """Return the loss of each decision (without the coefficient).

    Args:
        vocab_logprobs: [D] of the policy among the vocabulary alone, differentiable.
        reference: [D] the same of the reference; whatever stands where ``plain`` is false is not read.
        plain: [D] bool: the decisions that a reference without native actions can judge; the others get 0.
        settings: the estimator.

    Values: ``kl`` (the estimator's value).
    """
    log_ratio = torch.where(plain, vocab_logprobs - reference.detach(), torch.zeros_like(vocab_logprobs))
    losses = estimate(log_ratio, settings.estimator)
    return Term(losses, {"kl": losses.detach()})
