"""Evaluation: how good an agent is on a fixed list of held-out tasks, beside the world's own players.

Success is what the world said, never inferred from the score. Nothing that an agent learns from is written: no store,
no weight, no statistic of the sampler changes by being measured.
"""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from peira.agents.engines.base import Engine
from peira.agents.rollout import Progress, RolloutSettings, collect, run_sync, seated
from peira.agents.types import Episode, Group
from peira.agents.view import View
from peira.envs.core import Player
from peira.envs.seeding import digest
from peira.envs.spec import find
from peira.tasks.suites import named, suite
from peira.tasks.task import Task
from peira.tools.errors import UsageError
from peira.training.confidence import Estimate, json_of, mean, share
from peira.training.measures import verbs_of

if TYPE_CHECKING:
    from rich.table import Table

__all__ = ["Evaluation", "Score", "evaluate", "measure", "tasks_of"]


@dataclass(frozen=True, slots=True)
class Score:
    """What one agent did."""

    agent: str
    trials: int
    """Judged episodes."""
    lost: int
    """Trials that machinery broke for good; they are in no number below."""
    success: Estimate
    """Share of episodes the world calls solved."""
    score: Estimate
    """Sum of an episode's rewards."""
    turns: Estimate
    sampled: Estimate
    """Ids sampled in an episode; for a player, what it would have taken to write its actions."""
    ends: Mapping[str, int]
    """Episodes by the reason they ended."""
    actions: Mapping[str, Estimate]
    """Uses per episode of each verb of the world: ``compare``, ``swap``."""

    def metrics(self) -> dict[str, float]:
        """Return the means as flat metrics, with the interval of success."""
        return {
            "success": self.success.mean,
            "success_low": self.success.low,
            "success_high": self.success.high,
            "score": self.score.mean,
            "turns": self.turns.mean,
            "sampled": self.sampled.mean,
            "lost": float(self.lost),
            **{f"end/{end}": n / self.trials for end, n in self.ends.items()},
            **{f"actions/{verb}": uses.mean for verb, uses in self.actions.items()},
        }

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "agent": self.agent,
            "trials": self.trials,
            "lost": self.lost,
            **{name: getattr(self, name).json() for name in ("success", "score", "turns", "sampled")},
            "ends": dict(self.ends),
            "actions": json_of(self.actions),
        }


@dataclass(frozen=True, slots=True)
class Evaluation:
    """Agents side by side on the same tasks."""

    world: str
    params: Mapping[str, Any]
    tasks: tuple[str, ...]
    """Keys of the tasks, in order."""
    seeds: int
    temperature: float
    scores: tuple[Score, ...]

    def __getitem__(self, agent: str) -> Score:
        """Return one agent's score."""
        return next(score for score in self.scores if score.agent == agent)

    @property
    def fingerprint(self) -> str:
        """Hash of the task list: evaluations with equal ones are comparable."""
        return digest(list(self.tasks))

    def json(self) -> dict[str, Any]:
        """Return plain data."""
        return {
            "world": self.world,
            "params": dict(self.params),
            "tasks": len(self.tasks),
            "fingerprint": self.fingerprint,
            "seeds": self.seeds,
            "temperature": self.temperature,
            "agents": [score.json() for score in self.scores],
        }

    def table(self) -> "Table":
        """Return a table for a terminal; brackets hold 95 % confidence intervals."""
        from rich.table import Table

        verbs = sorted({verb for score in self.scores for verb in score.actions})
        made = Table(title=f"{self.world}: {len(self.tasks)} tasks x {self.seeds} ({self.fingerprint})")
        made.add_column("agent")
        for name in ("success", "score", "turns", *verbs):
            made.add_column(name, justify="right")
        made.add_column("ends")
        for score in self.scores:
            counts = [f"{score.actions[verb]:.2f}" if verb in score.actions else "0" for verb in verbs]
            ends = ", ".join(f"{end} {n}" for end, n in sorted(score.ends.items()))
            lost = f", lost {score.lost}" if score.lost else ""
            made.add_row(
                score.agent,
                f"{score.success:.3f}",
                f"{score.score:.3f}",
                f"{score.turns.mean:.1f}",
                *counts,
                f"{ends}{lost}",
            )
        return made


def tasks_of(
    world: str,
    *,
    params: Mapping[str, Any] | None = None,
    suite_name: str | None = None,
    split: str = "test",
    level: int | None = None,
    n: int | None = None,
) -> tuple[Task, ...]:
    """Return the tasks of an evaluation: a named suite, or ``n`` different instances of a split (see ``suite``).

    Raises:
        UsageError: unknown names, or fewer instances than asked for.
    """
    if suite_name is not None:
        return named(suite_name, **dict(params or {}))
    return suite(world, params, split=split, level=level, n=n)


