"""Properties of the way from episodes to sequences."""

from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.agents.types import Legal, Tag
from peira.tasks.task import Task
from peira.tools.errors import UsageError
from peira.training.credit import CreditSettings, credit
from peira.training.linearize import demonstration_samples, linearize, linearize_all
from peira.training.pack import pack
from peira.training.types import Credited

ACTION = 90
"""Ids from here on are native actions, written as two tokens."""


@st.composite
def turns_of(draw, mode):
    """Turns of one episode, as dictionaries for ``records.turn``; ``mode`` is append, window or mixed."""
    context, turns = draw(st.lists(st.integers(0, 9), min_size=1, max_size=4)), []
    for _ in range(draw(st.integers(1, 5))):
        ids = draw(st.lists(st.sampled_from([*range(10), ACTION, ACTION + 1]), max_size=5))
        written, at = [], []
        for token in ids:
            at.append(len(written))
            written += [7, 8] if token >= ACTION else [token]
        tags = [draw(st.sampled_from([Tag.DECISION, Tag.DECISION, Tag.FORCED, Tag.EXPERT, Tag.UNREAD])) for _ in ids]
        trained = [tag is Tag.DECISION for tag in tags]
        logprobs = [-0.25 * (i + 1) if keep else np.nan for i, keep in enumerate(trained)]
        legal = draw(st.sampled_from([None, Legal(True, (90, 91)), Legal(False, (90, 91))]))
        turns.append(dict(ids=ids, prompt=context, written=written, at=at, tags=tags, logprobs=logprobs, legal=legal))
        observation = draw(st.lists(st.integers(0, 9), max_size=3))
        anew = mode == "window" or (mode == "mixed" and draw(st.booleans()))
        # Ids from 50 on occur nowhere else, so a new context never happens to extend the last one.
        context = [50 + len(turns), *observation] if anew else context + written + observation
    return turns


EPISODE = st.sampled_from(["append", "window", "mixed"]).flatmap(lambda mode: st.tuples(st.just(mode), turns_of(mode)))


def credited_of(records, turns, weight=1.0):
    """A group of this one episode, each decision weighing ``weight`` plus its turn's number."""
    member = records.episode([records.turn(**t) for t in turns])
    weights = [np.where(t.tags == Tag.DECISION, weight + k, 0.0) for k, t in enumerate(member.turns)]
    return Credited(records.group([member]), (tuple(weights),))


def sampled(turns, tag):
    return [
        (k, token) for k, t in enumerate(turns) for token, its in zip(t["ids"], t["tags"], strict=True) if its is tag
    ]


@given(case=EPISODE)
def test_trained_ids_are_the_sampled_decisions_in_order(records, case):
    _, turns = case
    samples = linearize(credited_of(records, turns))
    found = [(int(k), int(token)) for s in samples for k, token in zip(s.turns, s.targets, strict=True)]
    assert found == sampled(turns, Tag.DECISION)


@given(case=EPISODE)
def test_everything_at_a_decision_comes_from_its_turn(records, case):
    _, turns = case
    for s in linearize(credited_of(records, turns)):
        for d in range(len(s.at)):
            turn = turns[s.turns[d]]
            offset = int(s.at[d]) - len(turn["prompt"])
            place = turn["at"].index(offset)
            assert turn["tags"][place] is Tag.DECISION
            assert turn["ids"][place] == s.targets[d]
            assert s.logprobs[d] == np.float32(turn["logprobs"][place])
            assert s.weights[d] == 1 + s.turns[d]
            assert s.ids[s.at[d]] == turn["written"][offset]
            assert s.ids[: s.at[d]].tolist() == turn["prompt"] + turn["written"][:offset]
            assert (s.legal_sets[s.legal[d]] if s.legal[d] >= 0 else None) == turn["legal"]


@given(turns=turns_of("append"))
def test_an_appending_episode_is_one_row(records, turns):
    samples = linearize(credited_of(records, turns))
    assert len(samples) == bool(sampled(turns, Tag.DECISION))
    if samples:
        assert samples[0].ids.tolist() == turns[-1]["prompt"] + turns[-1]["written"]


@given(turns=turns_of("window"))
def test_a_windowed_episode_has_a_row_per_turn_with_decisions(records, turns):
    samples = linearize(credited_of(records, turns))
    with_decisions = sorted({k for k, _ in sampled(turns, Tag.DECISION)})
    assert [s.turns.tolist()[0] for s in samples] == with_decisions
    for s, k in zip(samples, with_decisions, strict=True):
        assert s.ids.tolist() == turns[k]["prompt"] + turns[k]["written"]


