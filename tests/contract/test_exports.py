"""The public surface is a decision: a name comes or goes here and in the change log, never by accident."""

import importlib
import inspect
from pathlib import Path

import pytest

import peira

ROOT = Path(__file__).parents[2]

PUBLIC = (
    "Env",
    "Fault",
    "PeiraError",
    "Task",
    "Tool",
    "ToolRefusal",
    "UsageError",
    "WorldSpec",
    "evaluate",
    "make",
    "rollout",
    "train",
)

MODULES = sorted(
    "peira." + ".".join(path.relative_to(ROOT).with_suffix("").parts)
    for room in ("tools", "envs", "tasks", "agents", "training")
    for path in (ROOT / room).rglob("*.py")
    if path.name not in {"__init__.py", "__main__.py"}
)


def test_peira_exports_exactly_its_public_names() -> None:
    assert tuple(peira.__all__) == PUBLIC
    assert set(peira._HOME) == set(PUBLIC)


@pytest.mark.parametrize("name", PUBLIC)
def test_each_public_name_resolves_and_is_documented(name: str) -> None:
    value = getattr(peira, name)
    assert inspect.getdoc(value)
    assert getattr(peira, name) is value


def test_unknown_name_says_what_there_is() -> None:
    with pytest.raises(AttributeError, match="no attribute 'gym'; it offers Env, Fault"):
        _ = peira.gym


@pytest.mark.parametrize("module", MODULES)
def test_every_module_says_what_it_is_and_offers(module: str) -> None:
    if module == "peira.agents.engines.vllm.worker":
        pytest.importorskip("vllm", reason="this module runs inside vLLM, which is not installed")
    loaded = importlib.import_module(module)
    assert (loaded.__doc__ or "").strip(), f"{module} has no docstring"
    for name in getattr(loaded, "__all__", ()):
        assert hasattr(loaded, name), f"{module}.__all__ names {name}, which does not exist"
