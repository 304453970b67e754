"""Credit against a few lines of NumPy, and its rules for members that do not count."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.agents.types import End, Finish, Tag
from peira.tools.errors import UsageError
from peira.training.credit import CreditSettings, credit

# Scores on a grid: spreads are then either nil or far above the tolerance.
SCORES = st.lists(st.integers(-20, 20).map(lambda n: n / 10), min_size=2, max_size=6)
STEP = st.lists(SCORES, min_size=1, max_size=4)


def groups_of(records, step):
    return [
        records.scored(scores, lengths=[1 + (3 * i + g) % 4 for i in range(len(scores))], seed=g)
        for g, scores in enumerate(step)
    ]


def first(credited):
    """One number per member; all of its decisions have it."""
    for turns in credited.weights:
        assert all((w == turns[0][0]).all() for w in turns)
    return np.array([turns[0][0] for turns in credited.weights])


def zscore(x, unit):
    return (x - np.sum(x) / len(x)) / (unit + 1e-6) if np.ptp(x) > 0 else np.zeros(len(x))


@given(step=STEP)
def test_grpo_oracle(records, step):
    credited, _ = credit(groups_of(records, step), CreditSettings())
    for scores, found in zip(step, credited, strict=True):
        np.testing.assert_allclose(first(found), zscore(np.array(scores), np.std(scores)), atol=1e-9)


@given(step=STEP)
def test_grpo_oracle_with_the_sample_deviation(records, step):
    credited, _ = credit(groups_of(records, step), CreditSettings(std="sample"))
    for scores, found in zip(step, credited, strict=True):
        np.testing.assert_allclose(first(found), zscore(np.array(scores), np.std(scores, ddof=1)), atol=1e-9)


@given(step=STEP)
def test_rloo_oracle(records, step):
    credited, _ = credit(groups_of(records, step), CreditSettings(baseline="leave_one_out", scale="none"))
    for scores, found in zip(step, credited, strict=True):
        others = [np.mean(scores[:i] + scores[i + 1 :]) for i in range(len(scores))]
        np.testing.assert_allclose(first(found), np.array(scores) - others, atol=1e-9)


@given(step=STEP)
def test_lite_ppo_oracle(records, step):
    credited, _ = credit(groups_of(records, step), CreditSettings(scale="std_batch"))
    unit = np.std([score for scores in step for score in scores])
    for scores, found in zip(step, credited, strict=True):
        np.testing.assert_allclose(first(found), zscore(np.array(scores), unit), atol=1e-9)


@given(step=st.lists(st.lists(st.integers(0, 3).map(float), min_size=2, max_size=6), min_size=1, max_size=3))
def test_maxrl_oracle(records, step):
    credited, _ = credit(groups_of(records, step), CreditSettings(scale="mean"))
    for scores, found in zip(step, credited, strict=True):
        mean = np.mean(scores)
        expected = (np.array(scores) - mean) / (mean + 1e-6) if mean else np.zeros(len(scores))
        np.testing.assert_allclose(first(found), expected, atol=1e-9)


@given(step=STEP, data=st.data())
def test_reinforce_pp_oracle(records, step, data):
    """Token level: every decision's own return, penalties included, whitened over the step."""
    groups = groups_of(records, step)
    draw = np.random.default_rng(data.draw(st.integers(0, 99)))
    penalties = [[[draw.normal(size=len(e.turns[0].completion.ids))] for e in group.episodes] for group in groups]
    rule = CreditSettings(baseline="none", scale="whiten_batch", returns="to_go")
    credited, _ = credit(groups, rule, penalties)
    expected = []
    for group, of_group in zip(groups, penalties, strict=True):
        for member, (values,) in zip(group.episodes, of_group, strict=True):
            expected += [member.score + values[t:].sum() for t in range(len(values))]
    expected = (np.array(expected) - np.mean(expected)) / (np.std(expected) + 1e-6)
    found = np.concatenate([w for c in credited for turns in c.weights for w in turns])
    np.testing.assert_allclose(found, expected, atol=1e-9)


@given(step=STEP)
def test_recipes_that_differ_by_nothing_are_equal_bit_for_bit(records, step):
    groups = groups_of(records, step)
    nothing = [[[np.zeros(len(t.completion.ids)) for t in e.turns] for e in g.episodes] for g in groups]
    plain, _ = credit(groups, CreditSettings())
    neutral, _ = credit(groups, CreditSettings(truncated="keep", gamma=1.0), nothing)
    for a, b in zip(plain, neutral, strict=True):
        np.testing.assert_array_equal(first(a), first(b))


