"""Advantages of a whole step: every decision's return, against a baseline, in a unit."""

from collections.abc import Sequence, Sized
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import Literal, Self, TypeVar

import numpy as np
from numpy.typing import NDArray
from pydantic import Field, model_validator

from peira.agents.types import Episode, Group
from peira.tools.errors import UsageError
from peira.training.credit.report import Member, report
from peira.training.credit.returns import Returns, decisions, lengths, returns_of, unusable
from peira.training.credit.statistics import Baseline, Deviation, baselines, deviation, rescaled
from peira.training.settings import Settings
from peira.training.types import Credited

__all__ = ["CreditSettings", "PerToken", "PerTurn", "credit"]

Array = NDArray[np.float64]
PerTurn = Sequence[Sequence[Array]]
"""[N][G] of [K]: a number per turn of every episode of every group."""
PerToken = Sequence[Sequence[Sequence[Array]]]
"""[N][G][K] of [L]: a number per sampled id."""

SizedT = TypeVar("SizedT", bound=Sized)

ROUNDING = 1e-6
"""How far an episode's score may lie from the sum of its rewards, relative to its size."""


class CreditSettings(Settings):
    """How returns become weights.

    =================  ===============  ==============  ========  =========================================
    recipe             baseline         scale           returns   paper
    =================  ===============  ==============  ========  =========================================
    GRPO, DAPO         mean             std_group       total     arXiv 2402.03300, 2503.14476
    Dr. GRPO           mean             none            total     arXiv 2503.20783
    RLOO               leave_one_out    none            total     arXiv 2402.14740
    Lite-PPO           mean             std_batch       total     arXiv 2508.08221
    MaxRL              mean             mean            total     arXiv 2602.02710
    REINFORCE++        none             whiten_batch    to_go     arXiv 2501.03262
    its baseline kind  mean             whiten_batch    to_go     the same
    =================  ===============  ==============  ========  =========================================
    """

    baseline: Baseline = "mean"
    """What a return is compared with: the group's mean, the mean of the others, nothing. The mean is taken over
    *episodes*: a failure of fifty turns counts as much as a success of two."""
    scale: Literal["none", "std_group", "std_batch", "mean", "whiten_batch"] = "std_group"
    """The unit: 1; the deviation of the group's or of all episodes' returns; the group's mean return; or mean and
    deviation of all decisions of the step."""
    std: Deviation = "population"
    """Divides by N or by N - 1."""
    eps: float = Field(default=1e-6, ge=0)
    """Added to the unit."""
    flat: float = Field(default=1e-5, ge=0)
    """Returns whose deviation is at most this are equal; the advantage is then exactly 0."""
    returns: Literal["total", "to_go"] = "total"
    """All decisions of an episode get its whole return, or each gets what came after it."""
    gamma: float = Field(default=1.0, ge=0, le=1)
    """Discount per turn; ``to_go`` only."""
    truncated: Literal["keep", "zero", "mask", "drop"] = "keep"
    """An episode that a limit ended is: treated like any other; scored 0; counted in its group's statistics but not
    trained on; taken out altogether."""

    @model_validator(mode="after")
    def _discount_needs_time(self) -> Self:
        if self.gamma != 1 and self.returns != "to_go":
            raise ValueError("'gamma' discounts what comes after a decision: it needs returns = 'to_go'")
        return self


def credit(
    groups: Sequence[Group],
    settings: CreditSettings,
    penalties: PerToken | None = None,
    rewards: PerTurn | None = None,
) -> tuple[list[Credited], dict[str, float]]:
    """Weigh every decision of a step.

    A counterfactual episode (``origin.kind``) has its own rule: ``score - origin.score`` on all of its decisions, in
    no unit (EARL, arXiv 2510.07581). It takes no part in the statistics of its group or of the step.

    Args:
        groups: all groups of the step; some units are taken over all of them.
        settings: the rule.
        penalties: added to the rewards of decisions *before* anything else (KL at placement ``reward``). To give them
            later would be another objective: normalisation and KL do not commute.
        rewards: shaped rewards per turn; left out, the turns' own. What they sum to replaces the score.

    Returns:
        One ``Credited`` per group, in order, and metrics (see ``report``).

    Raises:
        UsageError: shapes that do not fit the groups, a score that is not the sum of its rewards, a negative return
            under scale ``mean``, or penalties on counterfactual episodes (no difference of penalties is known).
    """
    members = [
        [
            _judge(
                episode,
                settings,
                None if penalties is None else _fitting(penalties, g, i, episode, "penalties"),
                None if rewards is None else _fitting(rewards, g, i, episode, "rewards"),
            )
            for i, episode in enumerate(group.episodes)
        ]
        for g, group in enumerate(groups)
    ]
    relative = [_within_group(of_group, settings) for of_group in members]
    values = _within_step(members, relative, settings)
    credited = [
        Credited(
            group,
            tuple(_spread(m.episode, v if m.trained else np.zeros_like(v)) for m, v in zip(ms, vs, strict=True)),
            frozenset(i for i, m in enumerate(ms) if not m.trained),
        )
        for group, ms, vs in zip(groups, members, values, strict=True)
    ]
    return credited, report(members, [r.silent for r in relative], credited)


def _fitting(given: Sequence[Sequence[SizedT]], g: int, i: int, episode: Episode, what: str) -> SizedT:
    """Return an episode's share of a nested argument, or say where its shape goes wrong."""
    try:
        share = given[g][i]
    except IndexError:
        raise UsageError(f"{what}: nothing is given for episode {i} of group {g}") from None
    if len(share) != len(episode.turns):
        raise UsageError(f"{what}: episode {i} of group {g} has {len(episode.turns)} turns, not {len(share)}")
    return share


