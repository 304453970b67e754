"""Scalars that change while training: learning rate, KL coefficient, clip range, anything that is one number.

A schedule is data. ``at(step, state)`` is pure: the same step and state give the same number, so nothing has to be
replayed after a resume. Only gates have a state; it is a small dictionary of numbers that the loop passes on and a
checkpoint stores::

    state = lr.initial()
    for step in range(steps):
        value = lr.at(step, state)
        ...
        state = lr.observe(state, metrics)

``at(0)`` is the value of the first update. In a recipe a plain number is a constant.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self

from pydantic import BeforeValidator, Field, model_validator

from peira.tools.errors import UsageError
from peira.training.settings import Settings

__all__ = ["Constant", "Control", "Cosine", "Gate", "Linear", "Plan", "Schedule", "State", "Steps", "Warmup"]

State = Mapping[str, float]
"""What a gate remembers: plain JSON numbers."""

NO_STATE: State = {}


class Schedule(Settings, ABC):
    """A number for every step."""

    @abstractmethod
    def at(self, step: int, state: State = NO_STATE) -> float:
        """Return the value for update number ``step`` (from 0)."""

    def initial(self) -> dict[str, float]:
        """Return the state before the first update."""
        return {}

    def observe(self, state: State, metrics: Mapping[str, float]) -> dict[str, float]:
        """Return the state after an update with these metrics.

        Raises:
            UsageError: a watched metric is not among them or not finite.
        """
        del metrics
        return dict(state)


class Constant(Schedule):
    """Always the same."""

    kind: Literal["constant"] = "constant"
    value: float

    def at(self, step: int, state: State = NO_STATE) -> float:
        """Return the value."""
        return self.value

    def extremes(self) -> tuple[float, float]:
        """Return the value, twice."""
        return self.value, self.value


class Linear(Schedule):
    """From ``start`` at step 0 in a straight line to ``end`` at step ``steps``, and ``end`` ever after."""

    kind: Literal["linear"] = "linear"
    start: float
    end: float = 0.0
    steps: int = Field(ge=1)

    def at(self, step: int, state: State = NO_STATE) -> float:
        """Return the point on the line."""
        return self.start + (self.end - self.start) * min(step / self.steps, 1.0)

    def extremes(self) -> tuple[float, float]:
        """Return where it begins and ends."""
        return self.start, self.end


class Cosine(Schedule):
    """From ``start`` at step 0 along half a cosine wave to ``end`` at step ``steps``, and ``end`` ever after."""

    kind: Literal["cosine"] = "cosine"
    start: float
    end: float = 0.0
    steps: int = Field(ge=1)

    def at(self, step: int, state: State = NO_STATE) -> float:
        """Return the point on the wave."""
        height = (1 + math.cos(math.pi * min(step / self.steps, 1.0))) / 2
        return self.end + (self.start - self.end) * height

    def extremes(self) -> tuple[float, float]:
        """Return where it begins and ends."""
        return self.start, self.end


class Steps(Schedule):
    """``values[i]`` from step ``boundaries[i - 1]`` on, ``values[0]`` before the first boundary."""

    kind: Literal["steps"] = "steps"
    values: tuple[float, ...]
    boundaries: tuple[int, ...]

    @model_validator(mode="after")
    def _one_more_value(self) -> Self:
        if len(self.values) != len(self.boundaries) + 1:
            raise ValueError(f"{len(self.boundaries)} boundaries need {len(self.boundaries) + 1} values")
        if any(a >= b for a, b in zip(self.boundaries, self.boundaries[1:], strict=False)):
            raise ValueError(f"boundaries must increase: {list(self.boundaries)}")
        return self

    def at(self, step: int, state: State = NO_STATE) -> float:
        """Return the value of the stair the step is on."""
        return self.values[sum(step >= boundary for boundary in self.boundaries)]

    def extremes(self) -> tuple[float, float]:
        """Return the least and the greatest value."""
        return min(self.values), max(self.values)


class Warmup(Schedule):
    """Another schedule times ``(step + 1) / steps`` during the first ``steps`` updates.

    The first update gets a share, not nothing: an update at rate 0 would cost a whole round of episodes.
    """

    kind: Literal["warmup"] = "warmup"
    steps: int = Field(ge=1)
    then: "Control"

    def at(self, step: int, state: State = NO_STATE) -> float:
        """Return the share of the other schedule's value at the same step."""
        return self.then.at(step, state) * min((step + 1) / self.steps, 1.0)

    def initial(self) -> dict[str, float]:
        """Return the other schedule's state."""
        return self.then.initial()

    def observe(self, state: State, metrics: Mapping[str, float]) -> dict[str, float]:
        """Pass the metrics on."""
        return self.then.observe(state, metrics)


class Gate(Schedule):
    """One of two values, by the running mean of a metric: ``above`` while it is at least ``threshold``.

    The mean starts with the first value seen, not with 0, so it needs no warm-up of its own.
    """

    kind: Literal["gate"] = "gate"
    metric: str
    threshold: float
    below: float
    above: float
    decay: float = Field(default=0.9, ge=0, lt=1)
    """Weight of the past; 0 looks at the last value alone."""

    def at(self, step: int, state: State = NO_STATE) -> float:
        """Return ``below`` until the mean reaches the threshold (and before anything was seen), else ``above``."""
        return self.above if state.get("mean", -math.inf) >= self.threshold else self.below

    def observe(self, state: State, metrics: Mapping[str, float]) -> dict[str, float]:
        """Move the mean towards the metric's new value."""
        value = metrics.get(self.metric)
        if value is None or not math.isfinite(value):
            raise UsageError(f"a gate watches the metric {self.metric!r}, which is {value}; known: {sorted(metrics)}")
        mean = state.get("mean", value)
        return {"mean": self.decay * mean + (1 - self.decay) * value}


def _number_is_constant(value: Any) -> Any:
    return (
        {"kind": "constant", "value": value}
        if isinstance(value, int | float) and not isinstance(value, bool)
        else value
    )


Plan = Annotated[
    Annotated[Constant | Linear | Cosine | Steps, Field(discriminator="kind")],
    BeforeValidator(_number_is_constant),
]
"""The type of a field that holds a schedule which looks at nothing but the step; it also takes a plain number."""

Control = Annotated[
    Annotated[Constant | Linear | Cosine | Steps | Warmup | Gate, Field(discriminator="kind")],
    BeforeValidator(_number_is_constant),
]
"""The type of a field that holds a schedule; it also takes a plain number."""

Warmup.model_rebuild()
