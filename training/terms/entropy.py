"""The entropy bonus: keep the policy from settling before it has seen enough."""

from pydantic import field_validator
from torch import Tensor

from peira.training.control import Constant, Plan
from peira.training.settings import Settings
from peira.training.terms.base import Term

__all__ = ["EntropyBonus", "entropy_bonus"]


class EntropyBonus(Settings):
    """Minus the entropy of the distribution over the legal ids."""

    coefficient: Plan = Constant(value=0.001)
    """Its step is the number of updates made: explore first, settle later."""

    @field_validator("coefficient")
    @classmethod
    def _never_below_zero(cls, plan: Plan) -> Plan:
        if min(plan.extremes()) < 0:
            raise ValueError(
                f"an entropy bonus of {min(plan.extremes()):g} would be a penalty; it must not be negative"
            )
        return plan

    @property
    def used(self) -> bool:
        """Whether it is ever anything but 0."""
        return max(self.coefficient.extremes()) > 0

    def at(self, step: int) -> "EntropyBonus":
        """Return the term of one update."""
        return EntropyBonus(coefficient=Constant(value=self.coefficient.at(step)))


def entropy_bonus(entropy: Tensor) -> Term:
    """Return ``-entropy`` of each decision (without the coefficient). Its value is logged by the learner anyway."""
    return Term(-entropy)