def _judge(
    episode: Episode, settings: CreditSettings, penalties: Sequence[Array] | None, shaped: Array | None
) -> Member:
    """Decide whether an episode is counted and trained on, and compute its returns."""
    raw = np.array([turn.reward for turn in episode.turns], dtype=np.float64)
    rewards = raw if shaped is None else np.asarray(shaped, dtype=np.float64)
    reason = unusable(episode, rewards)
    if reason:
        return Member(episode, _nothing(episode), reason, counted=False, trained=False)
    _check_score(episode, raw)
    cut = episode.end.truncated
    counted, trained = not (cut and settings.truncated == "drop"), not (cut and settings.truncated in ("mask", "drop"))
    zeroed = cut and settings.truncated == "zero"
    if episode.origin is not None and episode.origin.kind == "counterfactual":
        if penalties is not None:
            raise UsageError(
                f"task {episode.task.key} holds a counterfactual episode, whose credit is a difference of two scores; "
                "a KL penalty at placement 'reward' has no such difference: place the KL at 'loss'"
            )
        gain = (0.0 if zeroed else episode.score) - episode.origin.score
        return Member(episode, _nothing(episode), None, counted=False, trained=trained, gain=gain)
    returns = returns_of(
        episode,
        np.zeros_like(rewards) if zeroed else rewards,
        penalties,
        gamma=settings.gamma,
        to_go=settings.returns == "to_go",
    )
    return Member(episode, returns, None, counted=counted, trained=trained)


def _nothing(episode: Episode) -> Returns:
    return Returns(0.0, np.zeros(np.count_nonzero(decisions(episode))))


def _check_score(episode: Episode, rewards: Array) -> None:
    total = rewards.sum()
    if abs(total - episode.score) > ROUNDING * max(1.0, abs(total)):
        raise UsageError(
            f"an episode of task {episode.task.key} says its score is {episode.score:g}, but its rewards sum to "
            f"{total:g}; a score is the sum of its turns' rewards, each counted once"
        )


@dataclass(frozen=True, slots=True)
class _Relative:
    """Values of one group's members, and whether the group has nothing to say."""

    values: list[Array]
    silent: bool


def _within_group(members: Sequence[Member], settings: CreditSettings) -> _Relative:
    """Compare each return with the group's baseline, in the group's unit (other units come later)."""
    values = [np.full(len(m.returns.decisions), m.gain or 0.0) for m in members]
    places = [i for i, m in enumerate(members) if m.counted]
    if not places:
        return _Relative(values, silent=False)
    totals = np.array([members[i].returns.total for i in places])
    spread = deviation(totals, settings.std)
    if settings.baseline != "none" and _silent(members, places, spread, settings):
        return _Relative([np.zeros_like(v) if m.counted else v for v, m in zip(values, members, strict=True)], True)
    for i, against in zip(places, baselines(totals, settings.baseline), strict=True):
        values[i] = members[i].returns.decisions - against
    if settings.scale in ("std_group", "mean"):
        unit = spread if settings.scale == "std_group" else _mean_unit(members, totals, settings)
        for i in places:
            values[i] = rescaled(values[i], unit, settings.flat, settings.eps)
    return _Relative(values, silent=False)


def _silent(members: Sequence[Member], places: Sequence[int], spread: float, settings: CreditSettings) -> bool:
    """Whether a group compares nothing: one member, or returns that differ neither between nor inside episodes."""
    if len(places) < 2:
        return True
    returns = [members[i].returns for i in places]
    inside = max((float(np.abs(r.decisions - r.total).max(initial=0.0)) for r in returns), default=0.0)
    return spread <= settings.flat and (inside <= settings.flat or settings.scale == "std_group")


def _mean_unit(members: Sequence[Member], totals: Array, settings: CreditSettings) -> float:
    if totals.min() < -settings.flat:
        raise UsageError(
            f"scale 'mean' divides by a group's mean return and needs returns of at least 0; task "
            f"{members[0].episode.task.key} has {totals.min():g}"
        )
    return float(totals.mean())


def _within_step(
    members: Sequence[Sequence[Member]], relative: Sequence[_Relative], settings: CreditSettings
) -> list[list[Array]]:
    """Bring values into the unit of the whole step.

    Whitening also moves every value by the step's mean. A silent group counts in that mean but stays at 0 itself:
    it compared nothing, and a shift made by other groups is no reason to reinforce or discourage it.
    """
    unit, centre = 0.0, 0.0
    if settings.scale == "std_batch":
        unit = deviation(np.array([m.returns.total for ms in members for m in ms if m.counted]), settings.std)
    elif settings.scale == "whiten_batch":
        pairs = [pair for ms, r in zip(members, relative, strict=True) for pair in zip(ms, r.values, strict=True)]
        tokens = np.concatenate([np.empty(0), *(v for m, v in pairs if m.in_step)])
        unit, centre = deviation(tokens, settings.std), float(tokens.mean()) if len(tokens) else 0.0
    else:
        return [r.values for r in relative]

    def placed(member: Member, value: Array, silent: bool) -> Array:
        if silent or not member.in_step:
            return value
        return rescaled(value - centre, unit, settings.flat, settings.eps)

    return [
        [placed(m, v, r.silent) for m, v in zip(ms, r.values, strict=True)]
        for ms, r in zip(members, relative, strict=True)
    ]


def _spread(episode: Episode, values: Array) -> tuple[Array, ...]:
    """Put [D] values back on the ids they belong to: [K][L], zero elsewhere."""
    mask = decisions(episode)
    weights = np.zeros(len(mask))
    weights[mask] = values
    ends = list(accumulate(lengths(episode), initial=0))
    return tuple(weights[start:end] for start, end in pairwise(ends))
