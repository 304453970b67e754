"""Faults B55-B59: group starts, seed aliasing, drifting evaluation sets, leaking state, drifting text."""

from collections import defaultdict
from types import MappingProxyType

import pytest

from peira.envs.seeding import rng, seed_of
from peira.envs.sorting import Instance, Sorting
from peira.envs.spec import make
from peira.tasks.sampler import Sampler
from peira.tasks.suites import sort4, suite


def play(env, seed, level):
    """Return all that a world says in one episode of a noisy player."""
    said = [env.reset(seed=seed, options={"level": level})]
    chance = rng("b58", seed)
    over = False
    while not over:
        said.append(env.step(env.players["noisy_naive"](env, chance)))
        over = said[-1][2] or said[-1][3]
    return said


def test_b55_members_of_a_group_start_from_the_same_state():
    for task in Sampler("sorting", seed=4).draw(16, 0):
        starts = []
        for _ in range(4):
            env = task.open()
            observation, info = task.start(env)
            starts.append((observation, info["state_key"], env.fingerprint(env.instance)))
        assert len(set(starts)) == 1


def test_b56_keys_of_epoch_group_and_member_never_collide():
    seeds = {seed_of("episode", e, g, m) for e in range(10) for g in range(100) for m in range(10)}
    assert len(seeds) == 10_000
    # What addition confuses: base + group + episode gives (1, 12) and (11, 2) one seed.
    assert seed_of("task", 1, 12) != seed_of("task", 11, 2)
    assert seed_of("task", "1", 12) != seed_of("task", 1, 12)


def test_b56_sampled_tasks_never_share_a_seed():
    samplers = [Sampler("sorting", split=split, seed=seed) for split in ("train", "test") for seed in (0, 1)]
    seeds = [task.seed for sampler in samplers for step in range(25) for task in sampler.draw(100, step)]
    assert len(set(seeds)) == len(seeds) == 10_000


def test_b56_train_and_test_instances_are_disjoint_over_thousands_of_draws():
    env = make("sorting")
    found = defaultdict(set)
    for split in ("train", "test"):
        for step in range(8):
            for task in Sampler("sorting", split=split, seed=step).draw(250, step):
                found[split].add(env.fingerprint(env.generate(task.seed, task.level, split)))
    assert min(map(len, found.values())) > 300
    assert not found["train"] & found["test"]


def test_b56_no_task_can_start_an_evaluation_instance_in_training():
    held_out = {Sorting.fingerprint(task.open().generate(task.seed, task.level, task.split)) for task in sort4()}
    env = make("sorting")
    assert not held_out & {env.fingerprint(env.generate(seed, 4, "train")) for seed in range(2_000)}


def test_b57_two_evaluations_use_the_same_instances():
    one, two = (suite("sorting", {"task": "sort"}, "test", 4, 30) for _ in range(2))
    assert [task.key for task in one] == [task.key for task in two]
    assert [task.start(task.open())[0] for task in one] == [task.start(task.open())[0] for task in two]


def test_b57_evaluation_lists_are_those_of_the_first_release():
    # Pinned: a change of these numbers makes every published result of a suite incomparable.
    assert suite("sorting", {"actions": "tags"}, "test", 4, 1)[0].key == PINNED_KEY
    assert Sorting.fingerprint(make("sorting").generate(0, 4, "test")) == PINNED_INSTANCE


@pytest.mark.parametrize("params", [{}, {"actions": "expanded"}, {"task": "order"}, {"task": "compare"}])
def test_b58_an_episode_leaves_nothing_behind(params):
    used = make("sorting", **params)
    for seed in range(6):
        level = 2 + seed % 4
        assert play(used, seed, level) == play(make("sorting", **params), seed, level)


def test_b59_golden_transcripts():
    instance = Instance("CAB", "ABC", True)
    env = make("sorting")
    first = env.reset(seed=0, options={"instance": instance})[0]
    assert first == "Sort ascending: C A B. Ops: <compare>X Y</compare>, <swap>X Y</swap>. When sorted, say done."
    answers = [env.step(a)[0] for a in ("compare C A", "compare C B", "compare A B", "swap C A", "swap C B", "done")]
    assert answers == ["A < C", "B < C", "A < B", "A C B", "A B C", "Correct. Comparisons: 3, swaps: 2."]
    env = make("sorting", actions="expanded")
    first = env.reset(seed=0, options={"instance": instance})[0]
    assert first == "Sort ascending: C A B. Ops: compare, swap. When sorted, say done."
    assert [env.step(a)[0] for a in ("compare", "C", "A", "swap", "A", "C")] == [
        "",
        "",
        ": A < C\n",
        "",
        "",
        ": A C B\n",
    ]


def test_b59_a_change_of_text_changes_the_version():
    class Reworded(Sorting):
        text = MappingProxyType({**Sorting.text, "wrong": "Incorrect."})

    assert Reworded.text_version() != Sorting.text_version()
    # Pinned: whoever rewords the world changes this line, and says so in the change log.
    assert Sorting.text_version() == PINNED_TEXT


PINNED_KEY = "10d3866c505badd7"
PINNED_INSTANCE = "26675a40c76a68c4"
PINNED_TEXT = "a29efa79907d02c6"
