"""Schedules by their closed forms, gates by a trace."""

import json

import pytest
from pydantic import TypeAdapter, ValidationError

from peira.tools.errors import UsageError
from peira.training.control import Control, Gate

CONTROL = TypeAdapter(Control)


def schedule(**fields):
    return CONTROL.validate_python(fields)


def test_a_number_is_a_constant():
    for given in (3, 0.5):
        assert [CONTROL.validate_python(given).at(step) for step in (0, 7)] == [given, given]


def test_a_truth_value_is_not_a_number():
    with pytest.raises(ValidationError):
        CONTROL.validate_python(True)


def test_linear():
    line = schedule(kind="linear", start=1.0, end=0.2, steps=4)
    assert [line.at(step) for step in (0, 1, 2, 4, 9)] == pytest.approx([1.0, 0.8, 0.6, 0.2, 0.2])


def test_cosine():
    wave = schedule(kind="cosine", start=2.0, end=1.0, steps=6)
    assert [wave.at(step) for step in (0, 2, 3, 4, 6, 60)] == pytest.approx([2.0, 1.75, 1.5, 1.25, 1.0, 1.0])


def test_steps():
    stairs = schedule(kind="steps", values=[1.0, 0.1, 0.01], boundaries=[2, 5])
    assert [stairs.at(step) for step in (0, 1, 2, 4, 5, 99)] == [1.0, 1.0, 0.1, 0.1, 0.01, 0.01]


@pytest.mark.parametrize("fields", [dict(values=[1.0], boundaries=[2]), dict(values=[1, 2, 3], boundaries=[5, 2])])
def test_steps_that_do_not_fit_are_refused(fields):
    with pytest.raises(ValidationError, match="boundaries"):
        schedule(kind="steps", **fields)


def test_warmup_multiplies_another_schedule_and_never_wastes_the_first_update():
    rate = schedule(kind="warmup", steps=4, then={"kind": "linear", "start": 1.0, "end": 0.0, "steps": 10})
    assert [rate.at(step) for step in (0, 1, 3, 4)] == pytest.approx([0.25, 0.9 * 0.5, 0.7, 0.6])


def test_gate_follows_the_running_mean():
    gate = schedule(kind="gate", metric="success", threshold=0.5, below=1.0, above=0.0, decay=0.5)
    state, values, means = gate.initial(), [], []
    for step, success in enumerate([0.4, 0.8, 0.2, 0.0]):
        values.append(gate.at(step, state))
        state = gate.observe(state, {"success": success})
        means.append(state["mean"])
    assert means == pytest.approx([0.4, 0.6, 0.4, 0.2])
    assert values == [1.0, 1.0, 0.0, 1.0]


def test_a_gate_resumes_from_a_checkpoint_of_plain_json():
    gate = schedule(kind="warmup", steps=2, then=dict(kind="gate", metric="m", threshold=0.5, below=1, above=2))
    state = gate.observe(gate.initial(), {"m": 1.0})
    assert gate.at(5, json.loads(json.dumps(state))) == gate.at(5, state) == 2


@pytest.mark.parametrize("metrics", [{}, {"m": float("nan")}])
def test_a_gate_that_sees_nothing_says_so(metrics):
    gate = Gate(metric="m", threshold=0, below=0, above=1)
    with pytest.raises(UsageError, match="'m'"):
        gate.observe({}, metrics)


def test_an_unknown_kind_lists_the_known_ones():
    with pytest.raises(ValidationError, match="'cosine'"):
        schedule(kind="cosin", start=1.0, steps=3)
