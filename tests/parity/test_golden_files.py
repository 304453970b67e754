"""Game files with quirks (``quirks.py``), recorded from the real engine; ours reads each file and plays it the same."""

import importlib.util
import json
import sys
from pathlib import Path

import pytest

from peira.envs.household.reader import read_game
from peira.envs.spec import make

_SPEC = importlib.util.spec_from_file_location("peira_parity_harness", Path(__file__).parent / "harness.py")
harness = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = harness
_SPEC.loader.exec_module(harness)

RECORDS = harness.read(harness.GOLDEN_QUIRKS)


def test_every_quirk_was_recorded():
    assert {record["quirk"] for record in RECORDS} == set(harness.QUIRKS)


@pytest.mark.parametrize("number", range(len(RECORDS)), ids=[record["quirk"] for record in RECORDS])
def test_ours_repeats_the_real_engine_on_files_with_quirks(number, tmp_path):
    record, path = RECORDS[number], tmp_path / "game.tw-pddl"
    grammar = json.dumps({"task": [{"rhs": f"Your task is to: {record['goal']}."}]})
    path.write_text(json.dumps({"pddl_domain": "", "grammar": grammar, "pddl_problem": record["problem"]}))
    rows = harness.unpacked(record["rows"])
    env = make("household", max_turns=1_000)
    observation, info = env.reset(seed=0, options={"instance": read_game(path)})
    assert (observation, info["legal"]) == rows[0][1:3]
    for command, said, legal, reward, done in rows[1:]:
        observation, ours, terminated, _, info = env.step(command)
        assert (observation, info["legal"], ours, terminated) == (said, legal, reward, done), command
