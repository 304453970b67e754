"""A calculator that no text can hang, break or escape from.

The expression is read by an own tokenizer and a precedence parser that evaluates as it goes; nothing is ever handed to
Python. The size of every result is bounded *before* it is computed.

The rules, each of them tested:

====================  ==================================================================================================
numbers               ``12``, ``1.5``, ``.5``, ``2e-3``. Whole numbers are exact up to 1,000 digits. Everything else is
                      exact as a fraction while that stays small (so ``0.1+0.2`` is 0.3), then a double; its size must
                      lie within a double's range. Shown: up to 30 digits if they are all of it, else rounded to 15.
commas                ``1,250`` is 1250 (groups of exactly three). Inside a function's parentheses a comma separates.
power                 ``^`` and ``**``, right associative, above a sign: ``-2^2`` = -4, ``2^-1`` = 0.5, ``0^0`` = 1.
                      A negative base has a real root of odd order: ``(-8)^(1/3)`` = -2.
``+ - * / // << >>``  as usual; ``//`` rounds down; shifts bind weakest and take whole numbers. ``× ÷ · −`` too.
``%``                 before a number, a name or ``(`` it is the remainder (with the sign of the divisor, also ``mod``),
                      elsewhere it divides by 100: ``50%`` = 0.5, ``10 % 3`` = 1, ``200 + 10%`` = 200.1, ``10% of 200``.
implicit product      before ``(`` or a name, and after ``)``; binds like ``*``: ``6/2(1+2)`` = 9. ``2 3`` is refused.
``!``                 factorial of a whole number up to 449; binds above power.
words                 ``of`` and ``x`` multiply, ``mod`` is the remainder. Names are read in any case.
functions             see ``FUNCTIONS``; angles are radians, ``log(x)`` is natural, ``log(x, base)``, ``round`` rounds
                      halves away from zero. Constants: ``pi``, ``e``, ``tau``.
``=``                 one at the end is ignored.
====================  ==================================================================================================

At most 2,000 characters and 100 levels of nesting.
"""

from peira.tools.calculator.arithmetic import MAX_DIGITS, Number
from peira.tools.calculator.functions import FUNCTIONS
from peira.tools.calculator.numerals import show
from peira.tools.calculator.parser import MAX_CHARS, evaluate

__all__ = ["FUNCTIONS", "MAX_CHARS", "MAX_DIGITS", "Number", "calculate", "evaluate", "show"]


def calculate(expression: str) -> str:
    """Evaluate an arithmetic expression and return the result as text.

    Args:
        expression: for example ``2*(3+4)``, ``sqrt(2)^3`` or ``12 % 5``.

    Raises:
        ToolRefusal: not an expression, no real value, or too large; the text is one short sentence.
    """
    return show(evaluate(expression))