@given(case=EPISODE)
def test_expert_ids_are_trained_only_on_demand(records, case):
    _, turns = case
    credited = credited_of(records, turns)
    with_experts = linearize(credited, expert_weight=0.5)
    found = [(int(k), int(t)) for s in with_experts for k, t in zip(s.turns, s.targets, strict=True)]
    both = [
        (k, token)
        for k, t in enumerate(turns)
        for token, tag in zip(t["ids"], t["tags"], strict=True)
        if tag in (Tag.DECISION, Tag.EXPERT)
    ]
    assert found == both
    for s in with_experts:
        assert (s.weights[s.tags == Tag.EXPERT] == 0.5).all()
        assert (s.logprobs[s.tags == Tag.EXPERT] == 0).all()
    demonstrated = demonstration_samples(credited.group.episodes)
    found = [(int(k), int(t)) for s in demonstrated for k, t in zip(s.turns, s.targets, strict=True)]
    assert found == sampled(turns, Tag.EXPERT)
    assert all((s.weights == 1).all() for s in demonstrated)


@given(turns=turns_of("append"))
def test_b39_cutting_an_episode_into_rows_changes_no_total(records, turns):
    """The same decisions as one row, or (prompts made to break) as one row per turn: same sum, same denominators."""
    if not sampled(turns, Tag.DECISION):
        return
    cut = [dict(t, prompt=[60 + k, *t["prompt"]]) for k, t in enumerate(turns)]
    whole, pieces = (pack(linearize(credited_of(records, t)), 10_000) for t in (turns, cut))
    assert len(pieces.micro[0].ids) >= len(whole.micro[0].ids)
    assert whole.decisions == pieces.decisions
    np.testing.assert_array_equal(whole.lengths, pieces.lengths)

    def total(batch):
        return sum(float((m.weights * m.logprobs).sum()) for m in batch.micro) / batch.decisions

    assert total(whole) == pytest.approx(total(pieces), rel=1e-6)


def test_the_worked_example_of_the_types(records):
    turns = [
        dict(ids=[2, 6], prompt=[0, 1], written=[2, 4, 5], at=[0, 1], logprobs=[-0.7, -0.2]),
        dict(ids=[1], prompt=[0, 1, 2, 4, 5, 3], logprobs=[-0.9]),
    ]
    group = records.group([records.episode([records.turn(**t) for t in turns])])
    (sample,) = linearize(Credited(group, ((np.full(2, 0.5), np.full(1, 0.5)),)))
    assert sample.ids.tolist() == [0, 1, 2, 4, 5, 3, 1]
    assert sample.at.tolist() == [2, 3, 6]
    assert sample.targets.tolist() == [2, 6, 1]
    np.testing.assert_allclose(sample.logprobs, [-0.7, -0.2, -0.9])
    assert sample.weights.tolist() == [0.5, 0.5, 0.5]


def test_inputs_are_not_touched(records):
    credited = credited_of(records, [dict(ids=[1, 2], prompt=[0], logprobs=[-1.0, -2.0])])
    before = [w.copy() for w in credited.weights[0]]
    linearize(credited)[0].ids[:] = 77
    assert credited.group.episodes[0].turns[0].prompt.tolist() == [0]
    np.testing.assert_array_equal(credited.weights[0][0], before[0])


def test_a_decision_without_a_log_prob_is_refused(records):
    credited = credited_of(records, [dict(ids=[1], prompt=[0], logprobs=[np.nan])])
    with pytest.raises(UsageError, match="without a finite log-prob"):
        linearize(credited)


def test_dropped_members_make_no_sample(records):
    group = records.scored([0.0, 1.0])
    (credited,), _ = credit([group], CreditSettings())
    assert [s.member for s in linearize(replace(credited, weights=_only(credited, 1), dropped=frozenset({0})))] == [1]


def _only(credited, member):
    return tuple(w if i == member else tuple(np.zeros_like(x) for x in w) for i, w in enumerate(credited.weights))


def test_two_groups_of_one_task_keep_their_members_apart(records):
    credited, _ = credit([records.scored([0.0, 1.0]), records.scored([0.0, 1.0])], CreditSettings())
    assert [s.member for s in linearize_all(credited)] == [0, 1, 2, 3]
    assert {s.group for s in linearize_all(credited)} == {Task.of("sorting", 0).key}
    assert pack(linearize_all(credited), 100).lengths.tolist() == [2, 2, 2, 2]
    with pytest.raises(UsageError, match="linearize_all"):
        pack([s for c in credited for s in linearize(c)], 100)
