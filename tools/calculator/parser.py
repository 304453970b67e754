"""Expression text to a value: a tokenizer, and a precedence parser that evaluates on the way."""

import re
from typing import NamedTuple

from peira.tools.calculator.arithmetic import Number, apply, factorial, guarded
from peira.tools.calculator.functions import CONSTANTS, FUNCTIONS, MANY
from peira.tools.calculator.numerals import literal
from peira.tools.errors import ToolRefusal, nearest

__all__ = ["MAX_CHARS", "evaluate"]

MAX_CHARS = 2_000
_MAX_DEPTH = 100


def evaluate(expression: str) -> Number:
    """Return the value of an expression: ``int`` and ``Fraction`` are exact, ``float`` is rounded.

    Raises:
        ToolRefusal: as ``calculate``.
    """
    if len(expression) > MAX_CHARS:
        raise ToolRefusal(f"the expression has {len(expression)} characters; at most {MAX_CHARS} are read")
    tokens = _tokens(expression)
    if tokens[0] is _END:
        raise ToolRefusal("the expression is empty; write for example 2*(3+4)")
    return _Parser(tokens).whole()


class _Token(NamedTuple):
    kind: str
    """``number``, ``name``, ``op`` or ``end``."""
    text: str
    value: Number = 0


_SAME = str.maketrans({"×": "*", "·": "*", "÷": "/", "−": "-", "–": "-"})
_TOKEN = re.compile(
    r"[ \t\r\n]*(?:(?P<number>(?:[0-9]+\.?[0-9]*|\.[0-9]+)(?:[eE][+-]?[0-9]+)?)"
    r"|(?P<name>[A-Za-z][A-Za-z0-9]*)"
    r"|(?P<op>\*\*|//|<<|>>|[-+*/^%!(),]))"
)
_GROUPED = re.compile(r"[0-9]{1,3}(?:,[0-9]{3})+(?![0-9,])(?:\.[0-9]*)?(?:[eE][+-]?[0-9]+)?")
_END = _Token("end", "")


def _tokens(expression: str) -> list[_Token]:
    """Return the tokens of an expression and two end marks (one for looking ahead).

    Raises:
        ToolRefusal: a character that no expression has, or a number that is too long.
    """
    text = expression.translate(_SAME).strip()
    text = text.removesuffix("=").rstrip()
    tokens: list[_Token] = []
    calls: list[bool] = []  # for each open parenthesis: does it hold a function's arguments
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            strange = text[at:].lstrip(" \t\r\n")[0]
            raise ToolRefusal(f"unexpected character {strange!r}; use numbers, + - * / ^ % ( ) and functions")
        kind = match.lastgroup or ""
        piece = match[kind]
        at = match.end()
        if kind == "number":
            grouped = _GROUPED.match(text, match.start(kind)) if text.startswith(",", at) else None
            if grouped and not (calls and calls[-1]):
                piece, at = grouped.group(), grouped.end()
            tokens.append(_Token(kind, piece, literal(piece.replace(",", ""))))
        elif kind == "name":
            tokens.append(_Token(kind, piece.lower()))
        else:
            if piece == "(":
                calls.append(bool(tokens) and tokens[-1].text in FUNCTIONS)
            elif piece == ")" and calls:
                calls.pop()
            tokens.append(_Token(kind, "^" if piece == "**" else piece))
    return [*tokens, _END, _END]


_BINDING = {
    "<<": 1,
    ">>": 1,
    "+": 2,
    "-": 2,
    "*": 3,
    "/": 3,
    "//": 3,
    "%": 3,
    "^": 5,
}
_PRODUCT, _SIGN, _POSTFIX = 3, 4, 6
_WORDS = {"of": "*", "x": "*", "mod": "%"}


