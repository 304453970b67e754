"""Users' troubles with masks, advantages and denominators, each with its input and the right answer."""

from dataclasses import replace

import numpy as np
import pytest

from peira.agents.types import End, Tag
from peira.tools.errors import UsageError
from peira.training.credit import CreditSettings, credit
from peira.training.filters import Filling, FilterSettings
from peira.training.linearize import linearize, linearize_all
from peira.training.pack import pack
from peira.training.rewards import RewardSettings, shaped

CENTRED = CreditSettings(scale="none")


def values(credited):
    return np.array([turns[0][0] for turns in credited.weights])


def row_of(records, *turns):
    (credited,), _ = credit([records.group([records.episode(turns)])], CreditSettings(baseline="none", scale="none"))
    return linearize(credited)


def test_p063_ids_that_would_be_tokenised_otherwise_are_kept(records):
    """[1, 2] decode to a word that encodes to [3]."""
    (row,) = row_of(records, records.turn([1, 2], logprobs=[-0.5, -0.25]))
    assert row.targets.tolist() == [1, 2]
    assert row.logprobs.tolist() == [-0.5, -0.25]


def test_p064_as_many_trained_ids_as_the_server_returned(records):
    first = records.turn(7, prompt=[9, 9, 9])
    second = records.turn(5, prompt=[9, 9, 9, *range(1, 8), 8, 8, 8, 8])
    (row,) = row_of(records, first, second)
    assert len(row.at) == 12


def test_p065_stripped_reasoning_gives_a_row_per_turn(records):
    rows = row_of(records, records.turn([30, 31, 4], prompt=[1]), records.turn([5], prompt=[1, 4, 2]))
    assert [(r.ids.tolist(), r.at.tolist()) for r in rows] == [([1, 30, 31, 4], [1, 2, 3]), ([1, 4, 2, 5], [3])]
    (row,) = row_of(records, records.turn([30, 31, 4], prompt=[1]), records.turn([5], prompt=[1, 30, 31, 4, 2]))
    assert row.at.tolist() == [1, 2, 3, 5]


def test_p066_the_end_token_is_trained_though_it_also_pads(records):
    """Ids [5, 9, 2] with 2 = end = pad, beside a longer row."""
    short, long = records.turn([5, 9, 2], prompt=[7]), records.turn([5, 9, 8, 8, 2], prompt=[7], reward=1.0)
    group = records.group([records.episode([short]), records.episode([long])])
    (credited,), _ = credit([group], CENTRED)
    (micro,) = pack(linearize(credited), 99, pad=2).micro
    assert micro.ids.tolist() == [[7, 5, 9, 8, 8, 2], [7, 5, 9, 2, 2, 2]]
    assert micro.at[micro.rows == 1].tolist() == [0, 1, 2]
    assert micro.targets[micro.rows == 1].tolist() == [5, 9, 2]


def test_p070_nothing_to_train_is_an_error_not_a_loss_of_zero(records):
    text_only = records.episode([records.turn(0)])
    (credited,), metrics = credit([records.group([text_only])], CreditSettings())
    assert metrics["empty"] == 1
    with pytest.raises(UsageError, match="at least one trained token"):
        pack(linearize(credited), 99)


def test_p080_advantages_are_centred_per_task(records):
    a, b = credit([records.scored([1, 0, 1, 0]), records.scored([0, 0, 0, 0], seed=1)], CENTRED)[0]
    assert values(a).tolist() == [0.5, -0.5, 0.5, -0.5]
    assert values(b).tolist() == [0, 0, 0, 0]


@pytest.mark.parametrize("scores", [[1, 1, 1, 1], [0.7], [0.1, 0.1, 0.1]])
@pytest.mark.parametrize("baseline", ["mean", "leave_one_out"])
@pytest.mark.parametrize("scale", ["none", "std_group", "std_batch", "mean", "whiten_batch"])
def test_p081_equal_rewards_give_exactly_nothing(records, scores, baseline, scale):
    (found,), _ = credit([records.scored(scores)], CreditSettings(baseline=baseline, scale=scale))
    assert values(found).tolist() == [0.0] * len(scores)


def test_p082_an_unscored_sample_is_masked_and_counted(records):
    (found,), metrics = credit([records.scored([1.0, float("nan"), 0.0, None])], CENTRED)
    assert values(found).tolist() == [0.5, 0.0, -0.5, 0.0]
    assert found.dropped == {1, 3}
    assert metrics["unscored"] == 2
    assert pack(linearize(found), 99).lengths.tolist() == [2, 2]


