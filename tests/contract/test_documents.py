"""What the documents say is so: blocks run, links lead somewhere, pages are in step with the code."""

import ast
import re
import tomllib
from pathlib import Path

import pytest

import peira
from peira.envs.check import check
from peira.training.cli import COMMANDS
from peira.training.pages import PAGES

ROOT = Path(__file__).parents[2]
README = (ROOT / "README.md").read_text(encoding="utf-8")
BLOCKS = re.findall(r"```python\n(.*?)```", README, re.DOTALL)
DOCUMENTS = [ROOT / name for name in ("README.md", "CHANGELOG.md", "CONTRIBUTING.md")] + sorted(ROOT.glob("docs/*.md"))


def broken_links(document: Path, text: str) -> list[str]:
    """Return the relative links of a document that lead nowhere."""
    targets = re.findall(r"\]\(([^)#\s]+)[^)]*\)", text)
    return [t for t in targets if "://" not in t and not (document.parent / t).exists()]


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_links_lead_somewhere(document):
    assert broken_links(document, document.read_text(encoding="utf-8")) == []


def test_planted_broken_link_is_reported():
    assert broken_links(ROOT / "README.md", "[a](LICENSE) [b](nowhere.md#x) [c](https://a.b)") == ["nowhere.md"]


def test_there_are_three_snippets_of_at_most_fifteen_lines():
    assert len(BLOCKS) == 3
    assert [len(block.splitlines()) for block in BLOCKS if len(block.splitlines()) > 15] == []


@pytest.mark.parametrize("block", range(len(BLOCKS)))
def test_p117_every_readme_block_runs_on_its_own(block, tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    names: dict[str, object] = {"__name__": "readme"}
    exec(compile(BLOCKS[block], f"README.md block {block + 1}", "exec"), names)
    if "WORLD" in names:
        env = names["WORLD"].open()
        env.reset(seed=3)
        assert env.step(env.oracle()[0])[4]["success"] is True
        # A world in a document has no module that another interpreter could import; all else must hold.
        assert {finding.check for finding in check(names["WORLD"]).findings} == {"second process"}
    else:
        assert capsys.readouterr().out


def test_the_readme_names_licence_picture_and_both_commands():
    assert "Apache License 2.0" in README
    assert "Apache License" in (ROOT / "LICENSE").read_text()
    for needed in ("make quickstart", "make test", "docs/img/quickstart.png"):
        assert needed in README


def test_the_readmes_make_targets_exist():
    targets = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))
    named = set(re.findall(r"^\$ make ([a-z-]+)", README, re.MULTILINE)) | {
        "test-slow",
        "bench",
        "lint",
        "types",
        "docs",
    }
    assert named <= targets


def test_the_gate_is_the_readmes_test_command():
    script = (ROOT / ".ci" / "run").read_text()
    assert "make test" in script
    assert (ROOT / ".ci" / "run").stat().st_mode & 0o111


@pytest.mark.parametrize("document", DOCUMENTS, ids=lambda path: path.name)
def test_commands_in_documents_exist(document):
    named = set(re.findall(r"`peira ([a-z]+)", document.read_text(encoding="utf-8")))
    assert named <= set(COMMANDS)


@pytest.mark.parametrize("page", PAGES)
def test_written_pages_are_in_step_with_the_code(page):
    assert (ROOT / "docs" / page).read_text(encoding="utf-8") == PAGES[page](), "run `make docs`"


def test_the_changelog_has_the_version():
    version = peira.__version__
    assert f"## {version}" in (ROOT / "CHANGELOG.md").read_text()
    literal = next(
        node.value.value
        for node in ast.parse((ROOT / ".src/peira/__init__.py").read_text()).body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == "__version__"
    )
    assert literal == version


def test_the_project_file_names_licence_and_python():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["requires-python"] == ">=3.11"
    assert project["scripts"] == {"peira": "peira.training.cli:main"}
