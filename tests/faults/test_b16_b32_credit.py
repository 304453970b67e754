"""Faults of credit. B16 and B27 are here for returns; a critic's GAE and bootstrap have nowhere to go wrong yet."""

from dataclasses import replace

import numpy as np
import pytest

from peira.agents.types import End, Tag
from peira.tools.errors import UsageError
from peira.training.credit import CreditSettings, credit
from peira.training.linearize import linearize, linearize_all
from peira.training.pack import pack
from peira.training.rewards import RewardSettings, shaped

TO_GO = CreditSettings(baseline="none", scale="none", returns="to_go", gamma=0.9)


def weights_of(records, turns, rule=TO_GO):
    (found,), _ = credit([records.group([records.episode(turns)])], rule)
    return [w.tolist() for w in found.weights[0]]


def values(credited):
    return np.array([turns[0][0] for turns in credited.weights])


@pytest.mark.parametrize("observed", [0, 1, 40])
def test_b16_observation_tokens_are_no_time(records, observed):
    first = records.turn([1, 2], prompt=[0])
    second = records.turn([3], prompt=[0, 1, 2, *[4] * observed], reward=1.0)
    assert weights_of(records, [first, second]) == [[0.9, 0.9], [1.0]]


def test_b17_turns_without_reward_are_turns(records):
    turns = [records.turn(1, reward=r) for r in (0.0, 1.0, 0.0)]
    assert weights_of(records, turns) == [[0.9], [1.0], [0.0]]


def test_b18_a_reward_that_comes_with_masked_ids_is_not_lost(records):
    """The last turn holds no decision at all; its reward still reaches the decisions before it."""
    turns = [records.turn(2), records.turn(2, reward=1.0, tags=[Tag.FORCED] * 2)]
    assert weights_of(records, turns, CreditSettings(baseline="none", scale="none")) == [[1.0, 1.0], [0.0, 0.0]]
    assert weights_of(records, turns) == [[0.9, 0.9], [0.0, 0.0]]
    ends_in_forced = [records.turn(2, reward=1.0, tags=[Tag.DECISION, Tag.FORCED])]
    assert weights_of(records, ends_in_forced) == [[1.0, 0.0]]


def test_b19_every_decision_of_an_episode_carries_its_advantage(records):
    members = []
    for steps, score in ((1, 0.0), (3, 1.0), (7, 5.0)):
        turns = [records.turn(2, prompt=[k], reward=score if k == steps - 1 else 0.0) for k in range(steps)]
        members.append(records.episode(turns))
    expected = np.array([-2.0, -1.0, 3.0])
    for order in ([0, 1, 2], [2, 0, 1]):
        (found,), _ = credit([records.group([members[i] for i in order])], CreditSettings(scale="none"))
        rows = np.random.default_rng(1).permutation(np.array(linearize(found), dtype=object))
        assert sum(len(r.at) for r in rows) == 22
        for micro in pack(rows, 16).micro:
            np.testing.assert_allclose(micro.weights, expected[order][micro.episode])


def test_b20_a_group_of_two_instances_is_refused(records):
    a, b = records.scored([0.0]), records.scored([1.0], seed=1)
    with pytest.raises(UsageError, match="one instance"):
        records.group([*a.episodes, *b.episodes])


@pytest.mark.parametrize("seed", range(5))
def test_b21_all_of_a_group_is_in_its_statistics(records, seed):
    draw = np.random.default_rng(seed)
    scores = draw.integers(0, 9, size=draw.integers(2, 9)) / 4
    (found,), _ = credit([records.scored(scores.tolist())], CreditSettings())
    spread = (np.square(scores - scores.sum() / len(scores)).sum() / len(scores)) ** 0.5
    expected = (scores - scores.sum() / len(scores)) / (spread + 1e-6) if spread else scores * 0
    np.testing.assert_allclose(values(found), expected, atol=1e-9)


def test_b22_the_mean_is_over_episodes_however_long(records):
    """Success in 2 steps, failure in 50: the baseline is 0.5, not 1/26."""
    quick = records.episode([records.turn(1, prompt=[k], reward=float(k == 1)) for k in range(2)])
    slow = records.episode([records.turn(1, prompt=[k]) for k in range(50)])
    (found,), metrics = credit([records.group([quick, slow])], CreditSettings(scale="none"))
    np.testing.assert_array_equal(values(found), [0.5, -0.5])
    assert metrics["score_mean"] == 0.5
    # Whitening counts decisions, as its paper does: there the long episode weighs more.
    rule = CreditSettings(baseline="none", scale="whiten_batch", eps=0)
    (found,), _ = credit([records.group([quick, slow])], rule)
    p = 2 / 52
    np.testing.assert_allclose(values(found), [(1 - p) / (p * (1 - p)) ** 0.5, -p / (p * (1 - p)) ** 0.5])


def test_b23_rows_without_decisions_change_nothing(records):
    """What other frameworks pad a batch with never enters statistics, denominators or micro-batches."""
    credited, _ = credit([records.scored([0.0, 1.0, 1.0])], CreditSettings())
    rows = linearize_all(credited)
    empty = records.episode([records.turn(2, tags=[Tag.FORCED] * 2)])
    assert linearize(credit([records.group([empty])], CreditSettings())[0][0]) == []
    plain, padded = pack(rows, 6), pack([*rows, *[_hollow(rows[0])] * 7], 6)
    assert plain.decisions == padded.decisions
    assert [m.tokens for m in plain.micro] == [m.tokens for m in padded.micro]
    for a, b in zip(plain.micro, padded.micro, strict=True):
        np.testing.assert_array_equal(a.weights, b.weights)


