"""Collecting episodes: many at once, faults replaced, the same ones whatever the concurrency.

``collect`` is the core of training, evaluation and the server; ``rollout`` is the same for a person at a prompt::

    episodes = peira.rollout("sorting", "oracle", n=4)
    episodes = peira.rollout("sorting", "policies/tiny", n=16, level=3, seed=1)
"""

import asyncio
import threading
import warnings
from collections import deque
from collections.abc import Awaitable, Callable, Coroutine, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar

from peira.agents.actions import ActionTable
from peira.agents.engines.base import Engine
from peira.agents.episode import run_episode
from peira.agents.forking import Fork
from peira.agents.limits import RolloutSettings
from peira.agents.text import ByteText
from peira.agents.types import Episode, FaultRecord, Group
from peira.agents.view import View
from peira.envs.core import Player
from peira.envs.seeding import seed_of
from peira.envs.spec import make
from peira.tasks.task import Task
from peira.tools.errors import Fault, UsageError

if TYPE_CHECKING:
    from peira.agents.policy import Policy

__all__ = [
    "Fork",
    "Progress",
    "RolloutSettings",
    "collect",
    "fork",
    "gather_bounded",
    "rollout",
    "run_episode",
    "run_sync",
    "seated",
]

ResultT = TypeVar("ResultT")
Progress = Callable[[Episode | FaultRecord, int, int], None]
"""Told each finished trial, how many members are done, and how many are wanted."""


async def gather_bounded(work: Sequence[Awaitable[ResultT]], limit: int) -> list[ResultT]:
    """Await all of ``work``, at most ``limit`` at once; results in order.

    The first error (or a cancellation) stops everything that runs, waits until it has stopped, and is raised.
    """
    results: list[Any] = [None] * len(work)
    waiting = deque(enumerate(work))

    async def lane() -> None:
        while waiting:
            index, job = waiting.popleft()
            results[index] = await job
            # An engine that never waits would keep the loop to itself: a cancellation could not come in.
            await asyncio.sleep(0)

    try:
        await _together([lane() for _ in range(min(max(1, limit), len(work)))])
    finally:
        for _, job in waiting:
            if isinstance(job, Coroutine):
                job.close()
    return results


async def _together(lanes: Sequence[Coroutine[Any, Any, None]]) -> None:
    """Run coroutines until all are done or one fails; none is left running, and the first error is raised as it is."""
    tasks = [asyncio.ensure_future(lane) for lane in lanes]
    try:
        if tasks:
            await asyncio.wait(tasks, return_when=asyncio.FIRST_EXCEPTION)
    finally:
        unfinished = [task for task in tasks if not task.done()]
        for task in unfinished:
            task.cancel()
        await asyncio.gather(*unfinished, return_exceptions=True)
    errors = [task.exception() for task in tasks if task.done() and not task.cancelled()]
    for error in errors:
        if error is not None:
            raise error


@dataclass(slots=True)
class _Collection:
    """The jobs of one ``collect`` and what came of them."""

    tasks: Sequence[Task]
    size: int
    seed: int
    retries: int
    progress: Progress | None
    waiting: deque[tuple[int, int, int]] = field(default_factory=deque)
    """(index of the task, member, attempt)"""
    episodes: dict[tuple[int, int], Episode] = field(default_factory=dict)
    faults: list[tuple[int, int, int, FaultRecord]] = field(default_factory=list)
    first_fault: FaultRecord | None = None
    firsts: list[int] = field(default_factory=list)
    """Number of the first member's seed: a task drawn twice is two groups with different members."""

    def __post_init__(self) -> None:
        drawn: dict[str, int] = {}
        for index, task in enumerate(self.tasks):
            times = drawn[task.key] = drawn.get(task.key, 0) + 1
            self.firsts.append((times - 1) * self.size)
            self.waiting.extend((index, member, 0) for member in range(self.size))

    @property
    def wanted(self) -> int:
        return len(self.tasks) * self.size

    def seed_for(self, index: int, member: int, attempt: int) -> int:
        """Return the seed of one trial: by task, member and attempt, never by when it ran."""
        return seed_of("episode", self.seed, self.tasks[index].key, self.firsts[index] + member, attempt)

    def told(self, index: int, member: int, attempt: int, made: Episode | FaultRecord) -> None:
        """Keep what a trial gave; a lost one is played anew while retries last.

        Raises:
            Fault: as many trials were lost as there are members (and as one member may lose), and not one succeeded:
                the machinery is down.
        """
        if isinstance(made, Episode):
            self.episodes[index, member] = made
        else:
            self.first_fault = self.first_fault or made
            self.faults.append((index, member, attempt, made))
            if not self.episodes and len(self.faults) >= max(self.wanted, 1 + self.retries):
                raise self.failure()
            if attempt < self.retries:
                self.waiting.append((index, member, attempt + 1))
        if self.progress is not None:
            self.progress(made, len(self.episodes), self.wanted)

    def failure(self) -> Fault:
        first = self.first_fault
        assert first is not None  # called when there are faults
        return Fault(
            f"all {len(self.faults)} trials failed; the first, of task {first.task.key} ({first.task.world}): "
            f"{first.error}",
            where=first.where,
        )

    def groups(self) -> list[Group]:
        """Return one group per task, members and faults in their own order."""
        faults: list[list[FaultRecord]] = [[] for _ in self.tasks]
        for index, _, _, fault in sorted(self.faults, key=lambda record: record[:3]):
            faults[index].append(fault)
        found = self.episodes
        return [
            Group(task, tuple(found[i, m] for m in range(self.size) if (i, m) in found), tuple(faults[i]))
            for i, task in enumerate(self.tasks)
        ]


