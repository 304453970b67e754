"""What tests of several rooms share (test folders are not packages, so helpers arrive as fixtures)."""

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from hypothesis import HealthCheck, settings

# A busy machine is no fault: what a test finds must not depend on how long it took.
settings.register_profile("peira", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("peira")


def _load(name: str) -> ModuleType:
    full = f"peira_tests_{name}"
    if full not in sys.modules:
        spec = importlib.util.spec_from_file_location(full, Path(__file__).parent / "support" / f"{name}.py")
        assert spec is not None
        assert spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[full] = module
        spec.loader.exec_module(module)
    return sys.modules[full]


@pytest.fixture(scope="session")
def records() -> ModuleType:
    """Builders of turns, episodes and groups (``tests/support/records.py``)."""
    return _load("records")


@pytest.fixture(scope="session")
def models() -> ModuleType:
    """Builders of small models (``tests/support/models.py``)."""
    pytest.importorskip("torch")
    return _load("models")


@pytest.fixture(scope="session")
def stage() -> ModuleType:
    """A world that does what the test tells it (``tests/support/stage.py``)."""
    return _load("stage")


@pytest.fixture(scope="session")
def templates() -> ModuleType:
    """Small chat templates of well-known shapes, with a tokenizer (``tests/support/templates.py``)."""
    pytest.importorskip("transformers")
    return _load("templates")


@pytest.fixture(scope="session")
def servers() -> ModuleType:
    """A loopback HTTP server that misbehaves on demand (``tests/support/server.py``)."""
    return _load("server")
