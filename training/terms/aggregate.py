"""From losses per decision to the loss: one sum, divided once by what the whole step holds."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray
from pydantic import Field, model_validator
from torch import Tensor

from peira.tools.errors import UsageError
from peira.training.settings import Settings

__all__ = ["Aggregate", "Denominators", "aggregate"]


class Aggregate(Settings):
    """How decisions are weighed against each other; part of the objective, since it decides the weight of length.

    ==========  =====================================================  =======================================
    mode        loss                                                   used by
    ==========  =====================================================  =======================================
    tok         sum of all decisions / their number                    DAPO (arXiv 2503.14476), Lite-PPO
    seq-mean    mean over episodes of the mean over their decisions    GRPO (arXiv 2402.03300)
    seq-sum     mean over episodes of the sum over their decisions     REINFORCE on whole episodes
    const       sum of all decisions / (``length`` x episodes)         Dr. GRPO (arXiv 2503.20783)
    ==========  =====================================================  =======================================
    """

    mode: Literal["tok", "seq-mean", "seq-sum", "const"] = "tok"
    length: int | None = Field(default=None, ge=1)
    """Decisions an episode is budgeted; ``const`` only."""
    episodes: int | None = Field(default=None, ge=1)
    """Episodes a step is budgeted; ``const`` only. Left out, the episodes present count, so that dropping half of
    them doubles the weight of the others; given, the survivors' gradient is the same however many were dropped."""

    @model_validator(mode="after")
    def _const_has_a_length(self) -> Self:
        if (self.mode == "const") != (self.length is not None):
            raise ValueError("'length' belongs to mode 'const', which cannot do without it")
        if self.episodes is not None and self.mode != "const":
            raise ValueError("'episodes' belongs to mode 'const'")
        return self


@dataclass(frozen=True, slots=True)
class Denominators:
    """Trained decisions of one optimiser step, over all of its micro-batches."""

    lengths: NDArray[np.int64]
    """[E] trained decisions per episode, however many rows the episode is spread over; 0: it does not count."""

    @classmethod
    def of(cls, episodes: Sequence[NDArray[np.int64]]) -> "Denominators":
        """Count decisions, given the episode index of each in every micro-batch."""
        return cls(np.bincount(np.concatenate(list(episodes))))

    @property
    def decisions(self) -> int:
        """All trained decisions."""
        return int(self.lengths.sum())

    @property
    def episodes(self) -> int:
        """Episodes that have at least one."""
        return int((self.lengths > 0).sum())


def aggregate(losses: Tensor, settings: Aggregate, episode: NDArray[np.int64], whole: Denominators) -> Tensor:
    """Return a micro-batch's share of the loss; the shares of a step add up to its loss.

    Args:
        losses: [D] of the trained decisions of this micro-batch.
        settings: the mode.
        episode: [D] index of each decision's episode in ``whole.lengths``.
        whole: the denominators of the whole step, never of this micro-batch.

    Raises:
        UsageError: nothing is trained in the whole step.
    """
    if whole.decisions == 0:
        raise UsageError("nothing to aggregate: the step has no trained decision")
    match settings.mode:
        case "tok":
            return losses.sum() / whole.decisions
        case "seq-mean":
            share = torch.as_tensor(1.0 / whole.lengths[episode], dtype=losses.dtype, device=losses.device)
            return (losses * share).sum() / whole.episodes
        case "seq-sum":
            return losses.sum() / whole.episodes
        case "const":
            assert settings.length is not None  # the validator saw to it
            return losses.sum() / (settings.length * (settings.episodes or whole.episodes))
