"""What followed a decision: returns of one episode, per turn and per decision.

Time is counted in *turns*: a long answer is discounted no more than a short one, and tokens the world wrote are not
steps at all. A turn's reward belongs to every decision made up to and in that turn, so nothing has to be placed on a
particular token (and none can be lost on a masked one).
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from peira.agents.types import Episode, Finish, Tag
from peira.tools.errors import UsageError

__all__ = ["Returns", "decisions", "discounted", "returns_of", "unusable"]

Array = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Returns:
    """Returns of one episode."""

    total: float
    """From the start."""
    decisions: Array
    """[D] of each decision, in the order they were made."""


def decisions(episode: Episode) -> list[NDArray[np.bool_]]:
    """Return [K][L]: which sampled ids are decisions of the policy."""
    return [turn.tags == Tag.DECISION for turn in episode.turns]


def discounted(rewards: Array, gamma: float) -> Array:
    """Return [K] the sum of rewards from each turn on, ``gamma`` per turn: ``[1, 0, 2]``, 0.9 → ``[2.62, 1.8, 2]``."""
    result = np.empty(len(rewards))
    following = 0.0
    for k in range(len(rewards) - 1, -1, -1):
        following = float(rewards[k]) + gamma * following
        result[k] = following
    return result


def unusable(episode: Episode, rewards: Array) -> str | None:
    """Return why an episode can neither be judged nor trained on, or ``None``.

    ``unscored``: its score or a reward is missing (None or NaN). ``aborted``: a completion was cancelled, so it is a
    fragment nobody chose. ``broken``: a decision has no finite log-prob, so no ratio can be formed.
    """
    # A judge that declined leaves None behind; as float64 it becomes NaN.
    if not np.isfinite(np.asarray(episode.score, dtype=np.float64)) or not np.isfinite(rewards).all():
        return "unscored"
    if any(turn.completion.finish is Finish.ABORT for turn in episode.turns):
        return "aborted"
    chosen = zip(episode.turns, decisions(episode), strict=True)
    if not all(np.isfinite(turn.completion.logprobs[mask]).all() for turn, mask in chosen):
        return "broken"
    return None


def returns_of(
    episode: Episode, rewards: Array, penalties: Sequence[Array] | None, *, gamma: float = 1.0, to_go: bool = False
) -> Returns:
    """Return what followed each decision of an episode.

    Args:
        episode: supplies the tags.
        rewards: [K] reward of each turn.
        penalties: [K][L] added to the reward of single decisions (``-beta k1``); entries on other ids are ignored.
        gamma: discount per turn.
        to_go: each decision gets what came after it (its own penalty included); otherwise all get the total.

    Raises:
        UsageError: the penalty of a decision is missing or not finite.
    """
    masks = decisions(episode)
    extra = [np.zeros(int(mask.sum())) for mask in masks]
    if penalties is not None:
        extra = [np.asarray(p, dtype=np.float64)[mask] for p, mask in zip(penalties, masks, strict=True)]
    if not all(np.isfinite(values).all() for values in extra):
        raise UsageError(f"a penalty on a decision of task {episode.task.key} is not finite")
    steps = np.array([reward + values.sum() for reward, values in zip(rewards, extra, strict=True)])
    following = np.append(discounted(steps, gamma), 0.0)
    if not to_go:
        return Returns(float(following[0]), np.full(sum(map(len, extra)), following[0]))
    pieces = [
        reward + gamma * following[k + 1] + np.cumsum(values[::-1])[::-1]
        for k, (reward, values) in enumerate(zip(rewards, extra, strict=True))
    ]
    return Returns(float(following[0]), np.concatenate([np.empty(0), *pieces]))
