"""Numbers as text: reading literals and showing results."""

from decimal import Context, Decimal, Inexact
from fractions import Fraction

from peira.tools.calculator.arithmetic import MAX_DIGITS, TOO_LARGE, TOO_SMALL, Number, fit
from peira.tools.errors import ToolRefusal

__all__ = ["literal", "show"]

_MAX_EXPONENT = 400  # beyond a double's range on both sides


def literal(text: str) -> Number:
    """Return the value of a numeral without sign and commas; with a point or an exponent it is a ``Fraction``."""
    if len(text) <= MAX_DIGITS and text.isdecimal():
        return int(text)
    mantissa, _, exponent = text.lower().partition("e")
    if len(mantissa) > MAX_DIGITS:
        raise ToolRefusal(f"a number has {len(mantissa)} digits; at most {MAX_DIGITS} are read")
    power = int(exponent or 0)
    if abs(power) > _MAX_EXPONENT:
        raise ToolRefusal(TOO_LARGE if power > 0 else TOO_SMALL)
    whole, _, decimals = mantissa.partition(".")
    return fit(Fraction(int(whole + decimals)) * Fraction(10) ** (power - len(decimals)))


def show(value: Number) -> str:
    """Return a number as text: all its digits where 30 are enough, else rounded to 15; ``1.5e30`` beyond that."""
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        return _plain(Decimal(f"{value:.15g}"), 15)
    exact = Context(prec=30, traps=[])
    digits = exact.divide(Decimal(value.numerator), Decimal(value.denominator))
    if not exact.flags[Inexact]:
        return _plain(digits, 30)
    return _plain(Context(prec=15).divide(Decimal(value.numerator), Decimal(value.denominator)), 15)


def _plain(number: Decimal, digits: int) -> str:
    """Write a number of at most ``digits`` significant digits without padding it with zeros it does not have."""
    if not number:
        return "0"
    power = number.adjusted()
    if -7 <= power < digits:
        text = f"{number:f}"
        return text.rstrip("0").rstrip(".") if "." in text else text
    kept = "".join(map(str, number.as_tuple().digits)).rstrip("0")
    return f"{'-' if number < 0 else ''}{kept[0]}{'.' if kept[1:] else ''}{kept[1:]}e{power}"
