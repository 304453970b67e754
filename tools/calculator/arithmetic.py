"""Arithmetic whose cost is bounded before it is done: exact while that is cheap, a double where it is not."""

import math
from collections.abc import Callable
from fractions import Fraction
from operator import add, floordiv, mod, mul, sub

from peira.tools.errors import ToolRefusal

__all__ = [
    "MAX_BITS",
    "MAX_DIGITS",
    "OPERATIONS",
    "TOO_LARGE",
    "TOO_SMALL",
    "Number",
    "apply",
    "factorial",
    "fit",
    "guarded",
    "power",
    "whole",
]

Number = int | Fraction | float
"""``int`` and ``Fraction`` are exact, ``float`` is rounded."""

MAX_DIGITS = 1_000
MAX_BITS = 3_322  # 1,000 decimal digits
_MAX_FACTORIAL = 449  # the largest with at most 1,000 digits
TOO_LARGE = f"too large: whole numbers may have {MAX_DIGITS} digits, other numbers at most 1.8e308"
TOO_SMALL = "too close to zero: numbers go down to 1e-308"


def fit(value: Number) -> Number:
    """Return a value that may be kept: refuse one out of range, round a fraction whose terms grew too long."""
    if isinstance(value, int):
        if value.bit_length() > MAX_BITS:
            raise ToolRefusal(TOO_LARGE)
        return value
    try:
        rounded = float(value)
    except OverflowError:
        raise ToolRefusal(TOO_LARGE) from None
    if not math.isfinite(rounded):
        raise ToolRefusal(TOO_LARGE)
    if isinstance(value, float):
        return rounded
    if value and not rounded:
        raise ToolRefusal(TOO_SMALL)
    if max(value.numerator.bit_length(), value.denominator.bit_length()) > MAX_BITS:
        return rounded
    return value


def guarded(compute: Callable[..., Number], *arguments: Number) -> Number:
    """Run a computation of bounded cost and turn arithmetic's own errors into refusals."""
    try:
        return fit(compute(*arguments))
    except ZeroDivisionError:
        raise ToolRefusal("division by zero") from None
    except OverflowError:
        raise ToolRefusal(TOO_LARGE) from None
    except ValueError:
        raise ToolRefusal("no real value: an argument is outside the function's domain") from None


def apply(operator: str, left: Number, right: Number) -> Number:
    """Carry out one of ``OPERATIONS``.

    Raises:
        ToolRefusal: no real value, out of range, or too large to be computed.
    """
    result = guarded(OPERATIONS[operator], left, right)
    if isinstance(result, float) and not result and left and right and operator in "*/^":
        raise ToolRefusal(TOO_SMALL)
    return result


def _divide(left: Number, right: Number) -> Number:
    if isinstance(left, float) or isinstance(right, float):
        return left / right
    if isinstance(left, int) and isinstance(right, int):
        whole, rest = divmod(left, right)
        return Fraction(left, right) if rest else whole
    return Fraction(left) / right


def _shift(left: Number, right: Number, direction: int) -> Number:
    number, places = whole(left, "a shift"), whole(right, "a shift")
    if places < 0:
        raise ToolRefusal("a shift takes a count that is not negative")
    if direction < 0:
        return number >> min(places, MAX_BITS)
    if number and number.bit_length() + places > MAX_BITS:
        raise ToolRefusal(TOO_LARGE)
    return number << places if number else 0


def whole(value: Number, what: str) -> int:
    """Return a whole number as an ``int``; ``what`` needs one."""
    if value != math.floor(value):
        raise ToolRefusal(f"{what} takes whole numbers")
    return int(value)


def power(base: Number, exponent: Number) -> Number:
    """Raise to a power, exactly where both are exact and the result is; the real root for a negative base."""
    if isinstance(base, float) or isinstance(exponent, float):
        return _float_power(base, exponent)
    exponent = Fraction(exponent)
    if exponent.denominator != 1:
        return _root_power(base, exponent)
    times = exponent.numerator
    if not base and times < 0:
        raise ToolRefusal("division by zero")
    if isinstance(base, int):
        # Each factor has at least bit_length - 1 bits: this bound is below the true size, by at most a half.
        if (base.bit_length() - 1) * abs(times) > MAX_BITS:
            raise ToolRefusal(TOO_LARGE if times > 0 else TOO_SMALL)
        return base**times if times >= 0 else 1 / Fraction(base**-times)
    if max(base.numerator.bit_length(), base.denominator.bit_length()) * abs(times) > MAX_BITS:
        return _float_power(base, times)
    return base**times


def _root_power(base: int | Fraction, exponent: Fraction) -> Number:
    """Raise to p/q: exact where base is a perfect q-th power, real for a negative base when q is odd."""
    if base < 0 and exponent.denominator % 2 == 0:
        raise ToolRefusal("no real value: an even root of a negative number")
    order = exponent.denominator
    if order <= 64:
        top, bottom = _exact_root(abs(base.numerator), order), _exact_root(base.denominator, order)
        if top is not None and bottom is not None:
            root = top if bottom == 1 else Fraction(top, bottom)
            return power(-root if base < 0 else root, exponent.numerator)
    size = base if base >= 0 else -base
    result = _float_power(size, exponent)
    return -result if base < 0 and exponent.numerator % 2 else result


def _exact_root(number: int, order: int) -> int | None:
    """Return the whole ``order``-th root, or ``None`` if it is not whole."""
    low, high = 0, 1 << (number.bit_length() // order + 1)
    while low < high:
        middle = (low + high) // 2
        if middle**order < number:
            low = middle + 1
        else:
            high = middle
    return low if low**order == number else None


def _float_power(base: Number, exponent: Number) -> float:
    times = float(exponent)
    if base < 0 and not times.is_integer():
        raise ToolRefusal("no real value: a negative number to a power that is not whole")
    above: Number = base - 1
    if 0 < above < 1e-3 or 0 < -above < 1e-3:
        # Rounding a base so near to one would lose what the power multiplies.
        return math.exp(times * math.log1p(float(above)))
    return math.pow(base, times)


def factorial(value: Number) -> int:
    """Return n! for a whole n from 0 to 449."""
    number = whole(value, "factorial")
    if number < 0:
        raise ToolRefusal("factorial takes a number that is not negative")
    if number > _MAX_FACTORIAL:
        raise ToolRefusal(TOO_LARGE)
    return math.factorial(number)


OPERATIONS: dict[str, Callable[[Number, Number], Number]] = {
    "+": add,
    "-": sub,
    "*": mul,
    "/": _divide,
    "//": floordiv,
    "%": mod,
    "^": power,
    "<<": lambda a, b: _shift(a, b, 1),
    ">>": lambda a, b: _shift(a, b, -1),
}
