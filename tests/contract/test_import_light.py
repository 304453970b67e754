"""``import peira`` is quick and pulls nothing heavy, and so does all that stands below the learner."""

import json
import subprocess
import sys

import pytest

HEAVY = ("torch", "transformers", "tokenizers", "vllm", "docker", "ray", "matplotlib")
CONTRACT = ("gymnasium", "pydantic", "rich", "numpy")
"""Light enough for a world, but not for the bare package."""

PROBE = """
import json, sys, time
before = time.process_time()
{statement}
spent = time.process_time() - before
print(json.dumps({{"seconds": spent, "modules": sorted(sys.modules)}}))
"""


def probe(statement: str) -> tuple[float, set[str]]:
    """Return (CPU seconds, modules loaded) of a statement in a fresh interpreter."""
    run = subprocess.run(
        [sys.executable, "-c", PROBE.format(statement=statement)], capture_output=True, text=True, check=True
    )
    report = json.loads(run.stdout)
    return report["seconds"], set(report["modules"])


def heavy_in(modules: set[str], names: tuple[str, ...]) -> list[str]:
    return [name for name in names if name in modules]


def test_importing_peira_is_quick_and_light() -> None:
    """The one time bound outside tests/bench; CPU time, so that a busy machine is not a fault."""
    seconds, modules = probe("import peira")
    assert heavy_in(modules, HEAVY + CONTRACT) == []
    assert seconds < 0.3


@pytest.mark.parametrize(
    "statement",
    [
        "import peira; peira.make, peira.Env, peira.WorldSpec, peira.Tool, peira.Task, peira.UsageError, peira.rollout",
        "import peira.agents.types, peira.agents.view, peira.agents.rollout, peira.agents.engines.scripted",
        "import peira.training.cli, peira.training.evaluate, peira.training.report",
    ],
)
def test_light_parts_load_nothing_heavy(statement: str) -> None:
    assert heavy_in(probe(statement)[1], HEAVY) == []


def test_planted_heavy_import_is_reported() -> None:
    assert heavy_in(probe("import matplotlib")[1], HEAVY) == ["matplotlib"]
