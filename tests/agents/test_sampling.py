"""Uniform streams, inverse-CDF draws and legality rules of the local engine."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.agents.engines.sampling import GO_ON, NATIVE, STOP, Rules, draw, uniforms
from peira.agents.types import Legal
from peira.tools.errors import UsageError

CPU = torch.device("cpu")


def test_uniforms_are_splitmix64() -> None:
    # The generator's published outputs for seed 1234567.
    published = [6457827717110365317, 3203168211198807973, 9817491932198370423, 4593380528125082431]
    got = uniforms(np.full(4, 1234567, dtype=np.uint64), np.arange(4))
    assert got.tolist() == [(value >> 11) * 2.0**-53 for value in published]


def test_uniforms_depend_on_seed_and_counter_alone() -> None:
    seeds, counters = np.array([1, 2, 3], dtype=np.uint64), np.array([5, 0, 9])
    together = uniforms(seeds, counters)
    alone = [uniforms(seeds[i : i + 1], counters[i : i + 1])[0] for i in range(3)]
    assert together.tolist() == alone
    assert len(set(together.tolist())) == 3


@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
def test_draw_is_the_inverse_cdf(temperature: float) -> None:
    n = 20_000
    logits = torch.tensor([2.0, -torch.inf, 0.0, -1.0, -torch.inf])
    grid = (np.arange(n) + 0.5) / n
    ids, logprobs = draw(logits.expand(n, 5), np.full(n, temperature), grid)
    weights = np.exp(np.array([2.0, -np.inf, 0.0, -1.0, -np.inf]) / temperature)
    share = weights / weights.sum()
    # On an even grid of uniforms, an id's count is its probability times n, to within the two ends of its interval.
    assert np.abs(np.bincount(ids, minlength=5) - n * share).max() <= 1.01
    np.testing.assert_allclose(logprobs, np.log(share[ids]), atol=2e-6)


@settings(max_examples=60, deadline=None)
@given(
    st.lists(st.floats(-30, 30, width=32), min_size=2, max_size=12),
    st.sampled_from([0.0, 0.1, 1.0, 7.0]),
    st.sampled_from([0.0, 2.0**-53, 0.5, 1.0 - 2.0**-53]),
    st.data(),
)
def test_draw_never_takes_an_illegal_id(logits: list[float], temperature: float, u: float, data: st.DataObject) -> None:
    legal = data.draw(st.sets(st.integers(0, len(logits) - 1), min_size=1))
    row = torch.full((1, len(logits)), -torch.inf)
    for i in legal:
        row[0, i] = logits[i]
    ids, logprobs = draw(row, np.array([temperature]), np.array([u]))
    assert int(ids[0]) in legal
    assert np.isfinite(logprobs).all()


def test_p095_temperature_belongs_in_the_logprob() -> None:
    logits = torch.tensor([[2.0, 0.0, -1.0]])
    ids, logprobs = draw(logits, np.array([0.5]), np.array([0.985]))  # the interval of id 1 is [0.9796, 0.9975)
    assert ids.tolist() == [1]
    assert logprobs[0] == pytest.approx(-4.0206, abs=5e-5)


def test_greedy_reports_the_logprob_at_temperature_one() -> None:
    ids, logprobs = draw(torch.tensor([[2.0, 0.0, -1.0]]), np.array([0.0]), np.array([0.999]))
    assert ids.tolist() == [0]
    assert logprobs[0] == pytest.approx(-0.1698, abs=5e-5)


def test_b37_a_row_of_nan_is_told_by_its_logprob() -> None:
    logits = torch.tensor([[0.0, 1.0, 2.0], [0.0, torch.nan, 2.0]])
    ids, logprobs = draw(logits, np.ones(2), np.array([0.5, 0.5]))
    assert np.isfinite(logprobs).tolist() == [True, False]
    assert ids.max() <= 2


def test_a_rule_masks_and_tells_what_ends_a_completion() -> None:
    rules = Rules(vocab=4, rows=7, device=CPU)
    index = rules.index(Legal(True, (4, 5)), (2,), set)
    assert torch.isinf(rules.penalty[index]).tolist() == [False] * 6 + [True]
    assert rules.effect[index].tolist() == [GO_ON, GO_ON, STOP, GO_ON, NATIVE, NATIVE, GO_ON]
    plain = rules.index(None, (), set)
    assert torch.isinf(rules.penalty[plain]).tolist() == [False] * 4 + [True] * 3


def test_a_stop_id_that_is_admissible_stops() -> None:
    rules = Rules(vocab=4, rows=4, device=CPU)
    assert rules.effect[rules.index(Legal(False, (1, 2)), (2,), set)].tolist() == [GO_ON, NATIVE, STOP, GO_ON]


def test_rules_in_use_are_never_dropped() -> None:
    rules = Rules(vocab=6, rows=6, device=CPU, capacity=2)
    first, second = rules.index(Legal(False, (0,)), (), set), rules.index(Legal(False, (1,)), (), set)
    third = rules.index(Legal(False, (2,)), (), lambda: {first})
    assert third == second  # the one not in use gave way
    assert rules.effect[third].tolist() == [GO_ON, GO_ON, NATIVE, GO_ON, GO_ON, GO_ON]
    fourth = rules.index(Legal(False, (3,)), (), lambda: {first, third})
    assert fourth not in (first, third)
    assert rules.effect[[first, third, fourth]].argmax(1).tolist() == [0, 2, 3]


@pytest.mark.parametrize("legal", [Legal(False, ()), Legal(False, (9,)), Legal(True, (-1,))])
def test_impossible_legal_sets_are_refused(legal: Legal) -> None:
    with pytest.raises(UsageError):
        Rules(vocab=4, rows=6, device=CPU).check(legal, ())
