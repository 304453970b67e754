"""Side by side with the real engine. Slow, and skipped with a reason where the package ``alfworld`` is missing."""

import importlib.util
import os
import sys
from pathlib import Path

import pytest

from peira.envs.household import rules

_SPEC = importlib.util.spec_from_file_location("peira_parity_harness", Path(__file__).parent / "harness.py")
harness = importlib.util.module_from_spec(_SPEC)
sys.modules[_SPEC.name] = harness
_SPEC.loader.exec_module(harness)

GAMES = int(os.environ.get("PEIRA_PARITY_GAMES", "500"))
pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(6 * 3600),
    pytest.mark.skipif(harness.missing() is not None, reason=str(harness.missing())),
]


@pytest.fixture(scope="module")
def real():
    engine = harness.Real()
    yield engine
    engine.close()


def test_games_of_all_types_show_no_difference(real):
    """Random, oracle, wrong and busy walks: observation, admissible commands, reward, done."""
    differences = [one for number in range(GAMES) for one in harness.play(real, harness.opened(number), number, 50)[1]]
    assert differences == []


def test_the_real_planner_finds_no_shorter_plan(real):
    """Fast Downward's plan solves the game in ours, in at least as many steps as the oracle's."""
    for number in range(24):
        env = harness.opened(number)
        harness.reset(env, number)
        real.load(env.instance)
        plan = real.ask(do="plan")
        shortest = len(env.oracle())
        assert shortest <= len(plan)
        over = False
        for command in plan:
            assert rules.parse(env._game(), command), command
            over = env.step(command)[2]
        assert over
