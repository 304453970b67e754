"""One training iteration: tasks are tried, judged and learned from. Values go forward; nothing is poked back.

::

    Sampler ─► collect ─► edits ─► credit ─► linearize ─► learner ─► delivery
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from pydantic import Field

from peira.agents.edits import Gains, counterfactual
from peira.agents.engines.base import Engine
from peira.agents.rollout import Progress, RolloutSettings, collect
from peira.agents.types import Group, Tag
from peira.agents.view import View
from peira.envs.seeding import seed_of
from peira.tasks.sampler import Sampler
from peira.training.credit import CreditSettings, PerToken, credit
from peira.training.delivery import deliver, probe_of
from peira.training.filters import Filling, FilterSettings
from peira.training.learner import Learner
from peira.training.linearize import linearize, linearize_all
from peira.training.measures import episode_metrics
from peira.training.rewards import RewardSettings, shaped
from peira.training.settings import Settings
from peira.training.types import Credited, Update

__all__ = ["CollectSettings", "Counterfactual", "RewardKL", "Step", "Trainer", "TrainerState"]


class CollectSettings(Settings):
    """How many episodes a step plays, and under which limits."""

    tasks: int = Field(default=16, ge=1)
    """Groups of a step."""
    group_size: int = Field(default=8, ge=1)
    """Episodes of a group."""
    temperature: float = Field(default=1.0, gt=0)
    max_turns: int | None = Field(default=None, ge=1)
    max_tokens: int = Field(default=512, ge=1)
    """Ids sampled in one turn."""
    budget: int | None = Field(default=None, ge=1)
    """Ids sampled in one episode."""
    concurrency: int = Field(default=256, ge=1)
    retries: int = Field(default=2, ge=0)
    invalid_limit: int | None = Field(default=5, ge=1)

    context: int | None = Field(default=None, ge=2)
    """Longest prompt plus completion the local engine keeps room for; left out, the model's own, 2,048 at the most."""

    def rollout(self, *, temperature: float | None = None) -> RolloutSettings:
        """Return the limits as the agents' room takes them."""
        limits = self.model_dump(exclude={"tasks", "group_size", "context"})
        return RolloutSettings(**(limits if temperature is None else {**limits, "temperature": temperature}))


class Counterfactual(Settings):
    """EARL's rewriting of groups in which nothing succeeded (arXiv 2510.07581); see ``peira.agents.edits``."""

    temperature: float = Field(default=10.0, gt=0)
    top_k: int = Field(default=10, ge=1)
    top_p: float = Field(default=0.9, gt=0, le=1)


class RewardKL(Settings):
    """KL at placement ``reward``: ``-coefficient * k1`` joins each decision's reward before any baseline."""

    coefficient: float = Field(default=0.0, ge=0)
    estimator: Literal["k1", "k2", "k3"] = "k1"

    def of(self, log_ratio: np.ndarray) -> np.ndarray:
        """Return the penalty of each decision from ``log policy - log reference``."""
        kinds = {
            "k1": lambda x: x,
            "k2": lambda x: x * x / 2,
            "k3": lambda x: np.expm1(-x) + x,
        }
        return np.asarray(-self.coefficient * kinds[self.estimator](log_ratio.astype(np.float64)))


@dataclass(frozen=True, slots=True)
class TrainerState:
    """What a step hands to the next one, beside the learner's weights."""

    step: int = 0
    """Steps done."""
    tokens: int = 0
    """Ids sampled so far."""
    gains: Gains = field(default_factory=Gains)

    def plain(self) -> dict[str, Any]:
        """Return the state as JSON data."""
        return {"step": self.step, "tokens": self.tokens, "gains": dict(self.gains.values)}

    @classmethod
    def of(cls, data: Mapping[str, Any]) -> "TrainerState":
        """Rebuild a state from ``plain``."""
        return cls(int(data["step"]), int(data["tokens"]), Gains(dict(data["gains"])))


@dataclass(frozen=True, slots=True)
class Step:
    """What one iteration leaves."""

    state: TrainerState
    update: Update
    groups: tuple[Group, ...]
    metrics: dict[str, float]


