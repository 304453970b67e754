"""The calculator's rules, and its agreement with exact arithmetic on random expressions."""

from fractions import Fraction

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from peira.tools.calculator import FUNCTIONS, calculate, evaluate, show
from peira.tools.errors import ToolRefusal

numbers = st.one_of(
    st.integers(0, 10**6).map(str),
    st.tuples(st.integers(0, 999), st.integers(0, 999)).map(lambda p: f"{p[0]}.{p[1]:03d}"),
).map(lambda text: (text, Fraction(text)))


def combined(children):
    """Join two expressions; each side stands in parentheses, so that precedence is not asked about here."""

    def join(parts):
        (left, a), operator, (right, b) = parts
        text = f"({left}){operator}({right})"
        if a is None or b is None or (operator == "/" and b == 0):
            return text, None
        return text, {"+": a + b, "-": a - b, "*": a * b, "/": a / b if b else None}[operator]

    negated = children.map(lambda c: (f"-({c[0]})", None if c[1] is None else -c[1]))
    return st.one_of(st.tuples(children, st.sampled_from("+-*/"), children).map(join), negated)


@given(st.recursive(numbers, combined, max_leaves=12))
def test_random_expressions_agree_with_fractions(case):
    text, value = case
    if value is None:
        with pytest.raises(ToolRefusal, match="division by zero"):
            evaluate(text)
    else:
        assert evaluate(text) == value


flat = st.lists(st.tuples(st.sampled_from(["+", "-", "*", "/", "//", "%"]), st.integers(1, 99)), max_size=8)


@given(st.integers(0, 99), flat, st.booleans())
def test_precedence_agrees_with_pythons(first, rest, spaced):
    joint = " {} " if spaced else "{}"
    text = str(first) + "".join(joint.format(operator) + str(number) for operator, number in rest)
    exact = f"Fraction({first})" + "".join(f"{operator}Fraction({number})" for operator, number in rest)
    assert evaluate(text) == eval(exact, {"Fraction": Fraction})  # our own digits and operators only


@given(st.integers(-30, 30), st.integers(-6, 6))
def test_integer_powers_agree_with_fractions(base, power):
    if base == 0 and power < 0:
        with pytest.raises(ToolRefusal, match="division by zero"):
            evaluate(f"({base})^({power})")
    else:
        assert evaluate(f"({base})^({power})") == Fraction(base) ** power


@given(st.text(max_size=60))
@example("((((((((((")
@example("1e1e1")
@example("sqrt")
@example("max(")
@example("f()!%")
@example("1\u00a02")
@example("1 \x1c")
def test_any_text_gives_a_result_or_a_refusal(text):
    try:
        said = calculate(text)
    except ToolRefusal as refusal:
        said = str(refusal)
    assert said


WORDS = [" ", "**", "//", "<<", ">>", "e", "pi", "x", "of", "mod", *FUNCTIONS]
pieces = st.lists(st.sampled_from([*"0123456789.+-*/^%!(),=<>", *WORDS]), max_size=30)


@given(pieces.map("".join))
def test_any_sequence_of_our_own_tokens_gives_a_result_or_a_refusal(text):
    try:
        result = calculate(text)
    except ToolRefusal:
        return
    assert result
    assert not any(word in result.lower() for word in ("inf", "nan", "j"))


@given(st.integers(-(10**30), 10**30))
def test_a_shown_whole_number_reads_back(number):
    assert evaluate(calculate(f"({number})")) == number


@given(st.decimals(-(10**9), 10**9, places=6, allow_nan=False))
def test_a_shown_decimal_reads_back(number):
    assert evaluate(show(Fraction(number))) == Fraction(number)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("sqrt(16)", "4"),
        ("sqrt(0.25)", "0.5"),
        ("cbrt(-27)", "-3"),
        ("root(32, 5)", "2"),
        ("8^(2/3)", "4"),
        ("(-8)^(2/3)", "4"),
        ("(1/4)^(1/2)", "0.25^0.5"),
        ("pow(2, 5)", "32"),
        ("exp(0)", "1"),
        ("ln(e)", "1"),
        ("log(e)", "1"),
        ("log(8, 2)", "3"),
        ("log(1000, 10)", "3"),
        ("log2(1024)", "10"),
        ("log10(0.001)", "-3"),
        ("sin(pi)", "0"),
        ("cos(0)", "1"),
        ("4atan(1)", "pi"),
        ("abs(-3)", "3"),
        ("floor(-2.5)", "-3"),
        ("ceil(-2.5)", "-2"),
        ("round(2.5)", "3"),
        ("round(-2.5)", "-3"),
        ("round(2.675, 2)", "2.68"),
        ("round(1234, -2)", "1200"),
        ("min(3, 1, 2)", "1"),
        ("max(3, 1, 2)", "3"),
        ("gcd(12, 18, 8)", "2"),
        ("lcm(4, 6, 10)", "60"),
        ("5!", "120"),
        ("-3!", "-6"),
        ("2^3!", "64"),
        ("comb(5, 2)", "10"),
        ("perm(5, 2)", "20"),
        ("7 // 2", "3"),
        ("-7 // 2", "-4"),
        ("1 + 1 << 3", "16"),
        ("256 >> 4", "16"),
        ("3 x 4", "12"),
        ("2 × 3 ÷ 4 − 1", "0.5"),
        ("SQRT(4) + Pi - PI", "2"),
        ("2+3=", "5"),
        ("0^0", "1"),
        ("2*-3", "-6"),
        ("2 - -3", "5"),
        ("1.1^1000", "1.1^1000"),
        ("1e30", "1e30"),
    ],
)
def test_each_documented_rule(expression, value):
    assert calculate(expression) == calculate(value)


def test_every_function_is_reached_by_name():
    for name, (least, _, _) in FUNCTIONS.items():
        assert calculate(f"{name}({', '.join(['1'] * least)})")


def test_a_base_near_one_keeps_its_precision():
    assert float(calculate("(1+10^-12)^(10^12)")) == pytest.approx(2.718281828459045, rel=1e-9)


@pytest.mark.parametrize(
    ("expression", "said"),
    [
        ("(1+2", "never closed"),
        ("1+2)", "no matching"),
        ("2*", "missing at the end"),
        ("*2", "missing before '*'"),
        ("sqrt 4", "parentheses"),
        ("sqrt()", "takes 1 argument, not 0"),
        ("sqrt(1,024)", "takes 1 argument, not 2"),
        ("squrt(4)", "did you mean sqrt"),
        ("1 $ 2", "unexpected character '$'"),
        ("2 3", "operator is missing"),
        ("1\u00a02", "unexpected character '\\xa0'"),
    ],
)
def test_a_refusal_says_what_to_change(expression, said):
    with pytest.raises(ToolRefusal) as caught:
        calculate(expression)
    assert said in str(caught.value)
