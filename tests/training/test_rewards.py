"""The reward map and dynamic sampling."""

import numpy as np
import pytest
from pydantic import ValidationError

from peira.agents.types import Tag
from peira.tools.errors import UsageError
from peira.training.credit import CreditSettings, credit
from peira.training.filters import Filling, FilterSettings
from peira.training.rewards import Overlong, RewardSettings, shaped


@pytest.mark.parametrize(("length", "penalty"), [(0, 0), (80, 0), (85, -0.25), (100, -1), (400, -1)])
def test_soft_overlong_penalty(length, penalty):
    assert Overlong(limit=100, buffer=20).penalty(length) == penalty


def test_a_buffer_longer_than_the_limit_is_refused():
    with pytest.raises(ValidationError, match="does not fit"):
        Overlong(limit=10, buffer=11)


def test_nothing_is_added_by_default(records):
    assert shaped([records.scored([1.0])], RewardSettings()) is None


def test_only_decisions_have_length(records):
    tags = [Tag.DECISION, Tag.FORCED, Tag.UNREAD, Tag.EXPERT, Tag.DECISION]
    turns = [records.turn(5, tags=tags, reward=1.0), records.turn(1, valid=False)]
    group = records.group([records.episode(turns)])
    ((rewards,),) = shaped([group], RewardSettings(length=0.125, invalid=0.5))
    assert rewards.tolist() == [1 - 0.25, -0.125 - 0.5]
    ((rewards,),) = shaped([group], RewardSettings(overlong=Overlong(limit=4, buffer=2)))
    assert rewards.tolist() == [1.0, -0.5]


def test_shaped_rewards_are_what_credit_compares_and_scores_stay(records):
    group = records.scored([1.0, 1.0], lengths=[1, 3])
    rewards = shaped([group], RewardSettings(length=0.5))
    (found,), metrics = credit([group], CreditSettings(scale="none"), rewards=rewards)
    assert [w[0][0] for w in found.weights] == [0.5, -0.5]
    assert metrics["score_mean"] == 1.0
    assert metrics["return_mean"] == 0.0
    assert [e.score for e in group.episodes] == [1.0, 1.0]


class TestFilling:
    RULE = FilterSettings(drop_flat=True, refills=2)

    def test_flat_groups_are_replaced_until_the_step_is_full(self, records):
        useful = [records.scored([0.0, 1.0], seed=i) for i in range(3)]
        state = Filling(2, self.RULE).add([useful[0], records.scored([0.0, 0.0])])
        assert (state.missing, state.finished, state.flat) == (1, False, 1)
        state = state.add(useful[1:])
        assert (state.missing, state.finished) == (0, True)
        assert state.take() == (useful[0], useful[1])

    def test_switched_off_everything_passes(self, records):
        groups = (records.scored([0.0, 0.0]),)
        assert Filling(1, FilterSettings()).add(groups).take() == groups

    def test_a_step_that_stays_short_is_smaller(self, records):
        state = Filling(2, self.RULE).add([records.scored([0.0, 1.0])]).add([]).add([])
        assert state.finished
        assert len(state.take()) == 1

    def test_a_counterfactual_group_speaks_for_itself(self, records):
        group = records.group([records.forked(0.5, 0.0), records.forked(0.5, 0.0)])
        assert Filling(1, self.RULE).add([group]).finished

    def test_nothing_at_all_is_an_error(self, records):
        state = Filling(1, self.RULE).add([records.scored([1.0, 1.0])])
        with pytest.raises(UsageError, match="nothing to compare"):
            state.take()


def test_a3_flat_groups_in_the_stream_leave_the_update_unchanged(records):
    useful = [records.scored([0.0, 1.0, 1.0], seed=i) for i in range(2)]
    flat = [records.scored([0.0, 0.0, 0.0], seed=9 + i) for i in range(5)]
    rule = FilterSettings(drop_flat=True)
    plain, _ = credit(Filling(2, rule).add(useful).take(), CreditSettings())
    mixed, _ = credit(Filling(2, rule).add([flat[0], useful[0], *flat[1:], useful[1]]).take(), CreditSettings())
    for a, b in zip(plain, mixed, strict=True):
        np.testing.assert_array_equal([w[0][0] for w in a.weights], [w[0][0] for w in b.weights])
