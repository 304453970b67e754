"""The conformance kit: does a world keep the contract? ``check("sorting")`` says so, or names what is broken."""

import time
import traceback
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from peira.envs.checks import chance, contract, task
from peira.envs.checks.lab import Bench, Check, Finding
from peira.envs.spec import WorldSpec, find

__all__ = ["CHECKS", "Finding", "Report", "check", "throughput"]

CHECKS: tuple[Check, ...] = (*contract.CHECKS, *chance.CHECKS, *task.CHECKS)
"""All checks, in the order in which they run."""

_MEASURED_S = 0.2


@dataclass(frozen=True, slots=True)
class Report:
    """What the kit found."""

    world: str
    params: dict[str, Any]
    passed: tuple[str, ...]
    skipped: tuple[str, ...]
    """Checks that need something the world declares to lack."""
    findings: tuple[Finding, ...]
    steps_per_second: float
    """Steps per second of CPU time with guards on, resets not counted; 0 when the world could not be played."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        return {**asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        lines = [f"{self.world} {self.params or ''}".rstrip()]
        lines += [f"  passed   {name}" for name in self.passed]
        lines += [f"  skipped  {name} (the world declares that it lacks what this needs)" for name in self.skipped]
        lines += [f"  FAILED   {str(finding).replace(chr(10), chr(10) + '  ')}" for finding in self.findings]
        lines.append(f"  {self.steps_per_second:,.0f} steps per CPU second")
        return "\n".join(lines)


def check(world: str | WorldSpec, *, progress: Callable[[str], None] | None = None, **params: Any) -> Report:
    """Run every check on a world.

    Args:
        world: a world's name, ``module:ATTRIBUTE``, or a spec.
        progress: called with the name of each check as it begins.
        params: the world's parameters.

    Raises:
        UsageError: an unknown world or parameter. Whatever the world itself raises is a finding.
    """
    spec = find(world) if isinstance(world, str) else world
    spec.open(**params)
    bench = Bench(spec, params)
    passed, skipped, findings = [], [], []
    for one in CHECKS:
        if not all(bench.can(ability) for ability in one.needs):
            skipped.append(one.name)
            continue
        if progress is not None:
            progress(one.name)
        found = _run(one, bench)
        findings += found
        if not found:
            passed.append(one.name)
    return Report(spec.id, params, tuple(passed), tuple(skipped), tuple(findings), _speed(bench))


def _run(one: Check, bench: Bench) -> list[Finding]:
    try:
        return list(one.run(bench))
    except Exception as error:  # the boundary to the world under test: whatever it raises is what was found
        frames = traceback.extract_tb(error.__traceback__)
        where = f"{frames[-1].filename}:{frames[-1].lineno}" if frames else "?"
        cause = f"the world raised {type(error).__name__}: {error} ({where})"
        return [Finding(one.name, cause, f"a world that keeps its contract does not raise here: {one.promise}")]


def throughput(world: str | WorldSpec, *, seconds: float = 1.0, **params: Any) -> float:
    """Measure a world's steps per second of CPU time, guards on.

    The actions are recorded first, half of them the oracle's; choosing them and resetting are not counted. The best of
    many short rounds is returned: the one that the machine's other work disturbed least.

    Raises:
        UsageError: an unknown world or parameter. What the world raises comes through.
    """
    spec = find(world) if isinstance(world, str) else world
    bench = Bench(spec, params)
    episodes = [_recorded(bench, seed, level) for seed, level in bench.starts(range(3))]
    env = bench.open(guards=True)
    best, begun = 0.0, time.process_time()
    while not best or time.process_time() - begun < seconds:
        steps, spent = 0, 0.0
        for seed, level, actions in episodes:
            bench.reset(env, seed, level)
            since = time.process_time()
            for action in actions:
                env.step(action)
            spent += time.process_time() - since
            steps += len(actions)
        best = max(best, steps / max(spent, 1e-9))
    return best


def _speed(bench: Bench) -> float:
    try:
        return throughput(bench.spec, seconds=_MEASURED_S, **bench.params)
    except Exception:  # the boundary to the world under test; its faults are findings already
        return 0.0


def _recorded(bench: Bench, seed: int, level: int) -> tuple[int, int, list[str]]:
    rows = bench.episode(bench.open(), seed, level)
    return seed, level, [str(row.action) for row in rows[1:]]