def _hollow(sample):
    """The sample without its decisions."""
    names = ("at", "targets", "logprobs", "weights", "tags", "versions", "turns", "legal")
    return replace(sample, **{name: getattr(sample, name)[:0] for name in names})


@pytest.mark.parametrize("scale", ["std_group", "std_batch"])
@pytest.mark.parametrize("std", ["population", "sample"])
def test_b24_rounding_noise_is_no_advantage(records, scale, std):
    (found,), metrics = credit([records.scored([1.0, 1.0, 1.0, 1.0 + 1e-5])], CreditSettings(scale=scale, std=std))
    assert not values(found).any()
    assert metrics["flat_group_share"] == 1


@pytest.mark.parametrize("scale", ["std_group", "std_batch", "whiten_batch"])
def test_b24_without_a_baseline_a_unit_of_noise_is_no_unit_either(records, scale):
    rule = CreditSettings(baseline="none", scale=scale)
    (found,), _ = credit([records.scored([1.0, 1.0, 1.0, 1.0 + 1e-5])], rule)
    assert not values(found).any()


def test_b24_a_real_difference_is_kept(records):
    (found,), _ = credit([records.scored([1.0, 1.0, 1.0, 1.01])], CreditSettings())
    assert values(found)[3] == pytest.approx(3**0.5, rel=1e-3)


@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
@pytest.mark.parametrize("scale", ["none", "std_group", "std_batch", "mean", "whiten_batch"])
def test_b25_a_group_of_one_has_nothing_to_compare(records, baseline, scale):
    rule = CreditSettings(baseline=baseline, scale=scale)
    credited, metrics = credit([records.scored([1.0]), records.scored([0.0, 1.0], seed=1)], rule)
    assert not values(credited[0]).any()
    assert values(credited[1]).any()
    assert metrics["singleton_groups"] == 1


@pytest.mark.parametrize("scale", ["none", "std_group", "std_batch"])
def test_b25_nor_do_the_turns_of_one_member_compare_with_each_other(records, scale):
    alone = records.episode([records.turn(1, reward=1.0), records.turn(1, reward=2.0)])
    rule = CreditSettings(scale=scale, returns="to_go")
    (found, _), _ = credit([records.group([alone]), records.scored([0.0, 1.0], seed=1)], rule)
    assert not any(w.any() for w in found.weights[0])


def test_b26_survivors_of_a_filter_are_divided_by_survivors(records):
    """Half the groups gone: a decision's weight is the same, its share of a token mean exactly twice as large."""
    groups = [records.scored([0.0, 1.0], seed=i) for i in range(4)]
    whole, half = (pack(linearize_all(credit(gs, CreditSettings())[0]), 99) for gs in (groups, groups[:2]))
    assert half.decisions * 2 == whole.decisions
    assert set(np.abs(half.micro[0].weights)) == set(np.abs(whole.micro[0].weights))


@pytest.mark.parametrize(("policy", "left_out"), [("keep", 0), ("zero", 0), ("mask", 1), ("drop", 1)])
def test_b27_truncation_is_a_policy_and_counted(records, policy, left_out):
    members = [
        records.episode([records.turn(1, reward=1.0)], end=End.SUCCESS),
        records.episode([records.turn(1)], end=End.FAILURE),
        records.episode([records.turn(1)], end=End.TURN_LIMIT),
    ]
    (found,), metrics = credit([records.group(members)], CreditSettings(truncated=policy))
    assert metrics["truncated"] == 1
    assert len(found.dropped) == metrics["dropped"] == left_out
    assert pack(linearize(found), 99).decisions == 3 - left_out


def test_b28_padding_is_not_truncation(records):
    """The same episodes beside a much longer one: the same weights."""
    group, long = records.scored([0.0, 1.0]), records.scored([0.0, 1.0], lengths=[60, 1], seed=1)
    rule = CreditSettings(truncated="drop")
    alone, beside = credit([group], rule)[0][0], credit([group, long], rule)[0][0]
    np.testing.assert_array_equal(values(alone), values(beside))


@pytest.mark.parametrize("words", [1, 30])
def test_b29_long_answers_are_not_discounted_more(records, words):
    turns = [records.turn(words), records.turn(words), records.turn(words, reward=1.0)]
    found = weights_of(records, turns)
    assert [set(w) for w in found] == [{0.9 * 0.9}, {0.9}, {1.0}]


def test_b32_a_penalty_is_taken_off_once(records):
    turns = [records.turn(1, valid=False), records.turn(1, valid=False), records.turn(1, reward=1.0)]
    group = records.group([records.episode(turns)])
    rewards = shaped([group], RewardSettings(invalid=0.1))
    for returns in ("total", "to_go"):
        rule = CreditSettings(baseline="none", scale="none", returns=returns)
        (found,), metrics = credit([group], rule, rewards=rewards)
        assert metrics["return_mean"] == pytest.approx(1 - 0.2)
        assert found.weights[0][0][0] == pytest.approx(1 - 0.2)
