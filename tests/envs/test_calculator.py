"""The calculator world: problems, answers, both action formats, and the mask (EARL / ExpA, arXiv 2510.07581)."""

import re
from dataclasses import replace
from fractions import Fraction
from itertools import product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.envs.calculator.expressions import DIGITS, OPERATORS, SYMBOLS, admissible, after, closing, tree, value_of
from peira.envs.calculator.problems import KINDS, LEVELS, Instance, draw, is_right, number, rounded
from peira.envs.calculator.words import in_words
from peira.envs.check import check
from peira.envs.seeding import rng
from peira.envs.spec import make
from peira.tools.errors import UsageError

SIZES = {"train": (2, 2, 3, 5), "test": (2, 3, 5, 7)}
LONGEST = (1, 2, 3, 5)
COUNTDOWN = ((2, 9), (3, 20), (4, 100), (4, 10_000))
FORMATS = ("tags", "expanded")


def arithmetic(expression: str, answer: str) -> Instance:
    return Instance("arithmetic", expression, (), 0, False, answer)


def countdown(numbers: tuple[int, ...], target: int) -> Instance:
    return Instance("countdown", "", numbers, target, False, "nothing said")


def start(instance: Instance, actions: str = "tags", **settings):
    env = make("calculator", actions=actions, **settings)
    env.reset(seed=0, options={"instance": instance})
    return env


def play(env, *actions: str):
    for action in actions:
        last = env.step(action)
    return last


# ---- problems -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("level", LEVELS)
@pytest.mark.parametrize("split", ["train", "test"])
def test_arithmetic_keeps_the_papers_rules(level, split):
    shares = []
    for seed in range(60):
        instance = draw(rng("t", seed, level, split), "arithmetic", level, split)
        numbers = re.findall(r"[0-9]+", instance.expression)
        assert len(numbers) == SIZES[split][level]
        assert all(text[0] != "0" and len(text) <= LONGEST[level] for text in numbers)
        value = eval(re.sub(r"([0-9]+)", r"Fraction(\1)", instance.expression), {"Fraction": Fraction})
        assert abs(value) < 10**9
        assert value == Fraction(instance.answer) == round(value, 3)
        shares.append(instance.words)
    expected = 0.0 if level == 0 else {"train": 0.1, "test": 0.7}[split]
    assert abs(sum(shares) / 60 - expected) <= 0.18


@pytest.mark.parametrize("level", LEVELS)
def test_countdown_is_reachable_with_each_number_once(level):
    count, largest = COUNTDOWN[level]
    for seed in range(40):
        instance = draw(rng("t", seed), "countdown", level, "train")
        assert len(instance.numbers) == count
        assert all(1 <= one <= largest for one in instance.numbers)
        assert instance.target > 0
        assert is_right(instance, instance.answer)
        assert is_right(replace(instance, answer=""), instance.expression)  # by the checker, not by comparison


@pytest.mark.parametrize(("level", "longest"), [(0, 4), (1, 10), (2, 15), (3, 20)])
def test_count_counts(level, longest):
    instances = [draw(rng("t", seed), "count", level, "train") for seed in range(80)]
    for instance in instances:
        digits = str(instance.numbers[0])
        assert len(digits) <= longest
        assert int(instance.answer) == sum(digit == str(instance.target) for digit in digits)
    shown_in_words = sum(instance.words for instance in instances) / 80
    assert shown_in_words == 0 if level == 0 else 0.8 <= shown_in_words <= 1.0


def test_mix_draws_all_three():
    env = make("calculator", task="mix")
    kinds = [env.generate(seed).kind for seed in range(60)]
    assert {kind: kinds.count(kind) > 8 for kind in KINDS} == dict.fromkeys(KINDS, True)


def test_splits_share_no_problem_in_any_wording():
    for task in KINDS:
        env = make("calculator", task=task)
        contents = {split: {env.generate(seed, 0, split).content for seed in range(120)} for split in ("train", "test")}
        assert contents["train"]
        assert not contents["train"] & contents["test"]
    instance = Instance("count", "", (123,), 1, False, "1")
    assert env.bucket(instance) == env.bucket(replace(instance, words=True))
    two = Instance("countdown", "3 + 7", (3, 7), 10, False, "3 + 7")
    assert env.bucket(two) == env.bucket(replace(two, numbers=(7, 3), expression="7 + 3", answer="7 + 3"))


@pytest.mark.parametrize(
    ("value", "words"),
    [
        (0, "zero"),
        (7, "seven"),
        (13, "thirteen"),
        (20, "twenty"),
        (45, "forty-five"),
        (100, "one hundred"),
        (1205, "one thousand two hundred five"),
        (99_999, "ninety-nine thousand nine hundred ninety-nine"),
        (10**18 + 1, "one quintillion one"),
    ],
)
def test_numbers_in_words(value, words):
    assert in_words(value) == words


