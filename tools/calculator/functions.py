"""The functions and constants an expression may name."""

import math
from collections.abc import Callable
from fractions import Fraction

from peira.tools.calculator.arithmetic import MAX_BITS, TOO_LARGE, TOO_SMALL, Number, factorial, fit, power, whole
from peira.tools.errors import ToolRefusal

__all__ = ["CONSTANTS", "FUNCTIONS", "MANY"]


def _choose(count: Callable[[int, int], int]) -> Callable[..., Number]:
    def choose(total: Number, chosen: Number) -> Number:
        n, k = whole(total, "counting"), whole(chosen, "counting")
        if n < 0 or k < 0:
            raise ToolRefusal("counting takes numbers that are not negative")
        if k > n:
            return 0
        if n > 2_000 and k * n.bit_length() > MAX_BITS:
            raise ToolRefusal(TOO_LARGE)
        return count(n, k)

    return choose


def _exp(value: Number) -> Number:
    result = math.exp(float(value))
    if not result:
        raise ToolRefusal(TOO_SMALL)
    return result


def _log(value: Number, base: Number = math.e) -> Number:
    if value <= 0 or base <= 0 or base == 1:
        raise ToolRefusal("no real value: log takes positive numbers, and a base that is not 1")
    number = value if isinstance(value, int) else float(value)
    if base == math.e:
        return math.log(number)
    if base in (2, 10):
        return math.log2(number) if base == 2 else math.log10(number)
    return math.log(number, base if isinstance(base, int) else float(base))


def _round(value: Number, places: Number = 0) -> Number:
    digits = whole(places, "round")
    if abs(digits) > 300:
        raise ToolRefusal("round takes at most 300 places")
    scale = Fraction(10) ** digits
    # The shortest decimal of a double is what its reader sees, so that is what is rounded.
    size = abs(Fraction(repr(value)) if isinstance(value, float) else Fraction(value)) * scale
    rounded = Fraction(math.floor(size + Fraction(1, 2)), scale) * (-1 if value < 0 else 1)
    return rounded.numerator if rounded.denominator == 1 else rounded


def _circular(function: Callable[[float], float]) -> Callable[..., Number]:
    def circular(angle: Number) -> Number:
        value = function(float(angle))
        return value if abs(value) > 5e-16 else 0  # sin(pi) is rounding noise, not a result

    return circular


def _real(function: Callable[[float], float]) -> Callable[..., Number]:
    return lambda value: function(float(value))


def _wholes(function: Callable[..., int]) -> Callable[..., Number]:
    def wholes(*values: Number) -> Number:
        result = 0 if function is math.gcd else 1
        for value in values:  # one at a time, so that a common multiple is stopped as soon as it is too long
            result = function(result, whole(value, function.__name__))
            fit(result)
        return result

    return wholes


CONSTANTS: dict[str, Number] = {"pi": math.pi, "e": math.e, "tau": math.tau}
MANY = 1_000

FUNCTIONS: dict[str, tuple[int, int, Callable[..., Number]]] = {
    "sqrt": (1, 1, lambda x: power(x, Fraction(1, 2))),
    "cbrt": (1, 1, lambda x: power(Fraction(x), Fraction(1, 3))),
    "root": (2, 2, lambda x, n: power(x, Fraction(1, whole(n, "root")))),
    "pow": (2, 2, power),
    "exp": (1, 1, _exp),
    "ln": (1, 1, _log),
    "log": (1, 2, _log),
    "log2": (1, 1, lambda x: _log(x, 2)),
    "log10": (1, 1, lambda x: _log(x, 10)),
    "sin": (1, 1, _circular(math.sin)),
    "cos": (1, 1, _circular(math.cos)),
    "tan": (1, 1, _circular(math.tan)),
    "asin": (1, 1, _real(math.asin)),
    "acos": (1, 1, _real(math.acos)),
    "atan": (1, 1, _real(math.atan)),
    "abs": (1, 1, abs),
    "floor": (1, 1, math.floor),
    "ceil": (1, 1, math.ceil),
    "round": (1, 2, _round),
    "min": (1, MANY, lambda *values: min(values)),
    "max": (1, MANY, lambda *values: max(values)),
    "mod": (2, 2, lambda a, b: a % b),
    "gcd": (1, MANY, _wholes(math.gcd)),
    "lcm": (1, MANY, _wholes(math.lcm)),
    "factorial": (1, 1, factorial),
    "comb": (2, 2, _choose(math.comb)),
    "perm": (2, 2, _choose(math.perm)),
}
"""Name to (least arguments, most arguments, function)."""
