"""Sorting against the formulas of EARL / ExpA, its own rules and its players."""

from itertools import combinations, permutations, product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.envs.seeding import rng
from peira.envs.sorting import Instance, Sorting, rules
from peira.envs.sorting.players import NETWORKS
from peira.envs.spec import make
from peira.tools.errors import UsageError

FORMATS = ("tags", "expanded")
TASKS = ("sort", "order", "compare")


def start(env, instance):
    return env.reset(seed=0, options={"instance": instance})[0]


def play(env, actions):
    total = 0.0
    for action in actions:
        _, reward, terminated, truncated, info = env.step(action)
        assert info["valid"], action
        total += reward
    assert terminated
    assert not truncated
    return total, info


def instances(n, ascending=(True, False)):
    letters = "ABCDE"[:n]
    return [Instance(letters, "".join(order), up) for order in permutations(letters) for up in ascending]


def asked(instance, pairs):
    """Compare what a network asks, on wires; return the actions."""
    wires, actions = list(instance.shown), []
    for low, high in pairs:
        actions.append(f"compare {wires[low]} {wires[high]}")
        if instance.below(wires[high], wires[low]):
            wires[low], wires[high] = wires[high], wires[low]
    return actions


def cycles(sequence, target):
    """Count cycles of the permutation the long way round."""
    seen, count = set(), 0
    for first in range(len(target)):
        count += first not in seen
        at = first
        while at not in seen:
            seen.add(at)
            at = target.index(sequence[at])
    return count


# ---- the reward (test (f) of the section) -----------------------------------------------------------------------


@pytest.mark.parametrize(("extra", "expected"), [(-1, 0.5), (0, 1.0), (1, (1 + 5 / 6) / 2)])
def test_network_comparisons_and_minimal_swaps_on_all_sort4_instances(extra, expected):
    env = make("sorting")
    for instance in instances(4):
        start(env, instance)
        questions = asked(instance, NETWORKS[4])
        questions = questions[:extra] if extra < 0 else questions + questions[:1] * extra
        swaps = [f"swap {a} {b}" for a, b in rules.swaps_to(instance.shown, instance.target)]
        total, info = play(env, [*questions, *swaps, "done"])
        assert total == pytest.approx(expected, abs=1e-12)
        assert info["success"] is True


def test_reward_constants_by_hand():
    assert [rules.fewest_comparisons(n) for n in (2, 3, 4, 5)] == [1, 3, 5, 7]
    assert [rules.most_comparisons(n) for n in (2, 3, 4, 5)] == [2, 6, 8, 15]
    assert rules.most_swaps(2, 1) == 2
    assert rules.most_swaps(4, 3) == 6
    # n = 4, S_min = 1: one swap too many costs (2 - 1) / (6 - 1) of the swap half.
    assert rules.efficiency("sort", 4, 5, 2, 1) == pytest.approx(0.5 + 0.5 * 0.8)
    assert rules.efficiency("order", 4, 0, 2, 1) == pytest.approx(0.8)
    assert rules.efficiency("sort", 4, 100, 100, 1) == 0.0
    assert rules.efficiency("sort", 4, 4, 1, 1) == 0.0
    assert [rules.efficiency("compare", 4, c, 0, 0) for c in (0, 1, 2)] == [0.0, 1.0, 0.0]


def test_wrong_answers_earn_nothing_and_parts_sum_to_the_reward():
    env = make("sorting")
    start(env, Instance("AB", "BA", True))
    _, reward, terminated, _, info = env.step("done")
    assert (reward, terminated, info["success"], info["end"]) == (0.0, True, False, "failure")
    start(env, Instance("AB", "AB", True))
    _, reward, _, _, info = env.step("done")
    assert (reward, info["success"], info["reward_parts"]) == (0.5, True, {"correct": 0.5, "efficiency": 0.0})


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_fewest_swaps_is_n_minus_cycles_and_swaps_to_reaches(n):
    letters = "ABCDE"[:n]
    for items in permutations(letters):
        sequence = "".join(items)
        swaps = rules.swaps_to(sequence, letters)
        assert len(swaps) == rules.fewest_swaps(sequence, letters) == n - cycles(sequence, letters)
        for first, second in swaps:
            sequence = rules.exchange(sequence, first, second)
        assert sequence == letters