async def measure(
    tasks: Sequence[Task],
    engine: Engine | None,
    view: View,
    settings: RolloutSettings,
    *,
    agent: str,
    seeds: int = 1,
    seed: int = 0,
    player: Player | str | None = None,
    progress: Progress | None = None,
) -> Score:
    """Measure one agent: every task ``seeds`` times.

    Raises:
        UsageError, Fault: as ``collect``.
    """
    if seeds < 1:
        raise UsageError(f"an evaluation needs at least one try per task, not {seeds}")
    groups = await collect(tasks, engine, view, settings, group_size=seeds, seed=seed, progress=progress, player=player)
    return score_of(agent, groups, wanted=len(tasks) * seeds)


def score_of(agent: str, groups: Sequence[Group], *, wanted: int | None = None) -> Score:
    """Sum up judged episodes; ``wanted`` is how many there should have been."""
    episodes = [episode for group in groups for episode in group.episodes]
    if not episodes:
        raise UsageError(f"there is no episode of {agent!r} to sum up")

    def per_task(value: "Measure") -> list[NDArray[np.float64]]:
        return [np.array([value(e) for e in group.episodes], dtype=np.float64) for group in groups if group.episodes]

    def uses_of(verb: str) -> "Measure":
        return lambda episode: float(uses[id(episode)][verb])

    uses = {id(episode): Counter(verbs_of(episode)) for episode in episodes}
    verbs = sorted({verb for count in uses.values() for verb in count})
    return Score(
        agent=agent,
        trials=len(episodes),
        lost=0 if wanted is None else wanted - len(episodes),
        success=share(per_task(lambda e: float(e.success))),
        score=mean(per_task(lambda e: e.score), "score"),
        turns=mean(per_task(lambda e: float(len(e.turns))), "turns"),
        sampled=mean(per_task(lambda e: float(e.sampled)), "sampled"),
        ends=dict(sorted(Counter(str(e.end) for e in episodes).items())),
        actions={verb: mean(per_task(uses_of(verb)), "actions", verb) for verb in verbs},
    )


def evaluate(
    world: str,
    agents: "Agents",
    *,
    beside: Sequence[str] = ("oracle", "random"),
    suite_name: str | None = None,
    split: str = "test",
    level: int | None = None,
    n: int | None = None,
    seeds: int = 1,
    seed: int = 0,
    temperature: float = 1.0,
    settings: RolloutSettings | None = None,
    progress: Progress | None = None,
    **params: Any,
) -> Evaluation:
    """Measure agents on the same held-out tasks.

    Args:
        world: a world's name.
        agents: a policy folder, a player's name, a function, an ``(engine, view)`` pair; or a mapping of names to them.
        beside: players to measure on the same tasks; those that the world cannot have are left out.
        suite_name: a named list of tasks; else ``n`` tasks of ``split`` at ``level``.
        split: which part of the instances.
        level: their difficulty; left out, the easiest.
        n: how many; left out, as many as there are, 100 at the most.
        seeds: tries per task; a greedy policy (temperature 0) is tried once.
        seed: names the tries; the tasks do not depend on it.
        temperature: of policies; 0 is greedy.
        settings: further limits.
        progress: told each finished trial.
        params: the world's parameters; a policy with native actions for this world plays its expanded format.

    Raises:
        UsageError: unknown names or too few instances.
        Fault: every episode of an agent was lost.
    """
    seats = dict(agents) if isinstance(agents, Mapping) else {label(agents): agents}
    lacks = find(world).lacks
    seats |= {name: name for name in beside if name not in seats and name not in lacks}
    opened = {name: seated(agent, world, params) for name, agent in seats.items()}
    if any(engine is not None and view.actions is not None for engine, view, _ in opened.values()):
        params.setdefault("actions", "expanded")
        opened = {n: s if s[0] is not None else seated(seats[n], world, params) for n, s in opened.items()}
    tasks = tasks_of(world, params=params, suite_name=suite_name, split=split, level=level, n=n)
    limits = replace(settings or RolloutSettings(), temperature=temperature)

    async def run() -> tuple[Score, ...]:
        scores = []
        for name, (engine, view, player) in opened.items():
            tries = 1 if engine is not None and temperature == 0 else seeds
            job = measure(
                tasks, engine, view, limits, agent=name, seeds=tries, seed=seed, player=player, progress=progress
            )
            try:
                scores.append(await job)
            finally:
                if engine is not None and not isinstance(seats[name], tuple):
                    await engine.close()
        return tuple(scores)

    return Evaluation(
        world=find(world).id,
        params=params,
        tasks=tuple(task.key for task in tasks),
        seeds=seeds,
        temperature=temperature,
        scores=run_sync(run()),
    )


def label(agent: Any) -> str:
    """Return the name under which an agent without one stands in a table."""
    if isinstance(agent, str | Path):
        return Path(agent).name
    path = getattr(agent, "path", None)
    return Path(path).name if path else getattr(agent, "__name__", "agent")


if TYPE_CHECKING:
    from collections.abc import Callable

    from peira.agents.policy import Policy

    Agent = str | Path | Policy | tuple[Engine, View] | Player
    Agents = Agent | Mapping[str, Agent]
    Measure = Callable[[Episode], float]
