"""Transcripts recorded from the real engine (``harness.py --record``), repeated word for word by ours."""

import importlib.util
import sys
from collections import Counter
from pathlib import Path

import pytest

from peira.envs.spec import make

_SPEC = importlib.util.spec_from_file_location("peira_parity_harness", Path(__file__).parent / "harness.py")
harness = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = harness
_SPEC.loader.exec_module(harness)

GOLDENS = list(harness.goldens())


def test_there_are_at_least_sixty_of_all_types():
    tasks = Counter(instance.task for instance, _ in GOLDENS)
    assert len(GOLDENS) >= 60
    assert set(tasks) == set(harness.TASKS)
    assert min(tasks.values()) >= 10
    commands = [
        row[0].split(" ")[0] for _, rows in GOLDENS for row in rows[1:] if row[0] and row[1] != "Nothing happens."
    ]
    verbs = {
        "go",
        "open",
        "close",
        "take",
        "move",
        "examine",
        "use",
        "heat",
        "clean",
        "cool",
        "look",
        "inventory",
        "help",
    }
    assert verbs <= set(commands)
    assert sum(row[4] for _, rows in GOLDENS for row in rows) >= 10


def repeat(instance, rows):
    """Give ours the recorded commands, and compare all that it answers."""
    env = make("household", max_turns=1_000)
    observation, info = env.reset(seed=0, options={"instance": instance})
    assert (observation, info["legal"]) == rows[0][1:3]
    for command, said, legal, reward, done in rows[1:]:
        observation, ours, terminated, _, info = env.step(command)
        assert (observation, info["legal"], ours, terminated) == (said, legal, reward, done), command


@pytest.mark.parametrize("number", range(len(GOLDENS)))
def test_ours_repeats_the_real_engine(number):
    repeat(*GOLDENS[number])


def test_a_planted_difference_is_reported():
    theirs = ["You open the fridge 1.", ["look"], 0, False]
    assert harness.compare(1, "open fridge 1", list(theirs), theirs) == []
    for at, wrong in enumerate(("You open the fridge 1", ["help", "look"], 1.0, True)):
        ours = [*theirs[:at], wrong, *theirs[at + 1 :]]
        assert len(harness.compare(1, "open fridge 1", ours, theirs)) == 1
