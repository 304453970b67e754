"""Evaluation lists: fixed, distinct, held out."""

from itertools import permutations

import pytest

from peira.envs.core import BUCKETS
from peira.envs.sorting import Sorting
from peira.tasks.suites import census, named, sort4, suite
from peira.tools.errors import UsageError


def instance(task):
    return task.open().generate(task.seed, task.level, task.split)


def test_suite_is_distinct_and_a_longer_one_begins_with_a_shorter():
    tasks = suite("sorting", {"actions": "expanded"}, "test", 4, 60)
    prints = [Sorting.fingerprint(instance(task)) for task in tasks]
    assert len(set(prints)) == 60
    assert suite("sorting", {"actions": "expanded"}, "test", 4, 20) == tasks[:20]


def test_suite_says_how_many_there_are():
    # Two items: 2 patterns x 2 directions; of the 5 x 4 namings of each a fifth is held out.
    assert len(suite("sorting", None, "test", 2, 16)) == 16
    with pytest.raises(UsageError, match="only 16 different instances"):
        suite("sorting", None, "test", 2, 17)


@pytest.mark.parametrize("actions", ["tags", "expanded"])
def test_sort4_is_every_permutation_in_both_directions_and_held_out(actions):
    tasks = sort4(actions=actions)
    patterns = [Sorting.pattern(instance(task)) for task in tasks]
    assert patterns == sorted("".join(map(str, ranks)) + way for ranks in permutations(range(4)) for way in "+-")
    low, high = Sorting.splits["test"]
    assert high == BUCKETS
    assert all(task.split == "test" and Sorting.bucket(instance(task)) >= low for task in tasks)
    assert named("sort4", actions=actions) == tasks


def test_sort4_of_one_direction_and_the_same_instances_in_both_formats():
    assert len(sort4(direction="descending")) == 24
    assert [instance(task) for task in sort4()] == [instance(task) for task in sort4(actions="expanded")]


def test_census_and_names_say_what_is_missing():
    with pytest.raises(UsageError, match="holds 4 kinds of instances, not 5"):
        census("sorting", Sorting.pattern, 5, level=2)
    with pytest.raises(UsageError, match="sort4"):
        named("sort5")
