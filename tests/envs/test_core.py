"""The contract of a world, and rows P001-P006 of users' troubles with environments."""

from itertools import pairwise
from types import MappingProxyType

import gymnasium
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.envs.seeding import canonical
from peira.envs.spec import make
from peira.envs.testing import COUNTER, FAILING, SLOW, Counter, CounterInstance
from peira.envs.types import Step
from peira.tools.errors import UsageError


def counter(start=10, target=13, **options):
    env = make(COUNTER, **options)
    env.reset(seed=0, options={"instance": CounterInstance(start, target)})
    return env


def test_p001_a_limit_or_a_loss_with_reward_is_no_success():
    env = counter(max_turns=1)
    _, reward, terminated, truncated, info = env.step("up")
    assert (terminated, truncated, info["success"], info["end"]) == (False, True, False, "turn_limit")
    assert reward == pytest.approx(1 / 3)
    env = counter()
    env.step("up")
    _, _, terminated, truncated, info = env.step("stop")
    assert (terminated, truncated, info["success"], info["end"]) == (True, False, False, "failure")


def test_p001_success_is_what_the_world_says_whatever_the_return():
    class Costly(Counter):
        reward_range = (-100.0, 1.0)

        def act(self, action):
            step = super().act(action)
            return step._replace(reward=-0.01 if not step.terminated else -0.5)

    env = Costly()
    env.reset(seed=0, options={"instance": CounterInstance(0, 2)})
    env.step("up")
    _, reward, _, _, info = env.step("up")
    assert reward < 0
    assert info["success"] is True


def test_p002_the_step_that_ends_the_task_is_the_last():
    env = counter()
    results = [env.step("up") for _ in range(3)]
    assert [result[2] for result in results] == [False, False, True]
    assert results[-1][0] == "The counter shows 13, the end."
    with pytest.raises(UsageError, match="is over"):
        env.step("up")


def test_p002_the_task_that_ends_at_the_limit_has_ended_not_been_cut():
    env = counter(max_turns=3)
    results = [env.step("up") for _ in range(3)]
    assert results[-1][2:4] == (True, False)
    assert results[-1][4]["end"] == "success"


def test_p003_rewards_are_changes_of_the_score():
    env = counter(0, 4)
    rewards, scores = [], [0.0]
    for action in ("up", "up", "down", "up", "up", "up"):
        _, reward, _, _, info = env.step(action)
        rewards.append(reward)
        scores.append(info["progress"])
    assert rewards == [after - before for before, after in pairwise(scores)]
    assert sum(rewards) == 1.0


def test_p004_resets_without_a_seed_go_on_and_repeat_after_reseeding():
    env = make("sorting")
    passes = []
    for _ in range(2):
        env.reset(seed=3, options={"level": 5})
        starts = [env.instance]
        for _ in range(2):
            env.reset(options={"level": 5})
            starts.append(env.instance)
        passes.append(starts)
    assert passes[0] == passes[1]
    assert len({env.fingerprint(instance) for instance in passes[0]}) == 3


def test_p004_worlds_never_seeded_differ():
    one, two = make("sorting"), make("sorting")
    starts = [
        [env.fingerprint((env.reset(options={"level": 5}), env.instance)[1]) for _ in range(4)] for env in (one, two)
    ]
    assert starts[0] != starts[1]


def test_p005_info_has_the_same_keys_on_every_step_and_an_invalid_move_its_reason():
    env = make("sorting")
    _, info = env.reset(seed=1)
    keys = set(info)
    for _ in range(2):
        observation, _, _, _, info = env.step("compare A Z")
        assert set(info) == keys
        assert info["valid"] is False
        assert "two different items" in observation


def test_p006_a_vector_of_one_visits_each_task_once():
    visited = []

    class Seen(Counter):
        def begin(self, instance):
            visited.append(instance.start)
            return super().begin(instance)

    tasks = iter([CounterInstance(start, start + 1) for start in (1, 2, 3, 4)])

    class Queue(gymnasium.Wrapper):
        def reset(self, *, seed=None, options=None):
            return self.env.reset(seed=seed, options={"instance": next(tasks)})

    vector = gymnasium.vector.SyncVectorEnv([lambda: Queue(Seen())], autoreset_mode="SameStep")
    vector.reset(seed=0)
    for _ in range(3):
        vector.step(["up"])
    assert visited == [1, 2, 3, 4]


def test_reset_refuses_unknown_options_levels_and_splits_with_the_nearest():
    env = make("sorting")
    with pytest.raises(UsageError, match="'level'"):
        env.reset(seed=1, options={"levle": 3})
    with pytest.raises(UsageError, match=r"2\.\.5"):
        env.reset(seed=1, options={"level": 9})
    with pytest.raises(UsageError, match="'test'"):
        env.reset(seed=1, options={"split": "tset"})


