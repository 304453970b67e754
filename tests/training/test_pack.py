"""Properties of the way from sequences to micro-batches."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.agents.types import Legal
from peira.tools.errors import UsageError
from peira.training.pack import pack
from peira.training.types import Sample

SETS = (Legal(True, (50,)), Legal(False, (50, 51)), Legal(False, (51,)))


def row(length, decisions, *, group="t", member=0, turn=0, sets=(), legal=None, temperature=1.0):
    """A sample of ``length`` ids whose last ids are decisions; every value is recognisable."""
    at = np.arange(length - decisions, length)
    mark = 100 * member + np.arange(decisions)
    return Sample(
        ids=np.arange(1, length + 1, dtype=np.int32),
        at=at.astype(np.int32),
        targets=mark.astype(np.int32),
        logprobs=-(mark + 1).astype(np.float32),
        weights=(mark / 10).astype(np.float32),
        tags=np.zeros(decisions, dtype=np.uint8),
        versions=np.zeros(decisions, dtype=np.int32),
        turns=np.full(decisions, turn, dtype=np.int32),
        legal=np.full(decisions, -1, dtype=np.int32) if legal is None else np.array(legal, dtype=np.int32),
        legal_sets=sets,
        temperature=temperature,
        group=group,
        member=member,
    )


@st.composite
def rows(draw):
    """Rows of several episodes, some cut into rows, in any order."""
    result = []
    for member in range(draw(st.integers(1, 6))):
        for turn in range(draw(st.integers(1, 3))):
            length = draw(st.integers(2, 12))
            decisions = draw(st.integers(0, length - 1))
            legal = draw(st.lists(st.integers(-1, 2), min_size=decisions, max_size=decisions))
            result.append(row(length, decisions, member=member, turn=turn, sets=SETS, legal=legal))
    if not any(len(r.at) for r in result):
        result.append(row(4, 2, member=99))
    return draw(st.permutations(result))


def same(a, b):
    assert len(a.micro) == len(b.micro)
    for x, y in zip(a.micro, b.micro, strict=True):
        for name in ("ids", "rows", "at", "targets", "logprobs", "weights", "tags", "episode", "temperature", "legal"):
            np.testing.assert_array_equal(getattr(x, name), getattr(y, name), err_msg=name)
        assert x.legal_sets == y.legal_sets
    assert a.decisions == b.decisions
    np.testing.assert_array_equal(a.lengths, b.lengths)


@given(samples=rows(), budget=st.integers(1, 60))
def test_every_decision_arrives_once_with_all_that_belongs_to_it(samples, budget):
    batch = pack(samples, budget, pad=7)

    def known(weight, target, logprob, turn_ids, legal):
        return (float(weight), int(target), float(logprob), tuple(turn_ids), legal)

    expected = sorted(
        (
            known(s.weights[d], s.targets[d], s.logprobs[d], s.ids[: s.at[d]], _set(s.legal_sets, s.legal[d]))
            for s in samples
            for d in range(len(s.at))
        ),
        key=str,
    )
    found = sorted(
        (
            known(
                m.weights[d],
                m.targets[d],
                m.logprobs[d],
                m.ids[m.rows[d], : m.at[d] + 1],
                _set(m.legal_sets, m.legal[d]),
            )
            for m in batch.micro
            for d in range(len(m.rows))
        ),
        key=str,
    )
    assert found == expected
    assert batch.decisions == len(expected) == batch.lengths.sum()


def _set(sets, index):
    return None if index < 0 else sets[index]


@given(samples=rows(), budget=st.integers(1, 60), seed=st.integers(0, 9))
def test_the_order_of_samples_does_not_matter(samples, budget, seed):
    shuffled = [samples[i] for i in np.random.default_rng(seed).permutation(len(samples))]
    same(pack(samples, budget), pack(shuffled, budget))


@given(samples=rows(), budget=st.integers(1, 60))
def test_the_budget_holds_except_for_rows_that_are_longer(samples, budget):
    batch = pack(samples, budget)
    for m in batch.micro:
        assert m.tokens <= budget or len(m.ids) == 1
    widths = [m.ids.shape[1] for m in batch.micro]
    assert widths == sorted(widths, reverse=True)


@given(samples=rows(), budgets=st.tuples(st.integers(1, 60), st.integers(1, 60)))
def test_denominators_do_not_depend_on_the_cut(samples, budgets):
    a, b = (pack(samples, budget) for budget in budgets)
    assert a.decisions == b.decisions
    np.testing.assert_array_equal(a.lengths, b.lengths)
    counted = sum(np.bincount(m.episode, minlength=len(a.lengths)) for m in a.micro)
    np.testing.assert_array_equal(counted, a.lengths)


@given(samples=rows(), budget=st.integers(1, 60), pad=st.integers(0, 12))
def test_padding_is_recognised_by_nobody(samples, budget, pad):
    """Another pad id, even one that also occurs as a real id, changes nothing but the padding itself."""
    plain, padded = pack(samples, budget), pack(samples, budget, pad=pad)
    for x, y in zip(plain.micro, padded.micro, strict=True):
        np.testing.assert_array_equal(x.at, y.at)
        np.testing.assert_array_equal(x.weights, y.weights)
        for r in range(len(x.ids)):
            last = max(x.at[x.rows == r]) + 1
            np.testing.assert_array_equal(x.ids[r, : last + 1], y.ids[r, : last + 1])


def test_a_small_batch_by_hand():
    batch = pack([row(3, 1, member=1), row(5, 2, member=0, temperature=0.7)], 10, pad=9)
    (micro,) = batch.micro
    assert micro.ids.tolist() == [[1, 2, 3, 4, 5], [1, 2, 3, 9, 9]]
    assert micro.rows.tolist() == [0, 0, 1]
    assert micro.at.tolist() == [2, 3, 1]
    assert micro.targets.tolist() == [0, 1, 100]
    assert micro.episode.tolist() == [0, 0, 1]
    np.testing.assert_allclose(micro.temperature, [0.7, 0.7, 1.0])
    assert micro.legal.tolist() == [-1, -1, -1]
    assert (batch.decisions, batch.lengths.tolist()) == (3, [2, 1])


def test_equal_legal_sets_of_different_rows_are_one():
    a = row(3, 1, member=0, sets=(SETS[1],), legal=[0])
    b = row(3, 1, member=1, sets=(SETS[0], SETS[1]), legal=[1])
    (micro,) = pack([a, b], 10).micro
    assert [micro.legal_sets[i] for i in micro.legal] == [SETS[1], SETS[1]]
    assert len(set(micro.legal_sets)) == len(micro.legal_sets) == 2


def test_a_budget_below_one_is_refused():
    with pytest.raises(UsageError, match="budget"):
        pack([row(3, 1)], 0)