def test_p083_shuffled_rows_keep_their_advantages(records):
    scores = [[0.0, 1.0, 0.5], [2.0, 0.0, 0.0], [1.0, 1.0, 3.0]]
    groups = [records.scored(s, seed=i) for i, s in enumerate(scores)]
    plain, _ = credit(groups, CreditSettings())
    orders = [(2, [1, 2, 0]), (0, [2, 0, 1]), (1, [0, 2, 1])]
    shuffled = [replace(groups[g], episodes=tuple(groups[g].episodes[i] for i in order)) for g, order in orders]
    again, _ = credit(shuffled, CreditSettings())
    for (g, order), found in zip(orders, again, strict=True):
        np.testing.assert_allclose(values(found), values(plain[g])[order], atol=1e-9)


def test_p084_a_terminal_reward_counts_once(records):
    turns = [records.turn(1, prompt=[k], reward=float(k == 2)) for k in range(3)]
    for returns in ("total", "to_go"):
        rule = CreditSettings(baseline="none", scale="none", returns=returns)
        (found,), metrics = credit([records.group([records.episode(turns)])], rule)
        assert metrics["return_mean"] == 1
        assert [w.tolist() for w in found.weights[0]] == [[1], [1], [1]]
    copied = records.episode([records.turn(1, reward=1.0)] * 3, score=1.0)
    with pytest.raises(UsageError, match="counted once"):
        credit([records.group([copied])], CreditSettings())


@pytest.mark.parametrize("returns", ["total", "to_go"])
@pytest.mark.parametrize("scale", ["none", "std_group", "std_batch"])
def test_p085_more_turns_earn_no_more(records, returns, scale):
    members = [
        records.episode([records.turn(1, prompt=[k], reward=float(k == count - 1)) for k in range(count)])
        for count in (2, 5)
    ]
    failed = records.episode([records.turn(1)])
    rule = CreditSettings(scale=scale, returns=returns)
    (found,), _ = credit([records.group([*members, failed])], rule)
    two, five, _ = ({float(w[0]) for w in turns} for turns in found.weights)
    assert len(two) == 1
    assert two == five
    (found,), _ = credit([records.group(members)], rule)
    assert not any(w.any() for turns in found.weights for w in turns)


def test_p086_filters_look_at_raw_scores(records):
    group = records.scored([0.0, 0.0, 0.0, 0.0], lengths=[1, 1, 9, 9])
    rewards = shaped([group], RewardSettings(length=0.01))
    assert len({float(r[0]) for r in rewards[0]}) == 2
    assert Filling(1, FilterSettings(drop_flat=True)).add([group]).groups == ()


def test_p087_refilling_ends(records):
    state = Filling(4, FilterSettings(drop_flat=True, refills=3))
    while not state.finished:
        state = state.add([records.scored([0.0, 0.0], seed=i) for i in range(state.missing)])
    assert state.rounds == 1 + 3
    with pytest.raises(UsageError, match="16 groups collected in 4 rounds"):
        state.take()


def test_p088_discounting_runs_backwards(records):
    turns = [records.turn(1, reward=r) for r in (1.0, 0.0, 2.0)]
    rule = CreditSettings(baseline="none", scale="none", returns="to_go", gamma=0.9)
    (found,), _ = credit([records.group([records.episode(turns)])], rule)
    np.testing.assert_allclose([w[0] for w in found.weights[0]], [2.62, 1.8, 2.0])


def test_p091_masked_rows_dilute_nothing(records):
    """Two rows of 4 tokens, one masked as truncated, loss 1 per token: the token mean is 1, not 0.5."""
    members = [records.episode([records.turn(4)], end=end) for end in (End.FAILURE, End.TOKEN_LIMIT)]
    (found,), _ = credit([records.group(members)], CreditSettings(truncated="mask"))
    batch = pack(linearize(found), 99)
    assert sum(len(m.at) * 1.0 for m in batch.micro) / batch.decisions == 1.0


def test_p092_masks_travel_with_the_ids(records):
    """Tags [decision, forced, forced, decision]: whoever keeps a row keeps its mask, log-probs and versions."""
    tags = [Tag.DECISION, Tag.FORCED, Tag.FORCED, Tag.DECISION]
    turn = records.turn(4, tags=tags, logprobs=[-1.0, -2.0, -3.0, -4.0], version=6)
    credited, _ = credit([records.group([records.episode([turn])])], CreditSettings())
    (row,) = linearize_all(credited)
    assert row.targets.tolist() == [1, 4]
    assert row.logprobs.tolist() == [-1.0, -4.0]
    assert row.versions.tolist() == [6, 6]