@given(st.integers(0, 10**21 - 1))
def test_words_read_back(value):
    names = {in_words(one): one for one in range(100)}
    scales = {in_words(10 ** (3 * k)).split()[1]: 10 ** (3 * k) for k in range(1, 7)}
    total = group = 0
    for word in in_words(value).split():
        if word == "hundred":
            group *= 100
        elif word in scales:
            total, group = total + group * scales[word], 0
        else:
            group += names[word]
    assert total + group == value


def test_an_instance_in_words_says_no_digit():
    env = start(replace(arithmetic("12 + (3 * 45)", "147"), words=True))
    observation, _ = env.reset(seed=0, options={"instance": env.instance})
    assert observation.startswith("Calculate twelve + (three * forty-five). ")


# ---- answers --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "said",
    [
        "42", " 42\n", "42.", "42.0", "4.2e1", "+42", "$42", "**42**", r"\boxed{42}", "\n42", "42\nbecause",
        "0042",
    ],
)  # fmt: skip
def test_p010_a_right_answer_counts_in_any_form(said):
    assert is_right(arithmetic("40 + 2", "42"), said)


@pytest.mark.parametrize(
    "said",
    [
        "", "NUMBER", "42 apples", "40 + 2", "42 43", "4 2", "4242", "-42", "42%", "0x2A", "forty-two",
        "42" + " " * 10_000, " " * 10_000 + "42", "1e999999999", "42.00000001", ".", "4,2",
    ],
)  # fmt: skip
def test_p010_a_wrong_answer_does_not(said):
    assert not is_right(arithmetic("40 + 2", "42"), said)


def test_p010_numbers_are_compared_by_value():
    for one, other in (("1e-2", "0.0100"), ("1,250", "1250.0"), ("-0.5", "-.5"), ("1,234,567.5", "1234567.50")):
        assert number(one) == number(other) is not None
    assert number("1,25") is None
    assert number("0.1") == Fraction(1, 10)


@pytest.mark.parametrize(
    ("numbers", "target", "said", "right"),
    [
        ((3, 3, 7), 10, "3+7", False),
        ((3, 3, 7), 13, "3+3+7", True),
        ((3, 3, 7), 13, "(3 + 7) + 3", True),
        ((7, 2), 3, "7/2", False),
        ((7, 2), 14, "7*2", True),
        ((7, 2), 49, "7**2", False),
        ((7, 2), 3, "7//2", False),
        ((7, 2), 72, "72", False),
        ((7, 2), 9, "7+2 = 9", False),
        ((7, 2), 9, "9", False),
        ((7, 2), 9, "7+2+0", False),
        ((7, 2), 9, "7+2.0", False),
        ((7, 2), 9, "7+", False),
        ((7, 2), 9, "__import__('os')", False),
        ((7, 2, 3), 14, "7*2 + (3 - 3)", False),
        ((1, 3, 3), 1, "1/3*3", True),
        ((8, 3, 3, 8), 24, "8/(3-8/3)", True),
        ((7, 0, 1), 7, "7/(1-1)", False),
        ((7, 2), 9, "(" * 300 + "7+2" + ")" * 300, False),
    ],
)
def test_p009_countdown_uses_each_number_once_and_compares_exactly(numbers, target, said, right):
    assert is_right(countdown(numbers, target), said) is right


@pytest.mark.parametrize(
    ("value", "shown"),
    [
        (12, "12"),
        (Fraction(12), "12"),
        (Fraction(5, 2), "2.500"),
        (Fraction(1, 3), "0.333"),
        (Fraction(-1, 2000), "-0.001"),
        (Fraction(-1, 2001), "0.000"),
        (Fraction(9995, 10000), "1.000"),
        (2.0, "2"),
        (0.1, "0.100"),
    ],
)
def test_the_display_shows_an_integer_or_three_decimals(value, shown):
    assert rounded(value) == shown


# ---- play -----------------------------------------------------------------------------------------------------------


def test_tags_calculate_and_answer():
    env = start(arithmetic("40 + 2", "42"))
    assert env.verbs == ("calculator",)
    assert play(env, "calculator 40+2")[:4] == ("42", 0.0, False, False)
    observation, reward, terminated, truncated, info = play(env, "So it is #### 41, no:\n#### 42")
    assert (observation, reward, terminated, truncated) == ("Correct.", 1.0, True, False)
    assert (info["success"], info["end"]) == (True, "success")


