"""The contract of engines, tried: ``check_engine(subject)`` runs every check and names what is broken.

One suite for all engines: whatever computes tokens must return the ids it sampled with the log-probs that the learner
would give them, obey seeds, stop ids, limits and legal sets, forget its caches with its weights, and end what is
cancelled. A ``Subject`` brings the engine, what it cannot do, and the truth to compare with.
"""

import asyncio
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass
from typing import Any

from peira.agents.engine_check import answers, life
from peira.agents.engine_check.bench import Bench, EngineCheck, Reference, Subject
from peira.agents.engine_check.table import TableEngine, TableModel, table_subject
from peira.agents.rollout import run_sync
from peira.envs.checks.lab import Finding
from peira.tools.errors import Fault, PeiraError

__all__ = [
    "ENGINE_CHECKS",
    "Bench",
    "EngineCheck",
    "EngineReport",
    "Reference",
    "Subject",
    "TableEngine",
    "TableModel",
    "check_engine",
    "table_subject",
]

ENGINE_CHECKS: tuple[EngineCheck, ...] = (*answers.CHECKS, *life.CHECKS)
"""All checks, in the order in which they run; the last one closes the engine."""


@dataclass(frozen=True, slots=True)
class EngineReport:
    """What was found about an engine."""

    engine: str
    passed: tuple[str, ...]
    skipped: Mapping[str, str]
    """Checks that need what the engine declares to lack, and what that is."""
    findings: tuple[Finding, ...]
    figures: Mapping[str, float]
    """What was measured: largest differences of log-probs by check and temperature."""

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        return {**asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        lines = [self.engine]
        lines += [f"  passed   {name}" for name in self.passed]
        lines += [f"  skipped  {name} (the engine has no {lack})" for name, lack in self.skipped.items()]
        lines += [f"  FAILED   {str(finding).replace(chr(10), chr(10) + '  ')}" for finding in self.findings]
        lines += [f"  {name}: {value:.2g}" for name, value in self.figures.items()]
        return "\n".join(lines)


def check_engine(subject: Subject, *, progress: Callable[[str], None] | None = None) -> EngineReport:
    """Run every check on an engine.

    Args:
        subject: the engine, and the truth about its weights.
        progress: called with the name of each check as it begins.

    Raises:
        UsageError: the engine cannot be opened. Whatever it does afterwards is a finding.
    """
    return run_sync(_check(subject, progress))


async def _check(subject: Subject, progress: Callable[[str], None] | None) -> EngineReport:
    engine = await subject.opened()
    bench = Bench(subject, engine)
    passed: list[str] = []
    skipped: dict[str, str] = {}
    findings: list[Finding] = []
    try:
        for check in ENGINE_CHECKS:
            lack = next((need for need in check.needs if need in subject.lacks), None)
            if lack is not None:
                skipped[check.name] = lack
                continue
            if progress is not None:
                progress(check.name)
            found = await _run(check, bench)
            findings += found
            if not found:
                passed.append(check.name)
    finally:
        try:
            async with asyncio.timeout(subject.seconds):
                await engine.close()
        except (TimeoutError, PeiraError):
            pass  # what closing does wrong is the last check's to say
    return EngineReport(subject.name, tuple(passed), skipped, tuple(findings), dict(bench.figures))


async def _run(check: EngineCheck, bench: Bench) -> list[Finding]:
    try:
        async with asyncio.timeout(bench.subject.seconds):
            causes = [cause async for cause in check.run(bench)]
    except TimeoutError:
        causes = [f"no answer in time (a check may take {bench.subject.seconds:g} s)"]
    except Fault as fault:
        causes = [f"the engine failed ({fault.where}): {fault}"]
    except Exception as error:  # the boundary to the engine under test: whatever it raises is what was found
        causes = [f"{type(error).__name__}: {error}"]
    return [Finding(check.name, cause, check.remedy) for cause in dict.fromkeys(causes)]
