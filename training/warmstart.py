"""Warm start: a policy learns to write what a demonstrator does, by likelihood, before it learns by trial."""

import asyncio
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from pydantic import Field

from peira.agents.policy import Policy
from peira.agents.policy.save import save_policy
from peira.agents.rollout import RolloutSettings, collect
from peira.agents.types import Episode
from peira.agents.view import View
from peira.envs.seeding import rng
from peira.tasks.sampler import Sampler
from peira.tools.errors import UsageError
from peira.training.control import Linear, Warmup
from peira.training.learner import Learner, LearnerSettings
from peira.training.linearize import demonstration_samples
from peira.training.settings import Settings
from peira.training.terms import Aggregate, Likelihood

__all__ = ["WarmStart", "demonstrations", "fit", "warm_start"]


class WarmStart(Settings):
    """What is shown, and how it is learnt."""

    player: str = "oracle"
    """The demonstrator: a player of the world. A wasteful one (``naive``) leaves something to find out by trial."""
    episodes: int = Field(default=512, ge=1)
    """Different tasks that are demonstrated."""
    passes: int = Field(default=4, ge=1)
    """Times each episode is learnt from."""
    batch: int = Field(default=32, ge=1)
    """Episodes per update."""
    lr: float = Field(default=2e-3, gt=0)
    """Reached after at most 20 updates; it then falls in a straight line to a tenth."""
    levels: dict[int, float] = Field(default_factory=dict)
    """Weight of each level; empty: all alike."""
    seed: int = Field(default=0, ge=0)


Told = Callable[[int, int, Mapping[str, float]], None]
"""Told updates done, updates wanted, and the metrics of the last one."""


def demonstrations(policy: Policy, world: str, params: Mapping[str, Any], settings: WarmStart) -> list[Episode]:
    """Play a demonstrator's episodes, written as the policy would write them.

    Raises:
        UsageError: an unknown world, level or player.
        Fault: every episode was lost.
    """
    view = View(policy.text, policy.actions if policy.world == world else None)
    tasks = Sampler(world, params, levels=settings.levels, seed=settings.seed).draw(settings.episodes, 0)
    groups = asyncio.run(
        collect(tasks, None, view, RolloutSettings(), group_size=1, seed=settings.seed, player=settings.player)
    )
    return [episode for group in groups for episode in group.episodes]


def fit(learner: Learner, episodes: list[Episode], settings: WarmStart, told: Told | None = None) -> None:
    """Learn from demonstrations: ``passes`` times through them in another order each time.

    Raises:
        UsageError: an update that changed nothing, or a batch without a single demonstrated id.
    """
    batches = [range(at, min(at + settings.batch, len(episodes))) for at in range(0, len(episodes), settings.batch)]
    for done in range(settings.passes):
        order = rng("warm start", settings.seed, done).permutation(len(episodes))
        for number, batch in enumerate(batches, 1):
            update = learner.likelihood_update(demonstration_samples([episodes[order[i]] for i in batch]))
            if update.skipped:
                raise UsageError(f"the warm start cannot learn from these demonstrations: {update.skipped}")
            if told is not None:
                told(done * len(batches) + number, settings.passes * len(batches), update.metrics)


def warm_start(
    path: str | Path,
    world: str,
    params: Mapping[str, Any] | None = None,
    settings: WarmStart | None = None,
    *,
    out: str | Path | None = None,
    told: Told | None = None,
) -> Policy:
    """Teach a policy folder by demonstration and write it to ``out`` (by default in its own place).

    Raises:
        UsageError: a missing folder, an unknown world or player, or a place that cannot be written.
    """
    settings, policy = settings or WarmStart(), Policy.load(path)
    params = {**({"actions": "expanded"} if policy.world == world else {}), **(params or {})}
    episodes = demonstrations(policy, world, params, settings)
    model = policy.model()
    updates = settings.passes * math.ceil(len(episodes) / settings.batch)
    falling = Linear(start=settings.lr, end=settings.lr / 10, steps=updates)
    terms = LearnerSettings(
        lr=Warmup(steps=min(20, updates), then=falling),
        betas=(0.9, 0.95),
        policy=None,
        likelihood=Likelihood(),
        aggregate=Aggregate(mode="tok"),
        tokens=4096,
    )
    fit(Learner(model, None, terms, policy.vocab, settings.seed), episodes, settings, told)
    return save_policy(policy, model, out or path, overwrite=out is None)
