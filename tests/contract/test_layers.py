"""Who may import whom: ``training > agents > tasks > envs > tools``, each only what stands to its right."""

import ast
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ORDER = ("tools", "envs", "tasks", "agents", "training")
"""Ground floor first."""
HEAVY = {"torch", "transformers", "tokenizers", "safetensors", "vllm", "docker", "ray", "matplotlib"}
LOCAL_ENGINE = ("local", "rows", "sampling", "scoring", "slots", "weights")
INSIDE_VLLM = ("compare", "worker")
"""Only ever imported by vLLM itself."""
MAY_LOAD_HEAVY = {
    *(f"agents/engines/{part}.py" for part in LOCAL_ENGINE),
    *(f"agents/engines/vllm/{part}.py" for part in INSIDE_VLLM),
    "agents/policy",
    "training",
}
"""Where a module may import one of them at its top level; elsewhere inside the function that needs it."""


def imports(tree: ast.AST) -> Iterator[tuple[ast.stmt, str, int]]:
    """Yield (statement, module, level) of each import."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node, alias.name, 0) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            if node.module in (None, "peira"):
                yield from ((node, f"{node.module or ''}.{alias.name}".lstrip("."), node.level) for alias in node.names)
            else:
                yield node, node.module or "", node.level


def module_level(tree: ast.Module) -> set[ast.stmt]:
    """Return the statements that run when the module is imported (not under ``TYPE_CHECKING``)."""
    found: set[ast.stmt] = set()
    pending: list[ast.AST] = [tree]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            continue
        if isinstance(node, ast.If) and "TYPE_CHECKING" in ast.dump(node.test):
            pending.extend(node.orelse)
            continue
        if isinstance(node, ast.stmt):
            found.add(node)
        pending.extend(ast.iter_child_nodes(node))
    return found


def faults(path: str, source: str) -> list[str]:
    """Return the forbidden imports of one file; ``path`` is relative to the root and starts with its room."""
    room = path.split("/")[0]
    tree = ast.parse(source)
    top, found = module_level(tree), []
    for node, module, level in imports(tree):
        parts = module.split(".")
        where = f"{path}:{node.lineno}"
        if level >= 2 or (level == 1 and parts[0] in ORDER):
            found.append(f"{where} relative import across rooms; say from peira.<room> import ...")
        if level == 0 and parts[0] in {*ORDER, "tests"}:
            found.append(f"{where} bare import of {parts[0]!r}; say peira.{parts[0]}")
        of_ours = parts[0] == "peira" and len(parts) > 1 and parts[1] in ORDER
        if of_ours and ORDER.index(parts[1]) > ORDER.index(room):
            found.append(f"{where} {room} imports upwards from {parts[1]}")
        heavy_here = any(path == allowed or path.startswith(allowed + "/") for allowed in MAY_LOAD_HEAVY)
        if level == 0 and parts[0] in HEAVY and node in top and not heavy_here:
            found.append(f"{where} imports {parts[0]} at module level")
    return found


def files() -> list[str]:
    return sorted(str(p.relative_to(ROOT)) for room in ORDER for p in (ROOT / room).rglob("*.py"))


def test_no_room_imports_upwards() -> None:
    assert len(files()) > 20
    assert [fault for path in files() for fault in faults(path, (ROOT / path).read_text())] == []


@pytest.mark.parametrize(
    ("path", "source", "report"),
    [
        ("envs/sorting.py", "from peira.agents.types import Turn", "envs imports upwards from agents"),
        ("tools/tool.py", "import peira.envs.core", "tools imports upwards from envs"),
        ("agents/x.py", "from peira import training", "agents imports upwards from training"),
        ("agents/x.py", "def f():\n    from peira.training import types", "agents imports upwards from training"),
        ("training/x.py", "from envs import core", "bare import of 'envs'"),
        ("training/x.py", "import tests.helpers", "bare import of 'tests'"),
        ("agents/engines/x.py", "from ...envs import core", "relative import across rooms"),
        ("agents/types.py", "import torch", "imports torch at module level"),
        ("envs/web.py", "try:\n    import docker\nexcept ImportError:\n    pass", "imports docker at module level"),
    ],
)
def test_planted_import_is_reported(path: str, source: str, report: str) -> None:
    found = faults(path, source)
    assert len(found) == 1
    assert report in found[0]


@pytest.mark.parametrize(
    ("path", "source"),
    [
        ("training/x.py", "import torch\nfrom peira.agents.types import Turn\nfrom peira.tools.errors import Fault"),
        ("agents/engines/local.py", "import torch"),
        ("agents/view.py", "def f():\n    import torch"),
        ("agents/view.py", "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import torch"),
    ],
)
def test_right_imports_pass(path: str, source: str) -> None:
    assert faults(path, source) == []
