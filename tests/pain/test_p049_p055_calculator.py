"""What breaks calculators that agents are given: P049-P055, and the tenth of the same kind beside each."""

import math
import resource
import time

import pytest

from peira.tools.calculator import MAX_CHARS, calculate
from peira.tools.errors import ToolRefusal


def refused(expression: str) -> str:
    """Return the refusal, which is one short sentence of ours."""
    with pytest.raises(ToolRefusal) as caught:
        calculate(expression)
    text = str(caught.value)
    assert 0 < len(text) < 300
    assert "\n" not in text
    assert not any(word in text for word in ("Traceback", "Error", "object", "int()", "callable", "sys.", "NoneType"))
    return text


@pytest.mark.parametrize(
    "expression",
    [
        "9**9**9",
        "2**(2**40)",
        "10**10**10",
        "1<<10**9",
        "2^-(10^9)",
        "(1/3)^(10^12)^2",
        "factorial(10**9)",
        "factorial(factorial(20))",
        "comb(10**9, 5*10**8)",
        "perm(10**6, 10**5)",
        "lcm(" + ",".join(str(n) for n in range(1, 400)) + ")^9",
        "9" * 1001,
        "1e999999999",
        "round(1.5, 10**9)",
    ],
)
def test_p049_work_is_bounded_before_it_is_done(expression):
    before = time.process_time(), resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    refused(expression)
    assert time.process_time() - before[0] < 1.0
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before[1] < 20_000  # kilobytes


def test_p049_a_tiny_base_to_a_huge_power_may_be_cheap():
    assert calculate("1**10**9") == "1"
    assert calculate("(-1)**(10**9+1)") == "-1"
    assert calculate("0**10**9") == "0"


def test_p049_ordinary_powers_still_work():
    assert calculate("2**10") == "1024"
    assert float(calculate("2**0.5")) == pytest.approx(math.sqrt(2), rel=1e-14)
    assert calculate("10**-3") == "0.001"
    assert calculate("(-8)**(1/3)") == "-2"
    assert calculate("2**3000") == str(2**3000)
    assert calculate("1<<10") == "1024"


@pytest.mark.parametrize(
    "expression", ["(" * 10_000 + "1" + ")" * 10_000, "1" * 1_000_000, "-" * 1_000_000, "(" * 900, "-" * 1_500 + "1"]
)
def test_p049_depth_and_length_are_bounded(expression):
    refused(expression)


def test_p049_depth_is_bounded_for_every_kind_of_nesting():
    for nested in ("(" * 95 + "1" + ")" * 95, "-" * 95 + "1", "^".join(["1"] * 95), "abs(" * 45 + "1" + ")" * 45):
        assert calculate(nested) in ("1", "-1")
    for nested in ("(" * 101 + "1" + ")" * 101, "-" * 101 + "1", "^".join(["1"] * 102), "abs(" * 101 + "1" + ")" * 101):
        assert "nested" in refused(nested)
    assert "characters" in refused("1" + "+1" * MAX_CHARS)


@pytest.mark.parametrize(("expression", "value"), [("2^10", "1024"), ("-2^2", "-4"), ("2^3^2", "512"), ("2^-1", "0.5")])
def test_p050_the_caret_is_power(expression, value):
    assert calculate(expression) == value
    assert calculate(expression.replace("^", "**")) == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("50%", "0.5"),
        ("10 % 3", "1"),
        ("10%3", "1"),
        ("100 / 50%", "200"),
        ("200 + 10%", "200.1"),  # the rule: % after a number always divides by 100
        ("200 - 10%", "199.9"),
        ("10% + 1", "1.1"),
        ("10% of 200", "20"),
        ("50% * 50%", "0.25"),
        ("-7 % 3", "2"),
        ("7 mod 4", "3"),
        ("mod(7, 4)", "3"),
        ("(10)%(4)", "2"),
        ("50%%", "0.005"),
    ],
)
def test_p051_percent_and_remainder(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("2(3+4)", "14"),
        ("(2)(3)", "6"),
        ("6/2(1+2)", "9"),
        ("2pi", "6.28318530717959"),
        ("2abs(-3)", "6"),
        ("(2)3", "6"),
    ],
)
def test_p052_a_product_may_be_implicit(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize("expression", ["2 3", "2 (3", "3!4", "5(", "1..2", "1.2.3"])
def test_p052_what_is_no_product_is_refused_in_our_words(expression):
    refused(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "__import__('os').getcwd()",
        "().__class__",
        "(lambda:1)()",
        "open('x')",
        "exec(1)",
        "[1 for _ in range(9)]",
        "{1}",
        "a:=1",
        "1 if 1 else 2",
        "f'{1}'",
        "print(1)",
        "1;2",
        "1\\2",
        "`1`",
        "1 and 2",
        "0x10",
        "1_000",
        "１+１",
        "²",
        "٣",
        "\x00",
        "\ud800",
    ],
)
def test_p053_nothing_but_arithmetic_is_read(expression):
    refused(expression)


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("0.1+0.2", "0.3"),
        ("3*1.1", "3.3"),
        ("1,250 + 750", "2000"),
        ("10**17+1", "100000000000000001"),
        ("1,234,567.5 + 0.5", "1234568"),
        ("max(1,250)", "250"),
        ("max((1,250), 3)", "1250"),
        ("1.005*1000", "1005"),
        ("4.35*100", "435"),
        ("1/3", "0.333333333333333"),
        ("1/3*3", "1"),
        ("10**17+0.5", "100000000000000000.5"),
        ("2.50", "2.5"),
        ("-0.0", "0"),
        ("1e2", "100"),
    ],
)
def test_p054_numbers_are_clean(expression, value):
    assert calculate(expression) == value


@pytest.mark.parametrize("expression", ["1,25", "1,2345", "1,234,56", ",5", "1,", "12345,678"])
def test_p054_a_comma_that_groups_nothing_is_refused(expression):
    refused(expression)


@pytest.mark.parametrize(
    "expression",
    [
        "1/0",
        "0/0",
        "1 % 0",
        "1 // 0",
        "0^-1",
        "1e308*10",
        "-1e308*10",
        "sqrt(-1)",
        "(-2)^0.5",
        "(-2)^pi",
        "log(0)",
        "log(-1)",
        "log(2, 1)",
        "asin(2)",
        "exp(1000)",
        "1e-300*1e-300",
        "pi*1e-300*1e-300",
        "exp(-1000)",
        "factorial(-1)",
        "factorial(1.5)",
        "",
        "   ",
        "=",
    ],
)
def test_p055_what_has_no_value_is_a_short_sentence(expression):
    refused(expression)


def test_p055_a_large_factorial_is_exact():
    assert calculate("factorial(171)") == str(math.factorial(171))
    assert calculate("449!") == str(math.factorial(449))


def test_p055_an_error_does_not_end_the_episode():
    from peira.envs.spec import make

    for actions, keys in (("tags", ["calculator 1/0"]), ("expanded", ["calculator", *"1/(1-1)="])):
        env = make("calculator", actions=actions)
        env.reset(seed=0)
        for key in keys:
            observation, reward, terminated, truncated, _ = env.step(key)
            assert (reward, terminated, truncated) == (0.0, False, False)
        assert observation.strip() == "Error: division by zero."
