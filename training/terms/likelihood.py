"""The likelihood term: make what a demonstrator did more probable."""

from pydantic import Field
from torch import Tensor

from peira.training.settings import Settings
from peira.training.terms.base import Term

__all__ = ["Likelihood", "likelihood"]


class Likelihood(Settings):
    """Weighted negative log-likelihood of expert decisions."""

    coefficient: float = Field(default=1.0, ge=0)


def likelihood(logprobs: Tensor, weights: Tensor) -> Term:
    """Return ``-weight * logprob`` of each expert decision (without the coefficient).

    Values: ``nll`` (unweighted).
    """
    return Term(-weights.detach() * logprobs, {"nll": -logprobs.detach()})