class _Parser:
    """Precedence climbing over tokens, evaluating on the way; every recursion is counted against the depth limit."""

    def __init__(self, tokens: list[_Token]) -> None:
        self.tokens = tokens
        self.at = 0
        self.depth = 0

    def whole(self) -> Number:
        value = self.expression(0)
        rest = self.peek()
        if rest.text == ")":
            raise ToolRefusal("a ')' has no matching '('")
        if rest.text == ",":
            raise ToolRefusal("a comma groups thousands by three digits (1,250) or separates a function's arguments")
        if rest is not _END:
            raise ToolRefusal(f"an operator is missing before {rest.text[:20]!r}")
        return value

    def peek(self) -> _Token:
        return self.tokens[self.at]

    def expression(self, floor: int) -> Number:
        """Read operators that bind at least as strongly as ``floor``."""
        self.depth += 1
        if self.depth > _MAX_DEPTH:
            raise ToolRefusal(f"nested more than {_MAX_DEPTH} levels deep")
        value = self.operand()
        while True:
            operator, binding, width = self.operator()
            if not operator or binding < floor:
                break
            self.at += width
            if operator == "percent":
                value = apply("/", value, 100)
            elif operator == "!":
                value = factorial(value)
            else:
                # Power takes a signed right side (2^-1) and groups to the right; the others group to the left.
                value = apply(operator, value, self.expression(_SIGN if operator == "^" else binding + 1))
        self.depth -= 1
        return value

    def operator(self) -> tuple[str, int, int]:
        """Return the operator that stands after an operand, how it binds, and how many tokens it is."""
        token = self.peek()
        text = token.text
        if text == "%":
            after = self.tokens[self.at + 1]
            divides = after.kind == "number" or after.text == "(" or (after.kind == "name" and after.text not in _WORDS)
            return ("%", _BINDING["%"], 1) if divides else ("percent", _POSTFIX, 1)
        if text == "!":
            return "!", _POSTFIX, 1
        if text in _BINDING:
            return text, _BINDING[text], 1
        if token.kind == "name":
            return (_WORDS[text], _PRODUCT, 1) if text in _WORDS else ("*", _PRODUCT, 0)
        if text == "(" or (token.kind == "number" and self.tokens[self.at - 1].text == ")"):
            return "*", _PRODUCT, 0
        return "", 0, 0

    def operand(self) -> Number:
        token = self.peek()
        self.at += 1
        if token.kind == "number":
            return token.value
        if token.kind == "name":
            return self.named(token.text)
        if token.text in ("-", "+"):
            value = self.expression(_SIGN)
            return -value if token.text == "-" else value
        if token.text == "(":
            value = self.expression(0)
            self.close("(")
            return value
        where = f"before {token.text!r}" if token is not _END else "at the end"
        raise ToolRefusal(f"a number is missing {where}")

    def named(self, name: str) -> Number:
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in FUNCTIONS:
            close = nearest(name, (*FUNCTIONS, *CONSTANTS))
            hint = f"did you mean {close}?" if close else f"known: {', '.join((*FUNCTIONS, *CONSTANTS))}"
            raise ToolRefusal(f"unknown name {name[:20]!r}; {hint}")
        if self.peek().text != "(":
            raise ToolRefusal(f"{name} needs its argument in parentheses: {name}(...)")
        self.at += 1
        arguments: list[Number] = []
        while self.peek().text != ")" or arguments:
            arguments.append(self.expression(0))
            if self.peek().text != ",":
                break
            self.at += 1
        self.close(f"{name}(")
        least, most, function = FUNCTIONS[name]
        if not least <= len(arguments) <= most:
            wanted = str(least) if least == most else f"{least} to {most}" if most < MANY else f"at least {least}"
            raise ToolRefusal(
                f"{name} takes {wanted} argument{'' if wanted.endswith('1') else 's'}, not {len(arguments)}"
            )
        return guarded(function, *arguments)

    def close(self, opened: str) -> None:
        token = self.peek()
        if token.text == ")":
            self.at += 1
        elif token is _END:
            raise ToolRefusal(f"{opened!r} is never closed")
        elif token.text == ",":
            raise ToolRefusal("a comma groups thousands by three digits (1,250) or separates a function's arguments")
        else:
            raise ToolRefusal(f"an operator is missing before {token.text[:20]!r}")