@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_networks_sort_every_sequence(n):
    for items in permutations(range(n)):
        wires = list(items)
        for low, high in NETWORKS[n]:
            wires[low], wires[high] = sorted((wires[low], wires[high]))
        assert wires == sorted(items)


# ---- knowledge --------------------------------------------------------------------------------------------------


@given(st.permutations("ABCDE"), st.lists(st.tuples(st.sampled_from("ABCDE"), st.sampled_from("ABCDE")), max_size=8))
def test_learning_is_the_transitive_closure(order, pairs):
    known, told = 0, set()
    for first, second in pairs:
        if first != second:
            low, high = sorted((first, second), key=order.index)
            known = rules.learn(known, low, high)
            told.add((low, high))
    for _ in range(5):
        told |= {(a, d) for (a, b), (c, d) in product(told, told) if b == c}
    for first, second in combinations("ABCDE", 2):
        expected = True if (first, second) in told else False if (second, first) in told else None
        assert rules.knows(known, first, second) is expected


# ---- players and the oracle -------------------------------------------------------------------------------------


@pytest.mark.parametrize("actions", FORMATS)
@pytest.mark.parametrize("n", [2, 3, 4, 5])
def test_oracle_earns_exactly_one_on_every_instance(n, actions):
    env = make("sorting", actions=actions)
    for instance in instances(n):
        start(env, instance)
        total, _ = play(env, env.oracle())
        assert total == 1.0


@pytest.mark.parametrize("actions", FORMATS)
@pytest.mark.parametrize("task", TASKS)
def test_oracle_solves_from_anywhere_and_never_wastes_what_is_known(task, actions):
    env = make("sorting", task=task, actions=actions)
    for seed in range(60):
        chance = rng("anywhere", seed)
        env.reset(seed=seed, options={"level": 2 + seed % 4})
        for _ in range(int(chance.integers(1, 9))):
            legal = [a for a in env.legal() if a != "done" and "<" not in a]
            env.step(legal[int(chance.integers(len(legal)))])
        _, info = play(env, env.oracle())
        assert info["success"] is True


def test_oracle_of_order_and_compare_earns_one():
    for task, seed in product(("order", "compare"), range(40)):
        env = make("sorting", task=task)
        env.reset(seed=seed, options={"level": 2 + seed % 4})
        assert play(env, env.oracle())[0] == 1.0


@pytest.mark.parametrize("actions", FORMATS)
@pytest.mark.parametrize("task", TASKS)
@pytest.mark.parametrize("name", ["naive", "noisy_naive", "network"])
def test_players_finish_with_legal_moves(name, task, actions):
    env = make("sorting", task=task, actions=actions, max_turns=400)
    for seed in range(24):
        chance = rng("player", name, seed)
        env.reset(seed=seed, options={"level": 2 + seed % 4})
        over = False
        while not over:
            action = env.players[name](env, chance)
            assert action in env.legal() or (env.free_text() and not action.startswith(("compare", "swap")))
            _, _, terminated, truncated, info = env.step(action)
            over = terminated or truncated
        # The careless one may end too early; it never ends in another way.
        assert info["success"] is True or (name, terminated) == ("noisy_naive", True)


def test_the_careless_player_errs_wastes_and_mostly_succeeds():
    env, chance, results = make("sorting"), rng("careless"), []
    for instance in [one for one in instances(4) for _ in range(20)]:
        start(env, instance)
        over = False
        while not over:
            _, _, over, _, info = env.step(env.players["noisy_naive"](env, chance))
        results.append((info["success"], env.state.compared))
    won = [compared for success, compared in results if success]
    assert 0.6 < len(won) / len(results) < 0.95
    assert min(won) < 5 < np.mean(won)


def test_network_asks_its_comparators_and_naive_wastes_a_pass():
    env = make("sorting")
    counts = {"naive": [], "network": []}
    for name, instance in product(counts, instances(4)):
        start(env, instance)
        over = False
        while not over:
            _, reward, over, _, _ = env.step(env.players[name](env, rng("x")))
        counts[name].append((env.state.compared, reward))
    assert {c for c, _ in counts["network"]} == {5}
    assert {r for _, r in counts["network"]} == {1.0}
    # Bubble sort makes (passes that swap + 1) * (n - 1) comparisons: passes that swap = the longest way an item is from
    # the front, 0..3 with frequencies 1, 7, 10, 6 of 24.
    assert sorted(c for c, _ in counts["naive"]) == sorted([3, *[6] * 7, *[9] * 10, *[12] * 6] * 2)