def test_step_refuses_what_is_not_text_and_what_comes_too_early():
    env = make("sorting")
    with pytest.raises(UsageError, match="has not started"):
        env.step("done")
    env.reset(seed=1)
    with pytest.raises(UsageError, match="not int"):
        env.step(3)
    with pytest.raises(UsageError, match="at least 1"):
        make("sorting", max_turns=0)


@pytest.mark.parametrize(
    ("change", "error"),
    [({"reward": float("nan")}, "finite"), ({"reward": 2.0}, "declared range"), ({"observation": 7}, "type int")],
)
def test_guards_name_what_a_world_does_wrong(change, error):
    class Wrong(Counter):
        def act(self, action):
            return super().act(action)._replace(**change)

    env = Wrong()
    env.reset(seed=1)
    with pytest.raises((TypeError, ValueError), match=error):
        env.step("up")
    env.guards = False
    env.reset(seed=1)
    env.step("up")


def test_author_is_told_what_is_missing():
    class Empty(Counter):
        pass

    from peira.envs.core import Env

    for name, arguments in (
        ("draw", (None, 0, "train")),
        ("begin", (None,)),
        ("act", ("x",)),
        ("state_key", ()),
        ("oracle", ()),
    ):
        with pytest.raises(TypeError, match=f"Empty must define {name}"):
            getattr(Env, name)(Empty(), *arguments)


@settings(max_examples=30)
@given(st.integers(0, 2**63 - 1), st.integers(2, 5), st.sampled_from(["train", "test"]))
def test_generate_is_a_pure_function_and_info_is_json(seed, level, split):
    env = make("sorting")
    assert env.generate(seed, level, split) == make("sorting").generate(seed, level, split)
    canonical(env.reset(seed=seed, options={"level": level, "split": split})[1])


def test_a_seed_names_the_same_instance_in_every_action_format():
    tags, expanded = make("sorting"), make("sorting", actions="expanded")
    assert [tags.generate(seed, 4) for seed in range(20)] == [expanded.generate(seed, 4) for seed in range(20)]
    other = make("sorting", direction="ascending")
    assert [tags.generate(seed, 4) for seed in range(20)] != [other.generate(seed, 4) for seed in range(20)]


def test_chance_during_an_episode_follows_the_seed_and_survives_snapshots():
    class Dice(Counter):
        text = MappingProxyType({**Counter.text, "rolled": "{number}"})

        def act(self, action):
            return Step.go_on(str(self.np_random.integers(1_000_000)))

    env, other = Dice(), Dice()
    env.reset(seed=5)
    other.reset(seed=5)
    before = env.snapshot()
    first = [env.step("x")[0] for _ in range(3)]
    assert first == [other.step("x")[0] for _ in range(3)]
    middle = env.snapshot()
    rest = [env.step("x")[0] for _ in range(3)]
    twin = env.fork()
    assert env.step("x")[0] == twin.step("x")[0]
    env.restore(middle)
    assert [env.step("x")[0] for _ in range(3)] == rest
    env.restore(before)
    assert [env.step("x")[0] for _ in range(3)] == first
    other.reset(seed=6)
    assert other.step("x")[0] not in first
    with pytest.raises(UsageError, match="cannot be restored"):
        make("sorting").restore(before)


def test_a_fork_keeps_limit_guards_and_return():
    env = counter(0, 4, max_turns=3, guards=True)
    env.step("up")
    twin = env.fork()
    assert (twin.limit, twin.guards) == (3, True)
    assert [twin.step("up")[3], twin.step("down")[3]] == [False, True]
    assert env.step("up")[4]["turn"] == 2


def test_failing_world_breaks_where_it_is_told():
    env = make(FAILING, where="step", at=2)
    env.reset(seed=1, options={"level": 5})
    env.step("up")
    with pytest.raises(RuntimeError, match="breaks at step"):
        env.step("up")
    with pytest.raises(RuntimeError, match="breaks at reset"):
        make(FAILING, where="reset").reset(seed=1)
    env = make(FAILING, where="close")
    env.close()
    env.reset(seed=1)
    with pytest.raises(RuntimeError, match="breaks at close"):
        env.close()
    env = make(FAILING, every=2)
    for start, breaks in ((4, True), (5, False)):
        env.reset(seed=0, options={"instance": CounterInstance(start, start + 5)})
        env.step("up")
        if breaks:
            with pytest.raises(RuntimeError):
                env.step("up")
        else:
            env.step("up")
    for bad in ({"where": "stop"}, {"at": 0}, {"every": 0}):
        with pytest.raises(UsageError):
            make(FAILING, **bad)
    with pytest.raises(UsageError, match="seconds"):
        make(SLOW, seconds=-1)


def test_closing_twice_is_fine():
    env = make("sorting")
    env.close()
    env.close()


def test_p011_the_space_of_texts_holds_any_unicode_and_its_own_samples():
    space = make("sorting").observation_space
    assert "café 🚪" in space
    assert all(space.sample() in space for _ in range(50))
    assert 3 not in space
