"""Faults of tokens and masks, as far as they can happen between an episode and a batch."""

import numpy as np
import pytest

from peira.agents.types import Tag
from peira.tools.errors import UsageError
from peira.training.credit import CreditSettings, credit
from peira.training.linearize import linearize
from peira.training.pack import pack
from peira.training.types import Credited


def uniform(group, weight=1.0):
    """Weight every decision alike."""
    return Credited(
        group,
        tuple(tuple(np.where(t.tags == Tag.DECISION, weight, 0.0) for t in e.turns) for e in group.episodes),
    )


def test_b01_a_split_that_no_tokenizer_would_make_survives(records):
    """``<th``, ``ink``, ``>`` is three ids though a tokenizer knows ``<think>`` as one; text is never consulted."""
    turns, context = [], [1]
    for ids in ([11, 12, 13], [11, 12, 13, 11], [13]):
        turns.append(records.turn(ids, prompt=context))
        context = [*context, *ids, 5]
    (sample,) = linearize(uniform(records.group([records.episode(turns)])))
    assert sample.targets.tolist() == [11, 12, 13, 11, 12, 13, 11, 13]
    assert sample.ids[sample.at].tolist() == sample.targets.tolist()


def test_b03_a_template_that_rewrites_history_starts_a_new_row(records):
    """The second prompt lacks the reasoning of the first completion: two rows, each with the ids really sent."""
    first = records.turn([8, 8, 9], prompt=[1, 2])
    second = records.turn([7], prompt=[1, 2, 9, 3])
    rows = linearize(uniform(records.group([records.episode([first, second])])))
    assert [r.ids.tolist() for r in rows] == [[1, 2, 8, 8, 9], [1, 2, 9, 3, 7]]
    assert [r.targets.tolist() for r in rows] == [[8, 8, 9], [7]]


def test_b04_a_row_holds_what_was_sampled_not_what_the_world_understood(records):
    turn = records.turn([4, 4, 9], prompt=[1])
    (row,) = linearize(uniform(records.group([records.episode([turn])])))
    assert row.targets.tobytes() == turn.completion.ids.tobytes()


def test_b06_role_markers_in_texts_move_no_mask(records):
    """Id 3 opens a role in this context; it also occurs in an observation and inside a completion."""
    turns = [records.turn([3, 6, 3], prompt=[3, 1, 3]), records.turn([6], prompt=[3, 1, 3, 3, 6, 3, 3, 3, 1, 3])]
    (row,) = linearize(uniform(records.group([records.episode(turns)])))
    assert row.at.tolist() == [3, 4, 5, 10]
    for k, turn in enumerate(turns):
        assert (row.turns == k).sum() == len(turn.completion.ids)


def test_b07_masks_cover_the_first_and_the_last_sampled_id_and_nothing_of_the_world(records):
    """A probe: the loss reads a table of log-probs [position, id]; only entries of decisions may move it."""
    turns = [records.turn([5, 6], prompt=[1, 2]), records.turn([7, 8], prompt=[1, 2, 5, 6, 3, 3])]
    (micro,) = pack(linearize(uniform(records.group([records.episode(turns)]))), 100).micro

    def loss(table):
        return float((table[micro.rows, micro.at, micro.targets] * micro.weights).sum())

    base = np.zeros((1, micro.ids.shape[1], 10))
    moved = set()
    for place in np.ndindex(base.shape):
        probe = base.copy()
        probe[place] = 1.0
        if loss(probe) != 0:
            moved.add(place[1:])
    # Each id is predicted from the position before the one it stands at.
    assert moved == {(1, 5), (2, 6), (5, 7), (6, 8)}


def test_b08_log_probs_stay_beside_their_ids(records):
    """A bigram table knows the right log-prob of every sampled id; no shift by one survives this."""
    table = np.log(np.random.default_rng(0).dirichlet(np.ones(10), size=10)).astype(np.float32)
    turns, context = [], [1, 2]
    for ids in ([5, 6, 7], [8], [4, 4]):
        before = [context[-1], *ids[:-1]]
        turns.append(
            records.turn(ids, prompt=context, logprobs=[table[b, i] for b, i in zip(before, ids, strict=True)])
        )
        context = [*context, *ids, 3, 2]
    (micro,) = pack(linearize(uniform(records.group([records.episode(turns)]))), 100).micro
    np.testing.assert_array_equal(micro.logprobs, table[micro.ids[micro.rows, micro.at], micro.targets])


def test_b11_a_row_begins_with_the_prompt_that_was_sent(records):
    prompts = [[9, 1, 2], [2, 4, 4, 6]]
    turns = [records.turn([3], prompt=p) for p in prompts]
    rows = linearize(uniform(records.group([records.episode(turns)])))
    assert [r.ids[: r.at[0]].tolist() for r in rows] == prompts


def test_b12_log_probs_of_ids_that_are_not_decisions_reach_no_sum(records):
    tags = [Tag.DECISION, Tag.FORCED, Tag.UNREAD, Tag.DECISION]
    members = [
        records.episode([records.turn(4, tags=tags, logprobs=[-1.0, np.nan, np.nan, -2.0], reward=r)])
        for r in (0.0, 1.0)
    ]
    credited, metrics = credit([records.group(members)], CreditSettings())
    assert metrics["broken"] == 0
    (micro,) = pack([s for c in credited for s in linearize(c)], 100).micro
    assert micro.logprobs.tolist() == [-1.0, -2.0, -1.0, -2.0]
    assert np.isfinite(micro.weights).all()


def test_b13_a_row_without_trained_ids_is_counted_and_a_batch_of_them_refused(records):
    forced = records.episode([records.turn(2, tags=[Tag.FORCED] * 2)])
    fine = records.episode([records.turn(2, reward=1.0)])
    credited, metrics = credit([records.group([forced, fine])], CreditSettings())
    assert metrics["empty"] == 1
    assert [s.member for s in linearize(credited[0])] == [1]
    credited, metrics = credit([records.group([forced, forced])], CreditSettings())
    assert metrics["empty"] == 2
    with pytest.raises(UsageError, match="at least one trained token"):
        pack(linearize(credited[0]), 100)


def test_b37_a_member_with_nan_log_probs_is_dropped_and_the_rest_survives(records):
    members = [records.episode([records.turn(1, reward=r, logprobs=[lp])]) for r, lp in ((0, -1), (1, -1), (1, np.nan))]
    (credited,), metrics = credit([records.group(members)], CreditSettings(eps=0))
    assert metrics["broken"] == metrics["dropped"] == 1
    batch = pack(linearize(credited), 100)
    assert sorted(batch.micro[0].weights.tolist()) == [-1.0, 1.0]
