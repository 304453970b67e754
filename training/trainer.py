"""One training iteration: tasks are tried, judged and learned from. Values go forward; nothing is poked back.

::

    Sampler ─► collect ─► edits ─► credit ─► linearize ─► learner ─► delivery
"""

from collections import Counter
from collections.abc import Callable, Sequence
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

    def rollout(self) -> RolloutSettings:
        """Return the limits as the agents' room takes them."""
        limits = self.model_dump(exclude={"tasks", "group_size"})
        return RolloutSettings(**limits)


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
    def of(cls, data: dict[str, Any]) -> "TrainerState":
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
    rewards: RewardSettings = RewardSettings()
    filters: FilterSettings = FilterSettings()
    rewriting: Counterfactual | None = None
    reward_kl: RewardKL = RewardKL()
    seed: int = 0

    async def iterate(self, state: TrainerState, progress: Progress | None = None) -> Step:
        """Make one iteration.

        Raises:
            Fault: all episodes were lost, or the new weights did not arrive.
            UsageError: every group of every refill was flat while ``filters.drop_flat`` is on.
        """
        groups, gains, edited = await self._collect(state, progress)
        penalties = self._penalties(groups)
        credited, judged = credit(groups, self.crediting, penalties, shaped(groups, self.rewards))
        samples = linearize_all(credited)
        update = self.learner.update(samples)
        arrived = {} if update.skipped else await deliver(self.engine, self.learner, probe_of(samples, self.learner.vocab))
        sampled = sum(episode.sampled for group in groups for episode in group.episodes)
        after = TrainerState(state.step + 1, state.tokens + sampled, gains)
        metrics = {**episode_metrics(groups), **edited, **judged, **update.metrics, **arrived,
                   "loss": update.loss, "grad_norm": update.grad_norm, "version": float(update.version),
                   "skipped": float(update.skipped is not None), "total_tokens": float(after.tokens)}  # fmt: skip
        return Step(after, update, tuple(groups), metrics)

    async def _collect(
        self, state: TrainerState, progress: Progress | None
    ) -> tuple[list[Group], Gains, dict[str, float]]:
        """Fill a step with groups; edits are part of collecting."""
        filling = Filling(self.collecting.tasks, self.filters)
        gains, counts = state.gains, Counter[str]()
        limits = self.collecting.rollout()
        while not filling.finished:
            drawn = self.collecting.tasks * filling.rounds
            tasks = self.sampler.draw(drawn + filling.missing, state.step)[drawn:]
            seed = seed_of("step", self.seed, state.step, filling.rounds)
            groups = await collect(
                tasks, self.engine, self.view, limits, group_size=self.collecting.group_size, seed=seed, progress=progress
            )  # fmt: skip
            if self.rewriting is not None:
                groups, gains, told = await counterfactual(
                    groups, self.engine, self.view, limits, gains, seed=seed, **self.rewriting.model_dump()
                )
                counts.update(told)
            filling = filling.add(groups)
        refilled = {"refills": float(filling.rounds - 1), "dropped_flat": float(filling.flat)} if filling.settings.drop_flat else {}  # fmt: skip
        return list(filling.take()), gains, {**counts, **refilled}

    def _penalties(self, groups: Sequence[Group]) -> PerToken | None:
        """Return the per-decision KL penalties, in the shape of the groups."""
        if self.reward_kl.coefficient == 0:
            return None
        return [self._group_penalties(group) for group in groups]

    def _group_penalties(self, group: Group) -> list[list[np.ndarray]]:
        found = [[np.zeros(len(t.completion.ids)) for t in e.turns] for e in group.episodes]
        samples = linearize(Credited(group, tuple(tuple(np.zeros_like(w) for w in ws) for ws in found)))
        for sample, ratio in zip(samples, self.learner.log_ratios(samples), strict=True):
            values = self.reward_kl.of(ratio)
            turns = group.episodes[sample.member].turns
            for k in np.unique(sample.turns):
                found[sample.member][k][turns[k].tags == Tag.DECISION] = values[sample.turns == k]
        return found


Watch = Callable[[Step], None]