def test_a_penalty_is_part_of_the_return_before_the_baseline(records):
    group = records.scored([1.0, 1.0], lengths=[2, 1])
    penalties = [[[np.array([-0.25, -0.25])], [np.array([0.0])]]]
    (found,), _ = credit([group], CreditSettings(scale="none"), penalties)
    np.testing.assert_allclose(first(found), [-0.25, 0.25])
    (found,), _ = credit([group], CreditSettings(scale="none", returns="to_go"), penalties)
    np.testing.assert_allclose(found.weights[0][0], [0.5 - 0.75, 0.75 - 0.75])


def test_penalties_on_ids_that_are_no_decisions_are_ignored(records):
    tags = [Tag.DECISION, Tag.FORCED]
    member = records.episode([records.turn(2, reward=1.0, tags=tags)])
    other = records.episode([records.turn(2, tags=tags)])
    poison = [[[np.array([0.5, np.nan])], [np.array([0.0, np.inf])]]]
    (found,), _ = credit([records.group([member, other])], CreditSettings(scale="none"), poison)
    np.testing.assert_array_equal(np.concatenate([t[0] for t in found.weights]), [0.75, 0, -0.75, 0])


def test_a_penalty_on_a_decision_must_be_finite(records):
    with pytest.raises(UsageError, match="not finite"):
        credit([records.scored([1.0])], CreditSettings(), [[[np.array([0.0, np.nan])]]])


def test_turn_rewards_are_credited_to_what_came_before(records):
    turns = [records.turn(2, reward=1.0), records.turn(1, reward=0.0), records.turn(3, reward=2.0)]
    rule = CreditSettings(baseline="none", scale="none", returns="to_go", gamma=0.9)
    (found,), _ = credit([records.group([records.episode(turns)])], rule)
    expected = [[2.62, 2.62], [1.8], [2.0, 2.0, 2.0]]
    for weights, values in zip(found.weights[0], expected, strict=True):
        np.testing.assert_allclose(weights, values)


def test_a_discount_without_returns_to_go_is_refused():
    with pytest.raises(ValueError, match="to_go"):
        CreditSettings(gamma=0.9)


def test_maxrl_refuses_negative_returns(records):
    with pytest.raises(UsageError, match="at least 0"):
        credit([records.scored([1.0, -1.0])], CreditSettings(scale="mean"))


def test_a_score_that_is_not_the_sum_of_its_rewards_is_refused(records):
    wrong = records.episode([records.turn(1, reward=1.0)], score=3.0)
    with pytest.raises(UsageError, match="sum to 1"):
        credit([records.group([wrong])], CreditSettings())


@pytest.mark.parametrize(("shape", "words"), [([], "episode 0 of group 0"), ([[[]]], "1 turns, not 0")])
def test_arguments_of_another_shape_are_refused_by_place(records, shape, words):
    with pytest.raises(UsageError, match=words):
        credit([records.scored([1.0])], CreditSettings(), shape)


class TestCounterfactual:
    def test_difference_of_scores_on_all_decisions_but_the_forced_one(self, records):
        group = records.group([records.forked(0.75, 0.0), records.forked(0.0, 0.25), records.forked(0.5, 0.5)])
        (found,), metrics = credit([group], CreditSettings())
        np.testing.assert_allclose([t[0] for t in found.weights], [[0.75, 0, 0.75], [-0.25, 0, -0.25], [0, 0, 0]])
        assert metrics["counterfactual"] == 3
        assert metrics["score_mean"] == pytest.approx(0.25)  # what the policy scored without help
        assert metrics["counterfactual_gain"] == pytest.approx((0.75 - 0.25) / 3)

    @pytest.mark.parametrize("scale", ["none", "std_group", "std_batch", "mean", "whiten_batch"])
    def test_it_changes_no_statistic(self, records, scale):
        """Ordinary members beside it, and other groups, are credited as if it were not there: bit for bit."""
        rule = CreditSettings(scale=scale)
        plain, other = records.scored([0.0, 1.0, 1.0]), records.scored([0.0, 3.0], seed=1)
        mixed = records.group([*plain.episodes[:2], records.forked(0.9, 0.0), plain.episodes[2]])
        (without, beside), _ = credit([plain, other], rule)
        (found, also), _ = credit([mixed, other], rule)
        np.testing.assert_array_equal(first(also), first(beside))
        kept = [found.weights[i][0][0] for i in (0, 1, 3)]
        np.testing.assert_array_equal(kept, first(without))
        np.testing.assert_array_equal(found.weights[2][0], [0.9, 0, 0.9])

    def test_a_group_with_one_success_is_plain_grpo(self, records):
        group = records.scored([0.0, 0.0, 1.0])
        a, _ = credit([group, records.group([records.forked(1.0, 0.0)])], CreditSettings())
        b, _ = credit([group], CreditSettings())
        np.testing.assert_array_equal(first(a[0]), first(b[0]))

    def test_kl_in_the_reward_is_refused(self, records):
        group = records.group([records.forked(1.0, 0.0)])
        with pytest.raises(UsageError, match="place the KL at 'loss'"):
            credit([group], CreditSettings(), [[[np.zeros(3)]]])


