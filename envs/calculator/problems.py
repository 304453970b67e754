"""The problems of the calculator world: how they are drawn, and when an answer is right.

Sizes by level; level 3 is the paper's (EARL / ExpA, arXiv 2510.07581), the others are smaller ones of ours. Level 0 has
no numbers in words. The paper's fourth task, rescaled word problems, needs a data set and is not here.

==========  ===========================  ============================  ==============
level       arithmetic                   countdown                     count
==========  ===========================  ============================  ==============
0           2 operands below 10          2 numbers up to 9             1-4 digits
1           2 (test 3) below 100         3 numbers up to 20            1-10 digits
2           3 (test 5) below 1,000       4 numbers up to 100           1-15 digits
3           5 (test 7) below 100,000     4 numbers up to 10,000        1-20 digits
words       10% of train, 70% of test    none                          90%
==========  ===========================  ============================  ==============
"""

import re
from collections import Counter
from dataclasses import dataclass
from fractions import Fraction
from typing import Literal

import numpy as np

from peira.envs.calculator.expressions import combine, random_expression
from peira.envs.calculator.words import in_words
from peira.tools.calculator import Number, evaluate
from peira.tools.errors import ToolRefusal

__all__ = ["KINDS", "LEVELS", "Instance", "Kind", "draw", "is_right", "number", "rounded"]

Kind = Literal["arithmetic", "countdown", "count"]
KINDS: tuple[Kind, ...] = ("arithmetic", "countdown", "count")
LEVELS = range(4)

_OPERANDS = {"train": (2, 2, 3, 5), "test": (2, 3, 5, 7)}
_DIGITS = (1, 2, 3, 5)
_COUNTDOWN = ((2, 9), (3, 20), (4, 100), (4, 10_000))
_LENGTH = (4, 10, 15, 20)
_WORDS = {"train": 0.1, "test": 0.7}
_COUNT_WORDS = 0.9
_PRESENT = 0.75
_LARGEST = 10**9
_CLOSE = Fraction(1, 100_000)


@dataclass(frozen=True, slots=True)
class Instance:
    """One problem."""

    kind: Kind
    expression: str
    """*arithmetic*: what is asked, in digits. *countdown*: a solution. *count*: empty."""
    numbers: tuple[int, ...]
    """*countdown*: the numbers to use, as shown. *count*: the number that is looked at."""
    target: int
    """*countdown*: what to reach. *count*: the digit that is counted."""
    words: bool
    """Whether its numbers are shown in words."""
    answer: str
    """A right answer, as it stands after ``####``."""

    @property
    def content(self) -> tuple[str, ...]:
        """What decides the split an instance belongs to: the problem, not its wording or its stored solution."""
        if self.kind == "arithmetic":
            return self.kind, self.expression
        return self.kind, *sorted(map(str, self.numbers)), str(self.target)

    def shown(self, number: int | str) -> str:
        """Return a number, or the numbers of an expression, as this instance shows them."""
        if not self.words:
            return str(number)
        return re.sub(r"[0-9]+", lambda match: in_words(int(match.group())), str(number))


def draw(rng: np.random.Generator, kind: Kind, level: int, split: str) -> Instance:
    """Draw a problem."""
    extrapolates = "train" if split == "train" else "test"
    if kind == "arithmetic":
        words = level > 0 and rng.random() < _WORDS[extrapolates]
        return _arithmetic(rng, _OPERANDS[extrapolates][level], _DIGITS[level], words)
    if kind == "countdown":
        return _countdown(rng, *_COUNTDOWN[level])
    return _count(rng, _LENGTH[level], level > 0 and rng.random() < _COUNT_WORDS)


def _arithmetic(rng: np.random.Generator, operands: int, digits: int, words: bool) -> Instance:
    while True:
        expression = random_expression(rng, operands, digits)
        value = _acceptable(expression)
        if value is not None:
            return Instance("arithmetic", expression, (), 0, words, rounded(value, strip=True))


def _acceptable(expression: str) -> Number | None:
    """Return a value below 1e9 in size that has at most three decimals, else ``None`` (also for a division by zero)."""
    try:
        value = evaluate(expression)
    except ToolRefusal:
        return None
    return value if -_LARGEST < value < _LARGEST and (value * 1000) % 1 == 0 else None


