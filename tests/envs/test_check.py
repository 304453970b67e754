"""The conformance kit: clean worlds pass it whole, and each planted fault is caught by name."""

import random
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np
import pytest

from peira.envs.check import CHECKS, check
from peira.envs.checks.lab import Bench
from peira.envs.seeding import canonical
from peira.envs.spec import WorldSpec
from peira.envs.testing import COUNTER, FAILING, Counter, CounterInstance
from peira.envs.types import Step
from peira.tools.errors import UsageError

BY_NAME = {one.name: one for one in CHECKS}


def findings(env, name, **spec):
    """Run one check on a planted world."""
    bench = Bench(WorldSpec(id=env.name, env=env, summary="planted", **spec), {})
    return [finding for finding in BY_NAME[name].run(bench)]


def assert_caught(env, name, *words):
    found = findings(env, name)
    assert [finding.check for finding in found][:1] == [name]
    for word in words:
        assert word in found[0].cause
    assert found[0].remedy
    assert not findings(Counter, name), "the clean world must pass"


# ---- clean worlds -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("world", [COUNTER, "sorting"])
def test_clean_worlds_pass_every_check(world):
    report = check(world)
    assert report.findings == ()
    assert report.passed == tuple(one.name for one in CHECKS)
    assert report.ok
    assert report.steps_per_second > 0


@pytest.mark.parametrize(
    "params", [{"actions": "expanded"}, {"task": "order"}, {"task": "compare", "actions": "expanded"}]
)
def test_sorting_passes_under_other_parameters(params):
    assert check("sorting", **params).findings == ()


def test_report_is_json_and_text():
    report = check(COUNTER)
    canonical(report.to_json())
    assert "steps per CPU second" in str(report)
    assert "passed   oracle" in str(report)


def test_unknown_parameter_stops_the_kit():
    with pytest.raises(UsageError, match="task"):
        check("sorting", tsak="sort")


def test_a_world_that_raises_is_a_finding_not_a_crash():
    report = check(FAILING)
    assert not report.ok
    assert report.steps_per_second == 0
    assert "RuntimeError" in str(report)


def test_lacks_skip_what_they_name():
    names = []
    spec = WorldSpec(id="counter", env=Counter, summary="x", lacks=("snapshot", "oracle"))
    report = check(spec, progress=names.append)
    assert report.ok
    assert report.skipped == ("fork", "snapshot", "state key", "oracle", "random play")
    assert names == [name for name in BY_NAME if name not in report.skipped]


# ---- planted faults ---------------------------------------------------------------------------------------------


def test_global_random_use_is_caught():
    class Planted(Counter):
        def draw(self, rng, level, split):
            return CounterInstance(random.randrange(1000), 2000)

    class PlantedNumpy(Counter):
        def draw(self, rng, level, split):
            np.random.random()  # noqa: NPY002
            return super().draw(rng, level, split)

    assert_caught(Planted, "global randomness", "random")
    assert_caught(PlantedNumpy, "global randomness", "numpy.random")
    assert_caught(Planted, "determinism")


def test_unseeded_generator_is_caught():
    class Planted(Counter):
        def draw(self, rng, level, split):
            return super().draw(np.random.default_rng(), level, split)

    assert_caught(Planted, "determinism")


def test_step_counter_in_the_key_is_caught():
    class Planted(Counter):
        def state_key(self):
            return f"{super().state_key()} {self._turns}"

    class PlantedOwn(Counter):
        def begin(self, instance):
            self.calls = 0
            return super().begin(instance)

        def act(self, action):
            self.calls += 1
            return super().act(action)

        def state_key(self):
            return f"{super().state_key()} {self.calls}"

    assert_caught(Planted, "state key", "counts turns")
    assert_caught(PlantedOwn, "state key", "refused")


def test_key_that_merges_states_is_caught():
    class Planted(Counter):
        def state_key(self):
            return "always"

    assert_caught(Planted, "state key", "two states")


def test_leaking_answer_is_caught():
    class Planted(Counter):
        def secrets(self):
            return (f"code {self.instance.start * 7919}",)

        def begin(self, instance):
            return super().begin(instance) + f" (code {instance.start * 7919})"

    class PlantedLater(Planted):
        def begin(self, instance):
            return Counter.begin(self, instance)

        def act(self, action):
            step = super().act(action)
            return step if step.valid else Step.refuse(f"{step.observation} code {self.instance.start * 7919}")

        def legal(self):
            return ("up", "down", "stop", "sideways")

    assert_caught(Planted, "leak", "first observation")
    assert_caught(PlantedLater, "leak", "observation of step")


def test_unsolvable_instance_is_caught():
    class Planted(Counter):
        def act(self, action):
            if self.instance.start % 5 == 0 and action == "up":
                return Step.go_on("It does not move.")
            return super().act(action)

    assert_caught(Planted, "oracle", "does not solve")


def test_diverging_fork_is_caught():
    class Shared(Counter):
        def begin(self, instance):
            text = super().begin(instance)
            self.state = [self.state]
            return text

        def act(self, action):
            if action not in ("up", "down"):
                return Step.lose("end") if action == "stop" else Step.refuse("Say up, down, or stop.")
            self.state[0] += 1 if action == "up" else -1
            return Step.win("end") if self.state[0] == self.instance.target else Step.go_on(str(self.state[0]))

        def state_key(self):
            return f"{self.instance.start} {self.instance.target} {self.state[0]}"

        def oracle(self):
            gap = self.instance.target - self.state[0]
            return ("up" if gap > 0 else "down",) * abs(gap)

        def copy_state(self, state):
            return state

    class Forgets(Counter):
        def begin(self, instance):
            self.bonus = 0
            return super().begin(instance)

        def act(self, action):
            self.bonus = getattr(self, "bonus", 0) + 1
            step = super().act(action)
            return step._replace(observation=f"{step.observation} ({self.bonus})")

    assert_caught(Shared, "fork", "moved the original")
    assert_caught(Shared, "snapshot")
    assert_caught(Forgets, "fork", "observation")