async def collect(
    tasks: Sequence[Task],
    engine: Engine | None,
    view: View,
    settings: RolloutSettings,
    *,
    group_size: int,
    seed: int,
    progress: Progress | None = None,
    player: Player | str | None = None,
) -> list[Group]:
    """Play ``group_size`` episodes of each task and return one group per task, in the tasks' order.

    No barrier: an episode starts as soon as one has ended. A trial that machinery broke is replaced up to
    ``settings.retries`` times, so that a group keeps its size; its faults stay in the group, beside the episodes. A
    task given twice makes two groups with different members. The result depends on the arguments alone, not on
    ``settings.concurrency`` or on timing.

    Args:
        tasks: what to play.
        engine: samples; ``None`` when a player decides.
        view: renders and reads.
        settings: limits.
        group_size: episodes per task.
        seed: names the whole collection; give each training step another.
        progress: told each finished trial.
        player: decides instead of the engine (see ``run_episode``).

    Raises:
        UsageError: no tasks, a group size below one, or what ``run_episode`` raises.
        Fault: every trial failed; it names the first error.
    """
    if not tasks or group_size < 1:
        raise UsageError(f"collect needs tasks and a group size of at least 1; got {len(tasks)} and {group_size}")
    if group_size > 1 and settings.temperature == 0 and player is None:
        warnings.warn(
            f"temperature 0 makes the {group_size} members of a group alike; use a temperature above 0", stacklevel=2
        )
    job = _Collection(tasks, group_size, seed, settings.retries, progress)

    async def lane() -> None:
        while job.waiting:
            index, member, attempt = job.waiting.popleft()
            own = job.seed_for(index, member, attempt)
            made = await run_episode(tasks[index], engine, view, settings, seed=own, player=player)
            job.told(index, member, attempt, made)
            # An engine that never waits would keep the loop to itself: a cancellation could not come in.
            await asyncio.sleep(0)

    while job.waiting:  # a lane may end just before another one hands a lost member back
        await _together([lane() for _ in range(min(settings.concurrency, len(job.waiting)))])
    if not job.episodes:
        raise job.failure()
    return job.groups()


async def fork(
    episode: Episode,
    turn: int = 0,
    position: int = 0,
    *,
    engine: Engine | None,
    view: View,
    settings: RolloutSettings,
    force: int | None = None,
    n: int = 1,
    seed: int = 0,
    player: Player | str | None = None,
) -> list[Episode | FaultRecord]:
    """Take an episode up again ``n`` times from one of its places (see ``Fork``): retries, continuations, trees.

    Raises:
        UsageError: no such place, or ``force`` is not legal there.
    """
    place = Fork(episode, turn, position, force)
    forced = -1 if force is None else force
    seeds = [seed_of("fork", seed, episode.seed, turn, position, forced, index) for index in range(n)]
    jobs = [run_episode(episode.task, engine, view, settings, seed=s, player=player, fork=place) for s in seeds]
    return await gather_bounded(jobs, settings.concurrency)


