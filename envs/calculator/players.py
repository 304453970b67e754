"""What scripted players do next. They know what the calculator has printed in this episode."""

import re
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

import numpy as np

from peira.envs.calculator.expressions import EXECUTE, Node, closing, operations, tree, value_of, written
from peira.envs.calculator.problems import Instance, rounded
from peira.envs.core import Env

__all__ = ["direct_calculation", "naive", "next_calculation", "plan"]

_TYPABLE = re.compile(r"[1-9][0-9]*(?:\.[0-9]+)?")


def naive(env: Env[Any], rng: np.random.Generator) -> str:
    """Calculate one operation at a time, as if by hand, then answer.

    An intermediate result that was rounded, or cannot be typed (the calculator of the expanded format has no signs),
    is written out as the operation it came from.
    """
    del rng
    expanded = env.params["actions"] == "expanded"
    calculation = next_calculation(env.instance, env.state.known, expanded=expanded)
    return plan(env, calculation)[0]


def next_calculation(instance: Instance, known: Mapping[str, str], *, expanded: bool) -> str | None:
    """Return the first single operation whose result has not been printed yet."""
    if not instance.expression:
        return None
    for left, operator, right in operations(tree(instance.expression)):
        calculation = f"{_operand(left, expanded)}{operator}{_operand(right, expanded)}"
        if calculation not in known:
            return calculation
    return None


def _operand(node: Node, expanded: bool) -> str:
    if isinstance(node, str):
        return node
    value = value_of(node)
    text = rounded(value)
    if Fraction(text) == value:
        if _TYPABLE.fullmatch(text):
            return text
        if not expanded:
            return f"({text})" if text.startswith("-") else text
    return f"({written(node)})"


def direct_calculation(instance: Instance, known: Mapping[str, str]) -> str | None:
    """Return the whole expression, unless its result has been printed (or there is nothing to calculate)."""
    calculation = instance.expression.replace(" ", "")
    return calculation if calculation and calculation not in known else None


def plan(env: Env[Any], calculation: str | None) -> tuple[str, ...]:
    """Return the actions that calculate something (or nothing) and then answer, from the present state."""
    state = env.state
    answer = f"#### {env.instance.answer}"
    if env.params["actions"] == "tags":
        return (answer,) if calculation is None else (f"calculator {calculation}", answer)
    typing = () if calculation is None else ("calculator", *calculation, EXECUTE)
    if state.typed is None:
        return (*typing, answer)
    if calculation is not None and calculation.startswith(state.typed):
        return (*calculation[len(state.typed) :], EXECUTE, answer)
    # Somebody else began another expression: it has to be ended first.
    return (*closing(state.kind, state.depth), EXECUTE, *typing, answer)
