"""Fixed lists of tasks for evaluation: the same instances on every machine and at every evaluation of a run."""

from collections.abc import Callable, Iterator, Mapping
from itertools import islice
from typing import Any

from peira.envs.core import Env
from peira.envs.seeding import seed_of
from peira.envs.sorting import Sorting
from peira.envs.spec import make
from peira.tasks.task import Task
from peira.tools.errors import UsageError, unknown

__all__ = ["NAMED", "census", "named", "sort4", "suite"]

_PATIENCE = 2_000
"""Candidates in a row that bring nothing new before a list counts as complete."""


def suite(
    world: str,
    params: Mapping[str, Any] | None = None,
    split: str = "test",
    level: int | None = None,
    n: int | None = 100,
) -> tuple[Task, ...]:
    """Return ``n`` tasks with ``n`` different instances; a longer list begins with a shorter one.

    ``None`` asks for as many as there are, 100 at the most.

    Raises:
        UsageError: unknown world, parameter, split or level, or fewer different instances than asked for.
    """
    env = make(world, **(params or {}))
    tasks = tuple(islice(_distinct(world, env, split, level, env.fingerprint), 100 if n is None else n))
    if len(tasks) < (1 if n is None else n):
        raise UsageError(
            f"split {split!r} of world {world!r} has only {len(tasks)} different instances at level {level} with "
            f"{dict(env.params)}; ask for at most {len(tasks)}, or choose another level"
        )
    return tasks


def census(
    world: str,
    kind: Callable[[Any], str],
    size: int,
    params: Mapping[str, Any] | None = None,
    split: str = "test",
    level: int | None = None,
) -> tuple[Task, ...]:
    """Return one task for each kind of instance there is, sorted by kind.

    Args:
        world: a world's name.
        kind: names what an instance is a case of.
        size: number of kinds there must be.
        params: the world's parameters.
        split: the split that the instances come from.
        level: their level.

    Raises:
        UsageError: the split does not hold ``size`` kinds.
    """
    env = make(world, **(params or {}))
    tasks = list(islice(_distinct(world, env, split, level, kind), size))
    if len(tasks) < size:
        raise UsageError(f"split {split!r} of world {world!r} holds {len(tasks)} kinds of instances, not {size}")
    return tuple(sorted(tasks, key=lambda task: kind(env.generate(task.seed, task.level, task.split))))


def sort4(**params: Any) -> tuple[Task, ...]:
    """Every permutation of four items in each direction that ``params`` allow, each as a held-out instance.

    48 tasks with ``direction="both"``, else 24.
    """
    directions = 2 if params.get("direction", "both") == "both" else 1
    return census("sorting", Sorting.pattern, 24 * directions, {**params, "task": "sort"}, level=4)


NAMED: Mapping[str, Callable[..., tuple[Task, ...]]] = {"sort4": sort4}
"""Suites that have a name; each takes the parameters of its world."""


def named(name: str, **params: Any) -> tuple[Task, ...]:
    """Return the tasks of a named suite.

    Raises:
        UsageError: no such suite.
    """
    if name not in NAMED:
        raise unknown("suite", name, NAMED)
    return NAMED[name](**params)


def _distinct(world: str, env: Env[Any], split: str, level: int | None, kind: Callable[[Any], str]) -> Iterator[Task]:
    """Yield tasks of a fixed sequence of seeds, each of a kind that has not been before, until none turns up."""
    seen: set[str] = set()
    index = barren = 0
    while barren < _PATIENCE:
        task = Task.of(world, seed_of("suite", split, index), level=level, split=split, **env.params)
        found = kind(env.generate(task.seed, level, split))
        index, barren = index + 1, barren + 1
        if found not in seen:
            seen.add(found)
            barren = 0
            yield task