@pytest.mark.parametrize("name", ["naive", "network"])
def test_both_formats_make_the_same_play(name):
    tags, expanded = make("sorting"), make("sorting", actions="expanded")
    for instance in instances(4, (True,)):
        transcripts = []
        for env in (tags, expanded):
            start(env, instance)
            over = False
            while not over:
                _, _, over, _, _ = env.step(env.players[name](env, rng("x")))
            transcripts.append(env.state.log)
        assert transcripts[0] == transcripts[1]


# ---- the tasks --------------------------------------------------------------------------------------------------


def test_order_tells_all_adjacent_relations_and_at_most_n_minus_2_more_and_never_starts_sorted():
    env = make("sorting", task="order")
    extras = {n: set() for n in env.levels}
    for n, seed in product(env.levels, range(150)):
        instance = env.generate(seed, n)
        adjacent = {instance.order[i : i + 2] for i in range(n - 1)}
        assert adjacent <= set(instance.relations)
        assert len(set(instance.relations)) == len(instance.relations)
        assert all(instance.below(*relation) for relation in instance.relations)
        assert instance.shown != instance.target
        extras[n].add(len(instance.relations) - (n - 1))
    assert {n: extras[n] for n in env.levels} == {2: {0}, 3: {0, 1}, 4: {0, 1, 2}, 5: {0, 1, 2, 3}}


def test_order_has_no_comparisons_and_compare_no_swaps():
    env = make("sorting", task="order")
    env.reset(seed=1, options={"level": 3})
    before = env.state
    observation, _, _, _, info = env.step("compare A B")
    assert info["valid"] is False
    assert "swap" in observation
    assert env.state == before
    env = make("sorting", task="compare")
    env.reset(seed=1, options={"level": 3})
    assert env.step("swap A B")[4]["valid"] is False


@pytest.mark.parametrize(
    ("answer", "right"),
    [
        ("A < B", True),
        ("B > A", True),
        ("<answer>A < B</answer>", True),
        ("I asked twice: <answer>A<B</answer>", True),
        ("maybe B < A, no: <answer>B < A</answer> <answer>A < B</answer>", True),
        ("B < A", False),
        ("A < B or B < A", False),
        ("A < C", False),
        ("A", False),
        ("", False),
    ],
)
def test_compare_reads_the_answer(answer, right):
    env = make("sorting", task="compare")
    start(env, Instance("CAB", "ABC", True, pair="BA"))
    assert env.step("compare B A")[0] == "A < B"
    _, reward, terminated, _, info = env.step(answer)
    assert (terminated, info["success"], reward) == (True, right, float(right))


def test_compare_answer_without_asking_or_after_asking_twice_earns_half():
    env = make("sorting", task="compare")
    for questions in ((), ("compare A B", "compare A B")):
        start(env, Instance("AB", "AB", True, pair="AB"))
        assert play(env, [*questions, "A < B"])[0] == 0.5


def test_direction_parameter():
    for way in ("ascending", "descending"):
        env = make("sorting", direction=way)
        assert {env.generate(seed, 3).ascending for seed in range(30)} == {way == "ascending"}
        assert f"Sort {way}" in env.reset(seed=1)[0]
    assert {make("sorting").generate(seed, 3).ascending for seed in range(30)} == {True, False}


# ---- form of actions --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text", ["compare A B", " compare  A  B ", "<compare>A B</compare>", "<Compare> A B </Compare>"]
)
def test_tags_accept_words_and_tags(text):
    env = make("sorting")
    start(env, Instance("AB", "BA", True))
    assert env.step(text)[0] == "B < A"


@pytest.mark.parametrize(
    "text", ["compare A Z", "compare A A", "compare A", "swap", "<swap>A</swap>", "compare A E", "swap A B C"]
)
def test_malformed_operations_are_refused_with_what_is_legal(text):
    env = make("sorting")
    start(env, Instance("ABCD", "BADC", True))
    before, key = env.state, env.state_key()
    observation, reward, terminated, _, info = env.step(text)
    assert (reward, terminated, info["valid"]) == (0.0, False, False)
    assert "A B C D" in observation
    assert env.state == before
    assert env.state_key() == key