def test_reward_out_of_range_is_caught():
    class Planted(Counter):
        def act(self, action):
            step = super().act(action)
            return step._replace(reward=3 * step.reward)

    class Cumulative(Counter):  # P003: the running score instead of its change
        def act(self, action):
            step = super().act(action)
            return step._replace(reward=self._done())

    class NotANumber(Counter):
        def act(self, action):
            return super().act(action)._replace(reward=float("nan"))

    assert_caught(Planted, "reward", "declared range")
    assert_caught(Cumulative, "reward", "declared range")
    assert_caught(NotANumber, "reward", "nan")


def test_state_shared_between_objects_is_caught():
    class Planted(Counter):
        steps = 0

        def act(self, action):
            type(self).steps += 1
            step = super().act(action)
            return step._replace(observation=f"{step.observation} #{type(self).steps}")

    assert_caught(Planted, "interleaving")


def test_leftovers_between_episodes_are_caught():
    class Planted(Counter):
        used = 0

        def act(self, action):
            self.used += 1
            step = super().act(action)
            return step._replace(observation=f"{step.observation} ({self.used})")

    assert_caught(Planted, "reset-reset", "fresh object")


def test_stored_seed_is_caught():
    class Planted(Counter):
        stored = None

        def reset(self, *, seed=None, options=None):
            self.stored = seed if seed is not None else self.stored
            return super().reset(seed=self.stored, options=options)

    assert_caught(Planted, "reset-reset", "always gives the same instance")


def test_false_legal_actions_are_caught():
    class Planted(Counter):
        def legal(self):
            return ("up", "down", "jump")

    class Nothing(Counter):
        def legal(self):
            return ()

        def free_text(self):
            return False

    assert_caught(Planted, "legal", "jump")
    assert_caught(Nothing, "legal", "neither is any action")


def test_garbage_that_raises_is_caught():
    class Planted(Counter):
        def act(self, action):
            return super().act(action.split()[0])

    class Silent(Counter):
        text = MappingProxyType({**Counter.text, "refuse": ""})

    assert_caught(Planted, "garbage", "IndexError")
    assert_caught(Silent, "garbage", "refused with the observation ''")


def test_info_that_is_not_json_is_caught():
    class Planted(Counter):
        def act(self, action):
            return super().act(action)._replace(parts={"gain": np.float32(0)})

    assert_caught(Planted, "info", "not plain JSON")


def test_overlapping_splits_are_caught():
    class Planted(Counter):
        splits = MappingProxyType({"train": (0, 80), "test": (70, 100)})

    class Salted(Counter):
        def bucket(self, instance):
            return int(self._turns) % 100  # by circumstance, not by content

        def generate(self, seed, level=None, split="train"):
            return CounterInstance(seed, seed + 1)

    assert_caught(Planted, "splits", "overlap")
    assert_caught(Salted, "splits", "both")


def test_split_that_a_level_cannot_fill_is_caught():
    class Planted(Counter):
        def draw(self, rng, level, split):
            return CounterInstance(1, 2)

    assert_caught(Planted, "splits", "has no instance")


def test_task_that_luck_solves_is_caught():
    class Planted(Counter):
        def act(self, action):
            return Step.win("end")

    assert_caught(Planted, "random play", "40 of 40")


def test_broken_player_is_caught():
    class Planted(Counter):
        players = MappingProxyType({"confused": lambda env, rng: "left"})

    assert_caught(Planted, "players", "confused")


def test_own_limit_is_caught():
    class Planted(Counter):
        def step(self, action):
            self._turns = -1
            return super().step(action)

    class Early(Counter):
        def step(self, action):
            self.limit = 1
            return super().step(action)

    assert_caught(Early, "limit", "truncated at step 1")
    assert_caught(Planted, "limit", "still going on")


def test_bad_registration_is_caught():
    class Planted(Counter):
        def __init__(self, tools=[]):  # noqa: B006
            super().__init__()

    class Renamed(Counter):
        text = MappingProxyType({})

    found = {finding.cause for finding in findings(Planted, "registration")}
    assert any("keyword-only" in cause for cause in found)
    bench = Bench(WorldSpec(id="other", env=Renamed, summary=""), {})
    causes = " ".join(finding.cause for finding in BY_NAME["registration"].run(bench))
    for word in ("'other'", "no summary", "`text` is empty"):
        assert word in causes


def test_swallowed_mistakes_are_caught():
    class Planted(Counter):
        def reset(self, *, seed=None, options=None):
            return super().reset(seed=seed)

    assert_caught(Planted, "errors", "unknown split")


def test_gymnasium_checker_is_heard():
    class Planted(Counter):
        def __init__(self):
            super().__init__()
            self.observation_space = None

    assert_caught(Planted, "gymnasium")


def test_instances_need_to_be_plain_data():
    @dataclass(frozen=True)
    class Odd:
        value: object

    class Planted(Counter):
        def draw(self, rng, level, split):
            return Odd(object())

    bench = WorldSpec(id="counter", env=Planted, summary="x")
    assert {f.check for f in check(bench).findings} >= {"splits", "determinism"}