def test_the_last_answer_counts_and_a_wrong_one_ends_the_episode():
    env = start(arithmetic("40 + 2", "42"))
    observation, reward, terminated, _, info = play(env, "#### 42, no, #### 41")
    assert (observation, reward, terminated, info["success"], info["end"]) == ("Wrong.", 0.0, True, False, "failure")


@pytest.mark.parametrize("actions", FORMATS)
def test_text_without_an_answer_is_refused_until_the_turn_limit(actions):
    env = start(arithmetic("40 + 2", "42"), actions, max_turns=3)
    for turn in range(3):
        observation, reward, terminated, truncated, info = env.step("hm, 42?")
        assert "####" in observation
        assert (reward, terminated, truncated, info["valid"]) == (0.0, False, turn == 2, False)


@pytest.mark.parametrize("actions", FORMATS)
@pytest.mark.parametrize("task", KINDS)
def test_b65_a_policy_that_echoes_the_prompt_scores_nothing(task, actions):
    for level in LEVELS:
        for seed in range(25):
            env = make("calculator", task=task, actions=actions)
            observation, _ = env.reset(seed=seed, options={"level": level})
            assert env.step(observation)[1] == 0.0


def test_the_expanded_calculator_is_entered_typed_and_left():
    env = start(arithmetic("4 + 2", "6"), "expanded")
    assert (env.legal(), env.free_text()) == (("calculator",), True)
    observation, _, _, _, info = env.step("calculator")
    assert (observation, info["valid"], info["free_text"]) == ("", True, False)
    assert info["legal"] == tuple("123456789(")
    assert play(env, *"4+2")[0] == ""
    observation, _, _, _, info = env.step("=")
    assert (observation, info["legal"], info["free_text"]) == ("6\n", ("calculator",), True)
    assert env.step("so #### 6")[1] == 1.0


def test_what_the_mask_forbids_is_refused_and_changes_nothing():
    env = start(arithmetic("4 + 2", "6"), "expanded")
    env.step("calculator")
    before = env.state_key()
    for action in (*set(SYMBOLS) - set("123456789("), "#### 6", "calculator", "", "12", " 1"):
        observation, _, _, _, info = env.step(action)
        assert not info["valid"]
        assert observation.endswith("1 2 3 4 5 6 7 8 9 (")
    assert env.state_key() == before


def test_an_expression_that_grows_for_ever_is_an_error_when_it_is_executed():
    env = start(arithmetic("4 + 2", "6"), "expanded", max_turns=10_000)
    observation = play(env, "calculator", *("1" * 3_000), "=")[0]
    assert observation.startswith("Error: ")
    assert env.free_text()


def test_native_actions_are_one_routing_action_and_eighteen_symbols():
    native = make("calculator", actions="expanded").native()
    assert [action.name for action in native] == ["calculator", *SYMBOLS]
    assert [action.name for action in native if action.routing] == ["calculator"]
    assert len(SYMBOLS) == 18
    assert make("calculator").native() == ()


def test_the_state_key_names_what_is_known_not_how_it_was_learnt():
    one, two = start(arithmetic("4 + 2", "6")), start(arithmetic("4 + 2", "6"))
    play(one, "calculator 4+2", "calculator 1+1", "calculator 4 + 2", "nonsense")
    play(two, "calculator 1+1", "nonsense", "calculator 4+2")
    assert one.state_key() == two.state_key()
    assert start(arithmetic("4 + 2", "6")).state_key() != one.state_key()
    assert start(arithmetic("4 + 3", "7")).state_key() != start(arithmetic("4 + 2", "6")).state_key()
    play(two, "#### 6")
    assert one.state_key() != two.state_key()


def test_unknown_parameters_are_named():
    with pytest.raises(UsageError, match="arithmetic"):
        make("calculator", task="arithmetics")
    with pytest.raises(UsageError, match="expanded"):
        make("calculator", actions="expand")


# ---- the mask: test (g) of the paper --------------------------------------------------------------------------------


def parses(text: str) -> bool:
    """Return whether a text is a whole expression of the grammar, by recursive descent without the mask."""

    def total(at: int) -> int:
        at = term(at)
        while 0 <= at < len(text) and text[at] in OPERATORS:
            at = term(at + 1)
        return at

    def term(at: int) -> int:
        if text[at : at + 1] == "(":
            end = total(at + 1)
            return end + 1 if end >= 0 and text[end : end + 1] == ")" else -1
        match = re.compile(r"[1-9][0-9]*(\.[0-9]+)?").match(text, at)
        return match.end() if match else -1

    return total(0) == len(text)


