"""What the policy is tied to: a frozen copy of it, and rules for moving that copy.

The copy is made of the policy *as it stands* when training starts, tuned parts included, so that the divergence at
step 0 is exactly zero; and it shares no tensor with the policy, so that learning cannot move it.
"""

import copy
from collections.abc import Mapping
from typing import Any, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from peira.training.model import CausalLM
from peira.training.settings import Settings

__all__ = ["Reference", "ReferenceSettings"]


class ReferenceSettings(Settings):
    """How the reference follows the policy."""

    kind: Literal["fixed", "lagged", "ema"] = "fixed"
    """``fixed``: never. ``lagged``: becomes the policy each ``every`` updates. ``ema``: moves towards it after each."""
    every: int | None = Field(default=None, ge=1)
    decay: float | None = Field(default=None, ge=0, lt=1)
    """Share of the old reference that an ``ema`` keeps per update."""

    @model_validator(mode="after")
    def _kind_has_its_number(self) -> Self:
        if (self.kind == "lagged") != (self.every is not None):
            raise ValueError("'every' belongs to kind 'lagged', which cannot do without it")
        if (self.kind == "ema") != (self.decay is not None):
            raise ValueError("'decay' belongs to kind 'ema', which cannot do without it")
        return self


class Reference:
    """A frozen model beside the policy."""

    def __init__(self, policy: CausalLM, settings: ReferenceSettings | None = None) -> None:
        self.settings = settings or ReferenceSettings()
        self.model: CausalLM = copy.deepcopy(policy)
        self.model.eval()
        for _, parameter in self.model.named_parameters():
            parameter.requires_grad_(False)
            parameter.grad = None

    @torch.no_grad()
    def follow(self, policy: CausalLM, updates: int) -> None:
        """Move as the settings say, after the policy's ``updates``-th update."""
        match self.settings.kind:
            case "fixed":
                return
            case "lagged":
                if self.settings.every is not None and updates % self.settings.every == 0:
                    self.model.load_state_dict(policy.state_dict())
            case "ema":
                if self.settings.decay is not None:
                    for (_, mine), (_, theirs) in zip(
                        self.model.named_parameters(), policy.named_parameters(), strict=True
                    ):
                        mine.lerp_(theirs.to(mine.dtype), 1 - self.settings.decay)

    def state(self) -> dict[str, Tensor]:
        """Return the weights, for a checkpoint."""
        return {name: tensor.detach().clone() for name, tensor in self.model.state_dict().items()}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Take the weights of ``state``."""
        self.model.load_state_dict(state)
