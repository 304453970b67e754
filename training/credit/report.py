"""What credit says about a step: who was left out and why, and how much there was to learn."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from peira.agents.types import Episode
from peira.training.credit.returns import Returns, decisions
from peira.training.types import Credited

__all__ = ["Member", "report"]

UNUSABLE = ("unscored", "aborted", "broken")


@dataclass(frozen=True, slots=True)
class Member:
    """One episode, as credit sees it."""

    episode: Episode
    returns: Returns
    unusable: str | None
    """Why it cannot be judged; see ``returns.unusable``."""
    counted: bool
    """Takes part in the statistics of its group and of the step."""
    trained: bool
    """May carry weight and count in denominators."""
    gain: float | None = None
    """Score minus the original's score, of a counterfactual episode."""

    @property
    def in_step(self) -> bool:
        """Whether the step's unit applies: what is trained on and has been compared."""
        return self.counted and self.trained

    @property
    def own_score(self) -> float | None:
        """What the policy scored by itself: of a counterfactual episode, that is the original's score."""
        if self.unusable:
            return None
        origin = self.episode.origin
        return origin.score if self.gain is not None and origin is not None else self.episode.score


def report(
    members: Sequence[Sequence[Member]], silent: Sequence[bool], credited: Sequence[Credited]
) -> dict[str, float]:
    """Return metrics of a step; a mean over nothing is left out rather than invented.

    ``groups``, ``episodes``, ``decisions``; ``score_mean`` (raw, before shaping), ``return_mean``;
    ``flat_group_share`` and ``singleton_groups``; ``truncated``, ``empty`` (no decision to train),
    ``unscored``, ``aborted``, ``broken``, ``dropped`` (not trained on, for any reason), ``counterfactual`` and
    ``counterfactual_gain``; ``advantage_abs_mean`` and ``credited_share`` (decisions whose weight is not 0).
    """
    everyone = [m for ms in members for m in ms]
    metrics: dict[str, float] = {
        "groups": len(members),
        "episodes": len(everyone),
        "truncated": sum(m.episode.end.truncated for m in everyone),
        "empty": sum(len(m.returns.decisions) == 0 for m in everyone),
        "dropped": sum(not m.trained for m in everyone),
        "singleton_groups": sum(sum(m.counted for m in ms) == 1 for ms in members),
        "counterfactual": sum(m.gain is not None for m in everyone),
        **{reason: sum(m.unusable == reason for m in everyone) for reason in UNUSABLE},
    }
    per_decision = np.concatenate([np.empty(0), *(weights for c in credited for weights in _trained(c))])
    metrics["decisions"] = len(per_decision)
    means = {
        "score_mean": [score for m in everyone if (score := m.own_score) is not None],
        "return_mean": [m.returns.total for m in everyone if m.counted],
        "flat_group_share": [quiet for ms, quiet in zip(members, silent, strict=True) if any(m.counted for m in ms)],
        "counterfactual_gain": [m.gain for m in everyone if m.gain is not None],
        "advantage_abs_mean": np.abs(per_decision),
        "credited_share": per_decision != 0,
    }
    return metrics | {name: float(np.mean(values)) for name, values in means.items() if len(values)}


def _trained(credited: Credited) -> list[np.ndarray]:
    """Return the weights of the decisions of every episode that is trained on."""
    pairs = zip(credited.group.episodes, credited.weights, strict=True)
    kept = [(e, w) for i, (e, w) in enumerate(pairs) if i not in credited.dropped]
    return [np.concatenate([np.empty(0), *weights])[decisions(episode)] for episode, weights in kept]