def test_expanded_walk_and_masks():
    env = make("sorting", actions="expanded")
    start(env, Instance("BA", "AB", True))
    assert env.legal() == ("compare", "swap")
    assert env.free_text()
    context = "compare"
    for action, legal, free in (("compare", ("A", "B"), False), ("B", ("A",), False), ("A", ("compare", "swap"), True)):
        observation = env.step(action)[0]
        context += ("" if action == "compare" else f" {action}") + observation
        assert (env.legal(), env.free_text()) == (legal, free)
    assert context == "compare B A: A < B\n"
    for action in ("swap", "A", "B"):
        observation = env.step(action)[0]
    assert observation == ": A B\n"
    assert env.step("done")[1] == 1.0


def test_expanded_refuses_inside_an_operation_and_keeps_it_open():
    env = make("sorting", actions="expanded")
    start(env, Instance("CAB", "ABC", True))
    env.step("swap")
    env.step("C")
    for wrong in ("C", "D", "done", "swap", ""):
        observation, _, terminated, _, info = env.step(wrong)
        assert (terminated, info["valid"]) == (False, False)
        assert "A, B" in observation
    assert env.step("A")[0] == ": A C B\n"


def test_native_actions_are_the_same_for_all_tasks():
    tables = {make("sorting", task=task, actions="expanded").native() for task in TASKS}
    assert len(tables) == 1
    (table,) = tables
    assert [(a.name, a.routing) for a in table] == [
        ("compare", True), ("swap", True), ("A", False), ("B", False), ("C", False), ("D", False), ("E", False),
    ]  # fmt: skip
    assert make("sorting").native() == ()


def test_bad_parameters_name_the_nearest():
    for params, near in (
        ({"task": "sorted"}, "sort"),
        ({"actions": "tag"}, "tags"),
        ({"direction": "up"}, "ascending"),
    ):
        with pytest.raises(UsageError, match=near):
            make("sorting", **params)


# ---- state key and splits ---------------------------------------------------------------------------------------


def test_state_key_forgets_the_path_but_not_what_matters():
    env = make("sorting")
    instance = Instance("ABCD", "BADC", True)
    keys = []
    for actions in (("compare A B", "compare C D"), ("compare D C", "compare B A"), ("compare A B", "compare A C")):
        start(env, instance)
        for action in actions:
            env.step(action)
        keys.append(env.state_key())
    assert keys[0] == keys[1]
    assert keys[0] != keys[2]
    start(env, instance)
    others = [env.state_key()]
    for action in ("compare A B", "compare A B", "swap A B"):
        env.step(action)
        others.append(env.state_key())
    start(env, Instance("ABCD", "ABDC", True))
    others.append(env.state_key())
    start(env, Instance("ABCD", "BADC", False))
    others.append(env.state_key())
    assert len(set(others)) == len(others)


def test_state_key_stops_counting_where_the_reward_does():
    env = make("sorting")
    start(env, Instance("AB", "AB", True))
    keys = [env.step("compare A B")[4]["state_key"] for _ in range(6)]
    assert len(set(keys)) == 2  # one comparison; two or more
    keys = [env.step("swap A B")[4]["state_key"] for _ in range(8)]
    assert keys[2] == keys[4] == keys[6]


@pytest.mark.parametrize("task", TASKS)
def test_every_pattern_is_in_both_splits_and_no_content_is(task):
    env = make("sorting", task=task)
    for n in (2, 3, 4):
        found = {split: {} for split in ("train", "test")}
        for split, seed in product(found, range(150 if n < 4 else 700)):
            instance = env.generate(seed, n, split)
            found[split].setdefault(env.fingerprint(instance), env.pattern(instance))
        assert not set(found["train"]) & set(found["test"])
        assert set(found["train"].values()) == set(found["test"].values())


def test_split_shares_are_as_close_to_the_declared_as_namings_allow():
    everything = [
        Instance("".join(shown), "".join(order), True)
        for shown in permutations("ABCDE", 4)
        for order in permutations(shown)
    ]
    # Each of the 24 patterns has 5 * 4 * 3 * 2 namings, of which 80 % are 96.
    assert sum(Sorting.bucket(instance) < 80 for instance in everything) == 24 * 96


def test_secret_is_never_said():
    env = make("sorting")
    start(env, Instance("ABCD", "BADC", True))
    (secret,) = env.secrets()
    assert secret == "B < A < D < C"
