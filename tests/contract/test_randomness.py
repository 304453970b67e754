"""Randomness is an argument: the global generators are never touched, and nothing hangs on the salted ``hash``."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = ("tools", "envs", "tasks", "agents", "training")

NUMPY_ALLOWED = {"Generator", "PCG64", "SeedSequence", "BitGenerator"}
WATCHES_THEM = {"envs/checks/chance.py"}
"""The conformance check that catches a world's use of the global generators has to look at them."""
TORCH_GLOBAL = {"manual_seed", "seed", "initial_seed", "get_rng_state", "set_rng_state", "use_deterministic_algorithms"}


def dotted(node: ast.AST) -> str:
    """Return ``a.b.c`` of an attribute chain, or nothing."""
    if isinstance(node, ast.Name):
        return node.id
    if isinstance(node, ast.Attribute):
        before = dotted(node.value)
        return f"{before}.{node.attr}" if before else ""
    return ""


def faults(path: str, source: str) -> list[str]:
    """Return the uses of shared random state in one file."""
    found = []
    for node in ast.walk(ast.parse(source)):
        where = f"{path}:{getattr(node, 'lineno', 0)}"
        if isinstance(node, ast.Import) and any(alias.name == "random" for alias in node.names):
            found.append(f"{where} imports random; use peira.envs.seeding.rng(*key)")
        if isinstance(node, ast.ImportFrom) and node.module in ("random", "numpy.random") and node.level == 0:
            found.append(f"{where} imports from {node.module}; use peira.envs.seeding.rng(*key)")
        if isinstance(node, ast.Attribute):
            name = dotted(node).replace("numpy.", "np.", 1)
            if name.startswith("np.random.") and name.split(".")[2] not in NUMPY_ALLOWED:
                found.append(f"{where} uses {name}")
            if name.startswith("torch.") and name.rsplit(".", 1)[1] in TORCH_GLOBAL and "generator" not in name:
                found.append(f"{where} uses {name}; pass an explicit torch.Generator")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "hash":
            found.append(f"{where} uses the salted hash(); use peira.envs.seeding.digest")
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "default_rng":
            found.append(f"{where} builds its own generator; use peira.envs.seeding.rng(*key)")
    return found


def test_no_file_touches_shared_random_state() -> None:
    paths = [str(p.relative_to(ROOT)) for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))]
    assert [f for path in paths if path not in WATCHES_THEM for f in faults(path, (ROOT / path).read_text())] == []


@pytest.mark.parametrize(
    "source",
    [
        "import random",
        "from random import shuffle",
        "from numpy.random import rand",
        "import numpy as np\nnp.random.seed(0)",
        "import numpy\nx = numpy.random.rand(3)",
        "import torch\ntorch.manual_seed(0)",
        "import torch\ntorch.cuda.manual_seed(0)",
        "x = hash('name')",
    ],
)
def test_planted_global_randomness_is_reported(source: str) -> None:
    assert len(faults("envs/x.py", source)) == 1


@pytest.mark.parametrize(
    "source",
    [
        "import torch\ng = torch.Generator().manual_seed(3)",
        "generator.manual_seed(3)",
        "import numpy as np\nx: np.random.Generator",
        "self.np_random.integers(3)",
    ],
)
def test_owned_generators_pass(source: str) -> None:
    assert faults("envs/x.py", source) == []