def typed(text: str) -> tuple[int, int] | None:
    """Return the place after typing a text, or ``None`` if the mask forbids a symbol of it."""
    kind = depth = 0
    for symbol in text:
        if symbol not in admissible(kind, depth):
            return None
        kind, depth = after(kind, symbol), depth + (symbol == "(") - (symbol == ")")
    return kind, depth


# Digits are interchangeable but for zero, and operators altogether: three classes of each keep the enumeration small.
CLASSES = "07.+()"


def test_g_the_mask_accepts_exactly_the_prefixes_of_expressions():
    # A prefix of length n can be completed by a digit and at most n closing parentheses, or it cannot be at all.
    for length in range(7):
        for symbols in product(CLASSES, repeat=length):
            text = "".join(symbols)
            place = typed(text)
            closings = [")" * count for count in range(text.count("(") + 1)]
            completable = any(parses(text + middle + end) for middle in ("", "7") for end in closings)
            assert (place is not None) == completable, text
            if place is not None:
                assert ("=" in admissible(*place)) == parses(text), text
                assert parses(text + closing(*place)), text


def test_g_symbols_of_one_class_are_admissible_together():
    for length in range(5):
        for symbols in product(CLASSES, repeat=length):
            if (place := typed("".join(symbols))) is not None:
                allowed = set(admissible(*place))
                assert len(allowed & set(OPERATORS)) in (0, 4)
                assert len(allowed & set(DIGITS[1:])) in (0, 9)
                for some in set(OPERATORS) & allowed:
                    assert after(place[0], some) == after(place[0], "+")
                for some in set(DIGITS) & allowed:
                    assert after(place[0], some) == after(place[0], "7")


def test_g_the_world_offers_exactly_the_mask():
    env = start(arithmetic("4 + 2", "6"), "expanded")
    draws = rng("mask walk")
    for _ in range(20):
        env.step("calculator")
        text = ""
        for _ in range(12):
            place = typed(text)
            assert place is not None
            assert env.legal() == admissible(*place)
            symbol = env.legal()[int(draws.integers(len(env.legal())))]
            if symbol == "=":
                break
            text += symbol
            assert env.step(symbol)[4]["valid"]
        place = typed(text)
        assert place is not None
        play(env, *closing(*place), "=")
        env.reset(seed=0, options={"instance": env.instance})


# ---- players --------------------------------------------------------------------------------------------------------


def test_trees_follow_precedence():
    assert tree("1+2*3-4") == (("1", "+", ("2", "*", "3")), "-", "4")
    assert tree("(1 + 2) * 3") == (("1", "+", "2"), "*", "3")
    assert value_of(tree("8/(3-8/3)")) == 24


@pytest.mark.parametrize("actions", FORMATS)
@pytest.mark.parametrize("task", KINDS)
def test_naive_is_right_and_calculates_one_operation_at_a_time(task, actions):
    for level in LEVELS:
        for split in ("train", "test"):
            env = make("calculator", task=task, actions=actions)
            env.reset(seed=level, options={"level": level, "split": split})
            reward, over = 0.0, False
            while not over:
                _, reward, terminated, truncated, info = env.step(env.players["naive"](env, rng("naive")))
                assert info["valid"]
                over = terminated or truncated
            assert reward == 1.0
            operators = sum(symbol in OPERATORS for symbol in env.instance.expression)
            assert (operators > 0) <= len(env.state.known) <= operators  # equal operations are asked once


def test_naive_writes_out_what_cannot_be_typed_or_was_rounded():
    env = start(arithmetic("(1 - 2) * (1 / 3) * 3", "-1"))
    steps = []
    while not steps or not steps[-1].startswith("####"):
        steps.append(env.players["naive"](env, rng("naive")))
        env.step(steps[-1])
    assert steps == [
        "calculator 1-2",
        "calculator 1/3",
        "calculator (-1)*(1/3)",
        "calculator ((1-2)*(1/3))*3",
        "#### -1",
    ]


@pytest.mark.parametrize("begun", ["", "4", "4+", "4+2", "9*(", "9.", "9.5*(2-(1"])
def test_the_oracle_ends_what_somebody_else_began(begun):
    env = start(arithmetic("4 + 2", "6"), "expanded")
    play(env, "calculator", *begun)
    plan = env.oracle()
    for action in plan:
        _, reward, terminated, _, info = env.step(action)
        assert info["valid"]
    assert terminated
    assert reward == 1.0
    if "4+2".startswith(begun):
        assert plan == (*"4+2="[len(begun) :], "#### 6")


@pytest.mark.parametrize("actions", FORMATS)
def test_the_world_conforms(actions):
    report = check("calculator", task="mix", actions=actions)
    assert report.ok, str(report)
