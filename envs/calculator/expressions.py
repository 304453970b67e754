"""Expressions of the four operations: writing random ones, taking them apart, and typing them symbol by symbol.

The mask of the expanded action space (EARL / ExpA, arXiv 2510.07581) is an automaton over the last symbol and the
number of open parentheses. What it accepts are exactly the prefixes of

    sum = term (("+" | "-" | "*" | "/") term)*      term = number | "(" sum ")"      number = [1-9][0-9]* ("." [0-9]+)?

The paper's rules, plus two that they imply once a prefix has to remain completable: a number has one point, and a point
is followed by a digit (so neither ``1.2.3`` nor ``(1.)``).
"""

import re
from collections.abc import Callable, Iterator

import numpy as np

from peira.tools.calculator import Number, evaluate

__all__ = [
    "DIGITS",
    "EXECUTE",
    "OPERATORS",
    "SYMBOLS",
    "Node",
    "admissible",
    "after",
    "closing",
    "combine",
    "operations",
    "random_expression",
    "tree",
    "value_of",
    "written",
]

DIGITS = "0123456789"
OPERATORS = "+-*/"
EXECUTE = "="
SYMBOLS = (*DIGITS, ".", *OPERATORS, "(", ")", EXECUTE)
"""The 18 actions of the calculator."""

_PARENTHESES = 0.3
_TOKEN = re.compile(r"[0-9.]+|[-+*/()]")

# ---- the mask -------------------------------------------------------------------------------------------------------

# Kinds of place, by the last symbol: nothing, an operator or "(" / a digit of a whole part / a point / a digit after a
# point / ")".
OPEN, WHOLE, POINT, DECIMALS, CLOSED = range(5)
_ALLOWED = {
    OPEN: "123456789(",
    WHOLE: DIGITS + "." + OPERATORS,
    POINT: DIGITS,
    DECIMALS: DIGITS + OPERATORS,
    CLOSED: OPERATORS,
}
_ENDS = (WHOLE, DECIMALS, CLOSED)
_ADMISSIBLE = {
    (kind, nested): tuple(
        symbol for symbol in SYMBOLS if symbol in symbols or (kind in _ENDS and symbol == (")" if nested else EXECUTE))
    )
    for kind, symbols in _ALLOWED.items()
    for nested in (False, True)
}


def admissible(kind: int, depth: int) -> tuple[str, ...]:
    """Return the symbols that may be typed at a place of some kind with ``depth`` open parentheses, in fixed order."""
    return _ADMISSIBLE[kind, depth > 0]


def after(kind: int, symbol: str) -> int:
    """Return the kind of place after typing an admissible symbol."""
    if symbol in DIGITS:
        return DECIMALS if kind in (POINT, DECIMALS) else WHOLE
    return {".": POINT, ")": CLOSED}.get(symbol, OPEN)


def closing(kind: int, depth: int) -> str:
    """Return the shortest text that makes what was typed a whole expression."""
    return ("" if kind in _ENDS else "1") + ")" * depth


# ---- random expressions ---------------------------------------------------------------------------------------------


def random_expression(rng: np.random.Generator, operands: int, digits: int) -> str:
    """Write a random expression of numbers with 1 to ``digits`` digits each (the length is uniform)."""
    numbers = [int(rng.integers(10 ** (size - 1), 10**size)) for size in rng.integers(1, digits + 1, operands).tolist()]
    return combine(rng, numbers)


def combine(rng: np.random.Generator, numbers: list[int], *, outermost: bool = True) -> str:
    """Write a random expression of the given numbers, in their order: the operators are split at random between the two
    sides of the topmost, and an inner operation stands in parentheses with probability 0.3.
    """
    if len(numbers) == 1:
        return str(numbers[0])
    cut = int(rng.integers(1, len(numbers)))
    operator = OPERATORS[int(rng.integers(len(OPERATORS)))]
    left = combine(rng, numbers[:cut], outermost=False)
    right = combine(rng, numbers[cut:], outermost=False)
    text = f"{left} {operator} {right}"
    return f"({text})" if not outermost and rng.random() < _PARENTHESES else text


# ---- taking expressions apart ---------------------------------------------------------------------------------------

Node = str | tuple["Node", str, "Node"]
"""A number, or (left, operator, right)."""


def tree(expression: str) -> Node:
    """Return an expression of the grammar above as a tree; spaces are ignored."""
    tokens = _TOKEN.findall(expression)
    tokens.reverse()
    return _sum(tokens)


def _sum(tokens: list[str]) -> Node:
    return _chain(tokens, "+-", lambda: _chain(tokens, "*/", lambda: _term(tokens)))


def _chain(tokens: list[str], operators: str, operand: Callable[[], Node]) -> Node:
    node = operand()
    while tokens and tokens[-1] in operators:
        operator = tokens.pop()
        node = (node, operator, operand())
    return node


def _term(tokens: list[str]) -> Node:
    token = tokens.pop()
    if token != "(":
        return token
    node = _sum(tokens)
    tokens.pop()
    return node


def operations(node: Node) -> Iterator[tuple[Node, str, Node]]:
    """Yield the operations of a tree in an order in which they can be carried out."""
    if not isinstance(node, str):
        yield from operations(node[0])
        yield from operations(node[2])
        yield node


def written(node: Node) -> str:
    """Return a tree as text in which every operation inside another stands in parentheses."""
    if isinstance(node, str):
        return node
    sides = (node[0], node[2])
    left, right = (side if isinstance(side, str) else f"({written(side)})" for side in sides)
    return f"{left}{node[1]}{right}"


def value_of(node: Node) -> Number:
    """Return a tree's exact value."""
    return evaluate(written(node))
