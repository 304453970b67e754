"""The policy-gradient term: advantage x log-prob, with or without a ratio to an anchor."""

from typing import Literal, Self

import torch
from pydantic import Field, model_validator
from torch import Tensor

from peira.training.settings import Settings
from peira.training.terms.base import LOG_RATIO_LIMIT, Term

__all__ = ["PolicyGradient", "policy_gradient"]


class PolicyGradient(Settings):
    """Which surrogate, and how far it may be trusted."""

    surrogate: Literal["clip", "cispo", "reinforce"] = "clip"
    """``clip``: PPO (arXiv 1707.06347). ``cispo``: the clipped ratio is a constant weight, so that no decision loses
    its gradient (arXiv 2506.13585). ``reinforce``: no ratio at all."""
    clip_low: float = Field(default=0.2, ge=0, le=1)
    clip_high: float = Field(default=0.2, ge=0)
    """Higher than ``clip_low``: clip-higher (DAPO, arXiv 2503.14476)."""
    dual_clip: float | None = Field(default=None, gt=1)
    """Where the advantage is negative, the loss is capped at ``-dual_clip * advantage`` (arXiv 1912.09729)."""
    anchor: Literal["old", "behaviour"] = "old"
    """What the ratio is taken against: the weights at the start of the update, or the sampler (bypass)."""
    is_cap: float | None = Field(default=None, gt=0)
    """Truncated importance weight min(exp(old - behaviour), cap) on every decision; carries no gradient."""

    @model_validator(mode="after")
    def _consistent(self) -> Self:
        if self.dual_clip is not None and self.surrogate != "clip":
            raise ValueError("'dual_clip' belongs to surrogate 'clip'")
        if self.is_cap is not None and self.anchor == "behaviour" and self.surrogate != "reinforce":
            raise ValueError("with anchor 'behaviour' the ratio is the importance weight: leave out 'is_cap'")
        return self


def policy_gradient(
    logprobs: Tensor, old: Tensor, behaviour: Tensor, advantages: Tensor, settings: PolicyGradient
) -> Term:
    """Return the loss of each decision, to be minimised.

    Args:
        logprobs: [D] under the current weights, differentiable.
        old: [D] under the weights at the start of the update.
        behaviour: [D] under whoever sampled; read only by ``is_cap`` and the anchor ``behaviour``.
        advantages: [D].
        settings: the surrogate.

    Values: ``ratio`` (raw), ``clip_share`` (decisions whose gradient the clip removed or, for ``cispo``, changed),
    ``dual_clip_share``, ``is_weight`` (raw), ``is_cap_share``.
    """
    anchor = (behaviour if settings.anchor == "behaviour" else old).detach()
    log_ratio = logprobs - anchor
    values = {"ratio": log_ratio.detach().exp()}
    ratio = log_ratio.clamp(-LOG_RATIO_LIMIT, LOG_RATIO_LIMIT).exp()
    advantages = advantages.detach()
    low, high = 1 - settings.clip_low, 1 + settings.clip_high
    match settings.surrogate:
        case "reinforce":
            losses = -advantages * logprobs
        case "cispo":
            weight = ratio.detach().clamp(low, high)
            losses = -weight * advantages * logprobs
            values["clip_share"] = ((ratio < low) | (ratio > high)).to(logprobs.dtype)
        case "clip":
            losses, cut = _clipped(ratio, advantages, low, high)
            values["clip_share"] = cut.to(logprobs.dtype)
            if settings.dual_clip is not None:
                capped = (advantages < 0) & (ratio.detach() > settings.dual_clip)
                losses = torch.where(capped, -settings.dual_clip * advantages, losses)
                values["dual_clip_share"] = capped.to(logprobs.dtype)
    if settings.is_cap is not None:
        weight = (old - behaviour).detach().exp()
        values["is_weight"] = weight
        values["is_cap_share"] = (weight > settings.is_cap).to(logprobs.dtype)
        losses = losses * weight.clamp(max=settings.is_cap)
    return Term(losses, values)


def _clipped(ratio: Tensor, advantages: Tensor, low: float, high: float) -> tuple[Tensor, Tensor]:
    """Return ``-min(ratio A, clip(ratio) A)`` and where the clipped branch, which has no gradient, is the smaller."""
    still = ratio.detach()
    cut = ((still > high) & (advantages > 0)) | ((still < low) & (advantages < 0))
    return -torch.where(cut, still.clamp(low, high), ratio) * advantages, cut