def rollout(
    world: str,
    agent: "str | Path | Policy | tuple[Engine, View] | Player",
    *,
    n: int = 1,
    level: int | None = None,
    split: str = "train",
    seed: int = 0,
    settings: RolloutSettings | None = None,
    progress: Progress | None = None,
    **params: Any,
) -> list[Episode]:
    """Play ``n`` tasks of a world and return their episodes.

    Args:
        world: name of a world.
        agent: a policy folder, an opened ``Policy``, a ``Served`` model, an ``(engine, view)`` pair, the name of a
            player (``random``, ``oracle``, ``human``, or one of the world's), or a function ``(env, rng) -> action``.
        n: number of tasks; task ``i`` of a seed is always the same.
        level: difficulty; ``None``: the world's easiest.
        split: ``train``, ``test``, or another of the world's.
        seed: names tasks and episodes.
        settings: limits.
        progress: told each finished trial.
        params: the world's parameters.

    Raises:
        UsageError: an unknown world, level, split, parameter or agent.
        Fault: every episode was lost.
    """
    if n < 1:
        raise UsageError(f"rollout needs n of at least 1, not {n}")
    engine, view, player = seated(agent, world, params)
    if engine is not None and view.actions is not None:
        params.setdefault("actions", "expanded")
    tasks = [
        Task.of(world, seed_of("rollout", world, split, seed, index), level=level, split=split, **params)
        for index in range(n)
    ]

    async def play() -> list[Group]:
        try:
            return await collect(
                tasks, engine, view, settings or RolloutSettings(), group_size=1, seed=seed, progress=progress,
                player=player,
            )  # fmt: skip
        finally:
            if engine is not None and not isinstance(agent, tuple):
                await engine.close()

    groups = run_sync(play())
    lost = [group.faults[-1] for group in groups if not group.episodes]
    if lost:
        warnings.warn(f"{len(lost)} of {n} episodes were lost; the first: {lost[0].error}", stacklevel=2)
    return [episode for group in groups for episode in group.episodes]


def seated(agent: Any, world: str, params: Mapping[str, Any]) -> tuple[Engine | None, View, Player | str | None]:
    """Return engine, view and player for whatever was given as an agent (see ``rollout``).

    An engine made here from a policy belongs to the caller, who closes it.

    Raises:
        UsageError: nothing that could act.
    """
    if isinstance(agent, tuple):
        engine, view = agent
        return engine, view, None
    if (seat := getattr(agent, "seat", None)) is not None:  # a model behind a server, which is no folder
        engine, view = seat()
        return engine, view, None
    is_folder = isinstance(agent, Path) or (isinstance(agent, str) and Path(agent).is_dir())
    if isinstance(agent, str) and not is_folder and any(sign in agent for sign in "/\\."):
        raise UsageError(f"no policy folder {agent!r}; `peira policy new {agent} --world {world}` makes a small one")
    if not is_folder and (isinstance(agent, str) or callable(agent)):
        with closing(make(world, **params)) as env:
            text, native = ByteText(), env.native()
        table = ActionTable.build(world, native, text.encode, text.vocab) if native else None
        return None, View(text, table), agent
    from peira.agents.policy import Policy

    policy = Policy.load(agent) if is_folder else agent
    if not isinstance(policy, Policy):
        raise UsageError(
            "an agent is a policy folder, a Policy, an (engine, view) pair, a player's name or a function, "
            f"not {type(agent).__name__}"
        )
    from peira.agents.engines.local import LocalEngine

    actions = policy.actions if policy.world == world.removeprefix("peira/") else None
    return LocalEngine(policy.model(), vocab=policy.vocab), View(policy.text, actions), None


def run_sync(work: Coroutine[Any, Any, ResultT]) -> ResultT:
    """Run a coroutine to its end, also where a loop is running already (a notebook): there, in a thread of its own."""
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return asyncio.run(work)
    outcome: list[ResultT] = []
    failure: list[BaseException] = []

    def run() -> None:
        try:
            outcome.append(asyncio.run(work))
        except BaseException as error:  # raised again in the caller's thread
            failure.append(error)

    thread = threading.Thread(target=run, name="peira-rollout")
    thread.start()
    thread.join()
    if failure:
        raise failure[0]
    return outcome[0]