@dataclass(frozen=True)
class Trainer:
    """The pieces of a run, in the order in which data meets them."""

    sampler: Sampler
    engine: Engine
    view: View
    learner: Learner
    collecting: CollectSettings
    crediting: CreditSettings
    rewards: RewardSettings
    filters: FilterSettings
    rewriting: Counterfactual | None
    reward_kl: RewardKL
    seed: int

    async def iterate(self, state: TrainerState, progress: Progress | None = None) -> Step:
        """Make one iteration.

        Raises:
            Fault: all episodes were lost, or the new weights did not arrive.
            UsageError: every group of every refill was flat while ``filters.drop_flat`` is on.
        """
        # The same weights again: every step starts with empty caches, whether the run was interrupted before it or not.
        self.engine.load(self.learner.weights(), self.learner.version)
        groups, gains, told = await self._collect(state, progress)
        credited, judged = credit(groups, self.crediting, self._penalties(groups), shaped(groups, self.rewards))
        samples = linearize_all(credited)
        update = self.learner.update(samples)
        if update.skipped is None:
            told |= await deliver(self.engine, self.learner, probe_of(samples, self.learner.vocab))
        after = TrainerState(state.step + 1, state.tokens + int(told["step_tokens"]), gains)
        metrics = {
            **told,
            **judged,
            **update.metrics,
            "loss": update.loss,
            "grad_norm": update.grad_norm,
            "version": float(update.version),
            "skipped": float(update.skipped is not None),
            "total_tokens": float(after.tokens),
        }
        return Step(after, update, tuple(groups), metrics)

    async def _collect(
        self, state: TrainerState, progress: Progress | None
    ) -> tuple[list[Group], Gains, dict[str, float]]:
        """Fill a step with groups; edits are part of collecting. The metrics tell of the policy's own episodes."""
        filling, gains = Filling(self.collecting.tasks, self.filters), state.gains
        played: list[Group] = []
        counts: dict[str, float] = {"step_tokens": 0.0}
        limits, size = self.collecting.rollout(), self.collecting.group_size
        while not filling.finished:
            drawn = self.collecting.tasks * filling.rounds
            tasks = self.sampler.draw(drawn + filling.missing, state.step)[drawn:]
            seed = seed_of("step", self.seed, state.step, filling.rounds)
            groups = await collect(tasks, self.engine, self.view, limits, group_size=size, seed=seed, progress=progress)
            played += groups
            counts["step_tokens"] += float(sum(e.sampled for group in groups for e in group.episodes))
            if self.rewriting is not None:
                groups, gains, told = await counterfactual(
                    groups, self.engine, self.view, limits, gains, seed=seed, **self.rewriting.model_dump()
                )
                counts |= {name: counts.get(name, 0.0) + value for name, value in told.items()}
            filling = filling.add(groups)
        if self.filters.drop_flat:
            counts |= {"refills": float(filling.rounds - 1), "dropped_flat": float(filling.flat)}
        counts["step_tokens"] += counts.get("rewrite_tokens", 0.0)
        return list(filling.take()), gains, {**counts, **episode_metrics(played)}

    def _penalties(self, groups: Sequence[Group]) -> PerToken | None:
        """Return the per-decision KL penalties, in the shape of the groups."""
        if self.reward_kl.coefficient == 0:
            return None
        return [self._group_penalties(group) for group in groups]

    def _group_penalties(self, group: Group) -> list[list[np.ndarray]]:
        found = [[np.zeros(len(t.completion.ids)) for t in e.turns] for e in group.episodes]
        samples = linearize(Credited(group, tuple(tuple(weights) for weights in found), _unscored(group)))
        for sample, ratio in zip(samples, self.learner.log_ratios(samples), strict=True):
            values = self.reward_kl.of(ratio)
            turns = group.episodes[sample.member].turns
            for k in np.unique(sample.turns):
                found[sample.member][k][turns[k].tags == Tag.DECISION] = values[sample.turns == k]
        return found


def _unscored(group: Group) -> frozenset[int]:
    """Return the members whose behaviour log-probs are unusable; credit drops and counts them later."""
    return frozenset(
        member
        for member, episode in enumerate(group.episodes)
        if not all(np.isfinite(turn.completion.logprobs).all() for turn in episode.turns)
    )
