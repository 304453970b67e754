"""The sampler is a pure function of (seed, step)."""

from collections import Counter as Tally

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.tasks.sampler import Sampler
from peira.tools.errors import UsageError


@settings(max_examples=40)
@given(st.integers(0, 2**32), st.integers(0, 10_000), st.integers(0, 12), st.integers(0, 12))
def test_draw_is_pure_and_a_longer_draw_begins_with_a_shorter(seed, step, short, more):
    sampler = Sampler("sorting", {"actions": "expanded"}, levels={2: 1, 4: 3}, seed=seed)
    again = Sampler("sorting", {"actions": "expanded"}, levels={4: 3, 2: 1}, seed=seed)
    assert sampler == again
    assert sampler.draw(short, step) == again.draw(short + more, step)[:short]


def test_draws_do_not_depend_on_what_was_drawn_before():
    sampler = Sampler("sorting", seed=1)
    unbroken = [sampler.draw(4, step) for step in range(6)]
    assert [Sampler("sorting", seed=1).draw(4, step) for step in (5, 3)] == [unbroken[5], unbroken[3]]


def test_levels_come_by_weight():
    sampler = Sampler("sorting", levels={2: 0.3, 3: 0.3, 4: 0.2, 5: 0.2})
    n = 20_000
    counts = Tally(task.level for task in sampler.draw(n, 0))
    for level, share in {2: 0.3, 3: 0.3, 4: 0.2, 5: 0.2}.items():
        # Five standard deviations of a binomial.
        assert abs(counts[level] - share * n) < 5 * (share * (1 - share) * n) ** 0.5
    assert {task.level for task in Sampler("sorting", levels={3: 0, 4: 2}).draw(200, 0)} == {4}
    assert {task.level for task in Sampler("sorting").draw(200, 0)} == {2, 3, 4, 5}


def test_tasks_carry_world_parameters_and_split():
    (task,) = Sampler("sorting", {"task": "order", "actions": "tags"}, "test", {3: 1}, 7).draw(1, 2)
    assert (task.world, task.split, task.level, dict(task.params)) == (
        "sorting", "test", 3, {"task": "order", "actions": "tags"},
    )  # fmt: skip
    env = task.open()
    assert "Sort" in task.start(env)[0]
    with pytest.raises(TypeError):
        Sampler("sorting", {"task": "order"}).params["task"] = "sort"


@pytest.mark.parametrize(
    ("given_", "words"),
    [
        ({"world": "sortin"}, "sorting"),
        ({"params": {"tsk": "sort"}}, "task"),
        ({"split": "tran"}, "train"),
        ({"levels": {7: 1}}, "level"),
        ({"levels": {2: -1}}, "not negative"),
        ({"levels": {2: float("nan")}}, "finite"),
        ({"levels": {2: 0}}, "at least one must be positive"),
    ],
)
def test_mistakes_are_named(given_, words):
    with pytest.raises(UsageError, match=words):
        Sampler(**{"world": "sorting", **given_})


def test_negative_draws_are_refused():
    with pytest.raises(UsageError, match="n=-1"):
        Sampler("sorting").draw(-1, 0)
    assert Sampler("sorting").draw(0, 0) == ()
