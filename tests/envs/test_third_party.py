"""A world in somebody else's package: found through its entry point and checked by the same kit."""

import sys
from importlib import import_module

import pytest

from peira.envs import spec as registry
from peira.envs.check import check
from peira.envs.spec import find, make, names
from peira.tasks.task import Task
from peira.tools.errors import UsageError

SOURCE = """
from dataclasses import dataclass

from peira.envs.core import Env
from peira.envs.spec import WorldSpec
from peira.envs.types import Step


@dataclass(frozen=True)
class Door:
    number: int
    colour: str


class Doors(Env[Door]):
    name = "doors"
    text = {"start": "Say the door after number {number}.", "no": "Say a number.", "end": "The end."}

    def __init__(self, *, doors: int = 500) -> None:
        super().__init__(doors=doors)

    def draw(self, rng, level, split):
        return Door(int(rng.integers(self.params["doors"])), COLOURS[int(rng.integers(len(COLOURS)))])

    def begin(self, instance):
        self.state = "closed"
        return self.text["start"].format(number=instance.number)

    def act(self, action):
        if not action.isascii() or not action.isdigit():
            return Step.refuse(self.text["no"])
        self.state = "open"
        right = action == str(self.instance.number + 1)
        return Step.win(self.text["end"]) if right else Step.lose(self.text["end"])

    def state_key(self):
        return f"{self.instance.number} {self.instance.colour} {self.state}"

    def oracle(self):
        return (str(self.instance.number + 1),)

    def secrets(self):
        return (f"door {self.instance.number + 1}",)


COLOURS = COLOUR_EXPRESSION
WORLD = WorldSpec(id="doors", env=Doors, summary="Say the next number.")
"""


@pytest.fixture
def package(tmp_path, monkeypatch):
    """Install a package of one module the way an installer would: its code and its dist-info on the path."""

    def install(module, colours="('blue', 'red')", points=None):
        (tmp_path / f"{module}.py").write_text(SOURCE.replace("COLOUR_EXPRESSION", colours))
        info = tmp_path / f"{module}-1.0.dist-info"
        info.mkdir()
        (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {module}\nVersion: 1.0\n")
        lines = points or f"doors = {module}:WORLD"
        (info / "entry_points.txt").write_text(f"[peira.worlds]\n{lines}\n")
        registry._homes.cache_clear()

    monkeypatch.syspath_prepend(str(tmp_path))
    before = set(sys.modules)
    yield install
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) and str(tmp_path) in str(sys.modules[name].__file__):
            del sys.modules[name]
    registry._homes.cache_clear()


def test_entry_point_world_is_listed_without_being_imported(package):
    package("tiny_doors")
    assert "doors" in names()
    assert "tiny_doors" not in sys.modules
    assert find("doors").summary == "Say the next number."
    assert Task.of("doors", 3, doors=50).open().params == {"doors": 50}


def test_entry_point_world_passes_the_kit(package):
    package("tiny_doors")
    report = check("doors")
    assert report.findings == ()
    assert "second process" in report.passed


def test_salted_hash_is_caught_in_the_second_process(package):
    package("salted_doors", colours="tuple(sorted(map(str, range(9)), key=hash))")
    assert [finding.check for finding in check("doors").findings] == ["second process"]


def test_two_packages_with_one_name_are_refused_naming_both(package):
    package("one_doors")
    package("two_doors")
    with pytest.raises(UsageError, match=r"one_doors:WORLD.*two_doors:WORLD|two_doors:WORLD.*one_doors:WORLD"):
        names()


def test_world_by_place(package):
    package("tiny_doors", points="other = tiny_doors:WORLD")
    assert make("tiny_doors:WORLD", doors=5).params == {"doors": 5}
    assert import_module("tiny_doors").WORLD is find("tiny_doors:WORLD")


@pytest.mark.parametrize(
    ("points", "words"),
    [
        ("doors = no_such_module:WORLD", "no_such_module"),
        ("doors = tiny_doors:NOTHING", "NOTHING"),
        ("doors = tiny_doors:Doors", "WorldSpec"),
    ],
)
def test_broken_entry_points_say_what_is_wrong(package, points, words):
    package("tiny_doors", points=points)
    with pytest.raises(UsageError, match=words):
        find("doors")


def test_unknown_world_names_the_nearest():
    with pytest.raises(UsageError, match="Did you mean 'sorting'"):
        make("sortin")