def _countdown(rng: np.random.Generator, count: int, largest: int) -> Instance:
    while True:
        numbers = rng.integers(1, largest + 1, count).tolist()
        solution = combine(rng, [numbers[at] for at in rng.permutation(count).tolist()])
        value = _acceptable(solution)
        if value is not None and value > 0 and value % 1 == 0:
            return Instance("countdown", solution, tuple(numbers), int(value), False, solution)


def _count(rng: np.random.Generator, longest: int, words: bool) -> Instance:
    length = int(rng.integers(1, longest + 1))
    digits = [int(rng.integers(1, 10)), *rng.integers(0, 10, length - 1).tolist()]
    # A digit drawn from all ten is mostly absent from a short number, and "0" would be a good guess.
    digit = digits[int(rng.integers(length))] if rng.random() < _PRESENT else int(rng.integers(10))
    text = "".join(map(str, digits))
    return Instance("count", "", (int(text),), digit, words, str(text.count(str(digit))))


# ---- numbers as text ------------------------------------------------------------------------------------------------


def rounded(value: Number, *, strip: bool = False) -> str:
    """Return what the calculator prints: an integer, or three decimals (halves away from zero).

    Args:
        value: any number.
        strip: leave out zeros at the end, for an answer.
    """
    if isinstance(value, int):
        return str(value)
    exact = Fraction(value)
    if exact.denominator == 1:
        return str(exact.numerator)
    thousandths = (abs(exact.numerator) * 2000 + exact.denominator) // (2 * exact.denominator)
    whole, decimals = divmod(thousandths, 1000)
    text = f"{whole}.{decimals:03d}"
    minus = "-" if exact < 0 and thousandths else ""
    return minus + (text.rstrip("0").rstrip(".") if strip else text)


_LONGEST = 200
_NUMBER = re.compile(r"([+-]?)((?:[0-9]{1,3}(?:,[0-9]{3})+|[0-9]*)(?:\.[0-9]*)?)(?:[eE]([+-]?[0-9]{1,3}))?")
_BOXED = re.compile(r"\\boxed\{(.*)\}")


def number(text: str) -> Fraction | None:
    """Return the number that a text is, in any usual form (``42.``, ``$1,250``, ``1e-2``, ``**7**``), else ``None``.

    It must be one number: an expression is no answer, however right its value.
    """
    text = text.strip().strip("*`$ ").replace("−", "-")
    boxed = _BOXED.fullmatch(text)
    match = _NUMBER.fullmatch(boxed[1].strip() if boxed else text)
    if match is None or not any(digit.isdigit() for digit in match[2]):
        return None
    digits = match[2].replace(",", "").rstrip(".")
    value = Fraction(f"0{digits}") * Fraction(10) ** int(match[3] or 0)
    return -value if match[1] == "-" else value


# ---- when an answer is right ----------------------------------------------------------------------------------------


def is_right(instance: Instance, said: str) -> bool:
    """Return whether what stands after ``####`` solves the problem.

    The answer is the first line that is not empty; it may be followed by others, but 200 characters in all are the most
    that is looked at: nobody is paid for padding.
    """
    if len(said) > _LONGEST:
        return False
    answer = said.strip().partition("\n")[0].strip()
    if answer == instance.answer:
        return True
    if instance.kind == "countdown":
        return _reaches(instance, answer)
    value = number(answer)
    return value is not None and value == Fraction(instance.answer)


_ARITHMETIC = re.compile(r"[0-9+\-*/(). ]+")


def _reaches(instance: Instance, answer: str) -> bool:
    """Return whether an expression uses each number exactly once and comes to the target (to within 1e-5)."""
    answer = answer.strip("*`$ ") if answer.startswith(("*", "`", "$")) else answer
    if not _ARITHMETIC.fullmatch(answer) or "**" in answer or "//" in answer:
        return False
    used = Counter(re.findall(r"[0-9.]+", answer))
    if used != Counter(map(str, instance.numbers)):
        return False
    try:
        value = evaluate(answer)
    except ToolRefusal:
        return False
    return -_CLOSE < value - instance.target < _CLOSE
