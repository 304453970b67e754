"""The entropy bonus: keep the policy from settling before it has seen enough."""

from pydantic import Field
from torch import Tensor

from peira.training.settings import Settings
from peira.training.terms.base import Term

__all__ = ["EntropyBonus", "entropy_bonus"]


class EntropyBonus(Settings):
    """Minus the entropy of the distribution over the legal ids."""

    coefficient: float = Field(default=0.001, ge=0)


def entropy_bonus(entropy: Tensor) -> Term:
    """Return ``-entropy`` of each decision (without the coefficient). Its value is logged by the learner anyway."""
    return Term(-entropy)
