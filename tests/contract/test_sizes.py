"""A file can be read top to bottom, a function can be seen at once."""

import ast
from pathlib import Path

ROOT = Path(__file__).parents[2]
ROOMS = ("tools", "envs", "tasks", "agents", "training")
FILE, FUNCTION = 400, 80


def faults(path: str, source: str) -> list[str]:
    """Return what is too long in one file."""
    lines = source.count("\n") + 1
    found = [f"{path} has {lines} lines; split it by purpose (at most {FILE})"] if lines > FILE else []
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            length = (node.end_lineno or node.lineno) - node.lineno + 1
            if length > FUNCTION:
                found.append(f"{path}:{node.lineno} {node.name} has {length} lines (at most {FUNCTION})")
    return found


def test_files_and_functions_stay_short() -> None:
    paths = [p for room in ROOMS for p in sorted((ROOT / room).rglob("*.py"))]
    assert [f for p in paths for f in faults(str(p.relative_to(ROOT)), p.read_text())] == []


def test_planted_lengths_are_reported() -> None:
    assert faults("a.py", "x = 1\n" * FILE) == ["a.py has 401 lines; split it by purpose (at most 400)"]
    body = "def f():\n" + "    x = 1\n" * FUNCTION
    assert faults("a.py", body) == ["a.py:1 f has 81 lines (at most 80)"]
    assert faults("a.py", "def f():\n" + "    x = 1\n" * (FUNCTION - 1)) == []
