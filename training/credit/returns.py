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

__all__ = ["Returns", "decisions", "discounted", "lengths", "returns_of", "unusable"]

Array = NDArray[np.float64]
_DECISION = int(Tag.DECISION)
"""A plain number: NumPy asks an enum member a dozen questions at every comparison."""


@dataclass(frozen=True, slots=True)
class Returns:
    """Returns of one episode."""

    total: float
    """From the start."""
    decisions: Array
    """[D] of each decision, in the order they were made."""


def decisions(episode: Episode) -> NDArray[np.bool_]:
    """Return [sum L]: which sampled ids, one turn's behind the other's, are decisions of the policy."""
    tags = np.concatenate([np.empty(0, np.uint8), *(turn.tags for turn in episode.turns)])
    mask: NDArray[np.bool_] = np.equal(tags, _DECISION)
    return mask


def lengths(episode: Episode) -> list[int]:
    """Return [K]: how many ids were sampled in each turn."""
    return [len(turn.tags) for turn in episode.turns]


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
    logprobs = np.concatenate([np.empty(0, np.float32), *(turn.completion.logprobs for turn in episode.turns)])
    if not np.isfinite(logprobs[decisions(episode)]).all():
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
    mask = decisions(episode)
    turn_of = np.repeat(np.arange(len(episode.turns)), lengths(episode))[mask]
    extra = np.zeros(len(turn_of))
    if penalties is not None:
        extra = np.concatenate([np.empty(0), *penalties])[mask]
    if not np.isfinite(extra).all():
        raise UsageError(f"a penalty on a decision of task {episode.task.key} is not finite")
    steps = rewards + np.bincount(turn_of, weights=extra, minlength=len(rewards))
    following = np.append(discounted(steps, gamma), 0.0)
    if not to_go:
        return Returns(float(following[0]), np.full(len(turn_of), following[0]))
    own = np.zeros(len(turn_of))
    if penalties is not None:
        # Within its turn, a decision also gets the penalties of those behind it.
        parts = np.split(extra, np.flatnonzero(np.diff(turn_of)) + 1)
        own = np.concatenate([np.cumsum(part[::-1])[::-1] for part in parts])
    return Returns(float(following[0]), (rewards + gamma * following[1:])[turn_of] + own)