class TestLeftOut:
    def _cut(self, records, policy, end=End.TURN_LIMIT):
        ends = [End.SUCCESS, End.FAILURE, end]
        rewards = [1.0, 0.0, 0.5]
        members = [records.episode([records.turn(1, reward=r)], end=e) for r, e in zip(rewards, ends, strict=True)]
        (found,), metrics = credit([records.group(members)], CreditSettings(scale="none", truncated=policy))
        return first(found), found.dropped, metrics

    @pytest.mark.parametrize(
        ("policy", "expected", "dropped"),
        [
            ("keep", [0.5, -0.5, 0.0], set()),
            ("zero", [2 / 3, -1 / 3, -1 / 3], set()),
            ("mask", [0.5, -0.5, 0.0], {2}),
            ("drop", [0.5, -0.5, 0.0], {2}),
        ],
    )
    def test_truncated(self, records, policy, expected, dropped):
        found, left_out, metrics = self._cut(records, policy)
        np.testing.assert_allclose(found, expected)
        assert left_out == dropped
        assert (metrics["truncated"], metrics["dropped"]) == (1, len(dropped))
        assert metrics["decisions"] == 3 - len(dropped)

    def test_masked_counts_in_the_mean_and_dropped_does_not(self, records):
        members = [records.episode([records.turn(1, reward=r)], end=End.FAILURE) for r in (0.0, 1.0)]
        cut = records.episode([records.turn(1, reward=5.0)], end=End.TOKEN_LIMIT)
        group = records.group([*members, cut])
        (masked,), _ = credit([group], CreditSettings(scale="none", truncated="mask"))
        (dropped,), _ = credit([group], CreditSettings(scale="none", truncated="drop"))
        np.testing.assert_allclose(first(masked), [-2, -1, 0])
        np.testing.assert_allclose(first(dropped), [-0.5, 0.5, 0])

    @pytest.mark.parametrize("end", [e for e in End if e.truncated])
    def test_every_limit_is_a_truncation(self, records, end):
        assert self._cut(records, "drop", end)[1] == {2}

    def test_aborted_and_broken_members_are_dropped_and_counted(self, records):
        fine = [records.episode([records.turn(1, reward=r)]) for r in (0.0, 1.0)]
        aborted = records.episode([records.turn(1, reward=1.0, finish=Finish.ABORT)])
        broken = records.episode([records.turn(1, reward=1.0, logprobs=[np.nan])])
        (found,), metrics = credit([records.group([*fine, aborted, broken])], CreditSettings())
        np.testing.assert_allclose(first(found), [-1, 1, 0, 0], atol=1e-5)
        assert found.dropped == {2, 3}
        assert (metrics["aborted"], metrics["broken"], metrics["dropped"]) == (1, 1, 2)

    def test_an_episode_without_turns_is_counted_and_harmless(self, records):
        group = records.group([records.episode([]), records.episode([records.turn(1, reward=1.0)])])
        (found,), metrics = credit([group], CreditSettings(scale="none"))
        assert found.weights[0] == ()
        np.testing.assert_array_equal(found.weights[1][0], [0.5])
        assert metrics["empty"] == 1


def test_flat_and_single_groups_stay_at_zero_when_a_step_is_whitened(records):
    rule = CreditSettings(baseline="mean", scale="whiten_batch")
    groups = [
        records.scored([0.0, 1.0], lengths=[5, 1]),
        records.scored([1.0, 1.0], seed=1),
        records.scored([3.0], seed=2),
    ]
    credited, metrics = credit(groups, rule)
    assert first(credited[0])[1] > 0
    assert not first(credited[1]).any()
    assert not first(credited[2]).any()
    assert metrics["flat_group_share"] == pytest.approx(2 / 3)
    assert metrics["singleton_groups"] == 1


def test_metrics_of_a_step(records):
    _, metrics = credit([records.scored([0.0, 1.0]), records.scored([1.0, 1.0], seed=1)], CreditSettings(eps=0))
    assert metrics["groups"] == 2
    assert metrics["episodes"] == 4
    assert metrics["decisions"] == 8
    assert metrics["score_mean"] == 0.75
    assert metrics["flat_group_share"] == 0.5
    assert metrics["advantage_abs_mean"] == 0.5
    assert metrics["credited_share"] == 0.5


def test_nothing_in_nothing_out():
    assert credit([], CreditSettings())[0] == []
