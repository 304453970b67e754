"""The links in ``.src/peira``, the wheel's map and the folders at the top name the same rooms."""

import os
import shutil
import tomllib
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
ROOMS = {"agents", "envs", "tasks", "tools", "training"}


def faults(root: Path) -> list[str]:
    """Return what is out of step between links, wheel map and folders."""
    package = root / ".src" / "peira"
    found = []
    files = {"__init__.py", "__main__.py", "py.typed", "__pycache__"}
    links = {path.name for path in package.iterdir()} - files
    for name in sorted(links):
        link = package / name
        if not link.is_symlink():
            found.append(
                f".src/peira/{name} is not a link (a copying tool made it a copy, or core.symlinks=false made it text: "
                "set it to true and check out again)"
            )
        elif os.readlink(link) != f"../../{name}":
            found.append(f".src/peira/{name} points at {os.readlink(link)}, not at ../../{name}")
    table = tomllib.loads((root / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]
    sources = table["wheel"]["sources"]
    mapped = set(sources) - {".src/peira"}
    found += [f"the wheel puts {n} at {sources[n]}" for n in sorted(mapped) if sources[n] != f"peira/{n}"]
    folders = {path.parent.name for path in root.glob("[!.]*/__init__.py")}
    included = {name for name in table["wheel"]["only-include"] if not name.startswith(".")}
    shipped = set(table["sdist"]["only-include"])
    for label, names in (("links", links), ("wheel map", mapped), ("wheel include", included)):
        if names != folders:
            found.append(f"{label} and folders differ: {sorted(names ^ folders)}")
    if not folders <= shipped:
        found.append(f"the sdist lacks {sorted(folders - shipped)}")
    return found


def test_links_wheel_map_and_folders_agree() -> None:
    assert faults(ROOT) == []
    assert {path.parent.name for path in ROOT.glob("[!.]*/__init__.py")} == ROOMS


def test_packaged_data_is_not_ignored_by_git() -> None:
    """Hatchling leaves out what ``.gitignore`` names, so no data file of a room may match it."""
    patterns = [line for line in (ROOT / ".gitignore").read_text().split() if not line.startswith("#")]
    assert not [p for p in patterns if p.lstrip("/").split("/")[0] in ROOMS or p in {".src", "*.toml", "*.json"}]


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    (tmp_path / ".src" / "peira").mkdir(parents=True)
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    (tmp_path / ".src" / "peira" / "__init__.py").touch()
    for room in ROOMS:
        (tmp_path / room).mkdir()
        (tmp_path / room / "__init__.py").touch()
        (tmp_path / ".src" / "peira" / room).symlink_to(f"../../{room}")
    return tmp_path


def test_a_right_copy_has_no_fault(copy: Path) -> None:
    assert faults(copy) == []


def test_planted_missing_link_is_reported(copy: Path) -> None:
    (copy / ".src" / "peira" / "envs").unlink()
    assert faults(copy) == ["links and folders differ: ['envs']"]


def test_planted_copy_in_place_of_a_link_is_reported(copy: Path) -> None:
    (copy / ".src" / "peira" / "envs").unlink()
    (copy / ".src" / "peira" / "envs").mkdir()
    assert [fault for fault in faults(copy) if "is not a link" in fault and "core.symlinks" in fault]


def test_planted_wrong_target_and_new_folder_are_reported(copy: Path) -> None:
    (copy / ".src" / "peira" / "envs").unlink()
    (copy / ".src" / "peira" / "envs").symlink_to("../../tasks")
    (copy / "extra").mkdir()
    (copy / "extra" / "__init__.py").touch()
    assert any("points at ../../tasks" in fault for fault in faults(copy))
    assert any("wheel map and folders differ: ['extra']" in fault for fault in faults(copy))
    assert any("sdist lacks ['extra']" in fault for fault in faults(copy))
