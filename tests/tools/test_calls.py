"""Parsing never raises, never guesses, and stays fast, whatever a model writes."""

import json
import time

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.tools.calls import (
    Call,
    Stream,
    action_of,
    boxed_answer,
    marked_answer,
    parse,
    split_reasoning,
    tagged_answer,
)
from peira.tools.errors import UsageError

VERBS = ("compare", "swap", "done", "answer")
SHARDS = [
    *(
        "<think>",
        "</think>",
        "<tool_call>",
        "</tool_call>",
        "<compare>",
        "</compare>",
        "<answer>",
        "</answer>",
        "<done/>",
    ),
    *(
        '{"name":"f","arguments":{}}',
        '{"name":"f"',
        '"',
        "\\",
        "{",
        "}",
        "[",
        "]",
        "(",
        ")",
        "f(x=1)",
        "'",
        "=",
        ",",
        ":",
    ),
    *("\\boxed{", "####", " ", "\n", "A B", "é", "\x00", "\ud800", "1e999", "<", ">", "</"),
]
text = st.one_of(st.text(max_size=80), st.lists(st.sampled_from(SHARDS), max_size=25).map("".join))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=20),
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c, max_size=3),
    max_leaves=8,
)


@given(text, st.booleans(), st.booleans())
def test_no_text_raises(said, cut_off, opened):
    for form in ("hermes", "tags", "pythonic"):
        parsed = parse(said, form, verbs=VERBS, cut_off=cut_off, opened=opened)
        assert not (cut_off and parsed.calls)
        assert len(parsed.items) == len(parsed.calls) + len(parsed.problems)
    action, problem, reasoning, kind, end = action_of(said, VERBS, cut_off=cut_off, opened=opened)
    assert (action is None) == (problem is not None) == (kind is not None)
    assert isinstance(reasoning, str)
    assert end is None or said[:end].endswith(">")
    for answer in (tagged_answer, boxed_answer, marked_answer):
        answer(said, opened=opened)


@given(text, st.data())
def test_a_stream_equals_the_whole(said, data):
    cuts = sorted(data.draw(st.lists(st.integers(0, len(said)), max_size=4)))
    for form in ("hermes", "tags", "pythonic"):
        stream = Stream()
        for low, high in zip([0, *cuts], [*cuts, len(said)], strict=True):
            stream.feed(said[low:high])
        assert stream.text == said
        assert stream.parse(form, verbs=VERBS) == parse(said, form, verbs=VERBS)


@given(
    st.lists(
        st.tuples(
            st.from_regex(r"[a-z_]{1,8}", fullmatch=True), st.dictionaries(st.text(max_size=8), json_values, max_size=3)
        ),
        max_size=4,
    )
)
def test_well_formed_calls_come_back_as_they_were(calls):
    said = "hello ".join(f"<tool_call>\n{json.dumps({'name': n, 'arguments': a})}\n</tool_call>" for n, a in calls)
    parsed = parse(said)
    assert [(c.name, c.arguments) for c in parsed.calls] == calls
    assert parsed.problems == ()


@given(
    st.dictionaries(
        st.from_regex(r"[a-z]{1,6}", fullmatch=True), json_values.filter(lambda v: v is not None), max_size=4
    )
)
def test_python_reprs_come_back_as_they_were(arguments):
    said = "[f({})]".format(", ".join(f"{key}={value!r}" for key, value in arguments.items()))
    (found,) = parse(said, "pythonic").calls
    assert found == Call("f", arguments, None, 1)


@given(text)
def test_reasoning_and_the_rest_cover_the_message(said):
    split = split_reasoning(said)
    assert all(low < high for low, high in split.spans)
    assert list(split.spans) == sorted(split.spans)
    if "think" not in said:
        assert (split.reasoning, split.rest(said), split.problem) == ("", said, None)


@pytest.mark.parametrize(
    "said",
    [
        "<tool_call>" * 50_000,
        "<tool_call>{" * 50_000,
        '<tool_call>"' * 50_001,
        '<tool_call>{"a":' * 20_000,
        "<think>" * 50_000 + "<tool_call>",
        "</think>" * 50_000,
        "<compare>" * 50_000,
        "<" + " " * 500_000,
        "< compare" + " " * 500_000,
        "<answer>x</answer>" * 20_000,
        "\\boxed{" * 50_000,
        "[f(x=" + "'" + "\\'" * 200_000,
        "[" + " " * 500_000,
        "[f(" + "a=1," * 50_000,
    ],
    ids=lambda said: said[:16],
)
def test_no_text_takes_long(said):
    began = time.process_time()
    for form in ("hermes", "tags", "pythonic"):
        parse(said, form, verbs=VERBS)
    action_of(said, VERBS)
    boxed_answer(said)
    assert time.process_time() - began < 5.0  # quadratic work on these would take minutes


# ---- actions --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("said", "action"),
    [
        ("<compare>A B</compare>", "compare A B"),
        ("I think <compare> A B </compare>.", "compare A B"),
        ("<compare>A B</compare><swap>A B</swap>", "compare A B"),
        ("<Compare>A B</ compare >", "compare A B"),
        ("<compare>A <compare>B C</compare>", "compare B C"),
        ("<swap>A <compare>B C</compare></swap>", "compare B C"),
        ("<answer>5</answer><compare>A B</compare>", "compare A B"),
        ("<done/>", "done"),
        ("<done></done>", "done"),
        ("done", "done"),
        (" #### 5 ", "#### 5"),
        ("<b>bold</b>", "<b>bold</b>"),
        ("<compared>A B</compared>", "<compared>A B</compared>"),
        ('<compare x="1">A B</compared>', '<compare x="1">A B</compared>'),
        ("1 < 2 and 3 > 2", "1 < 2 and 3 > 2"),
        ("<think>a</think>x<think>b</think>y", "xy"),
    ],
)
def test_which_action_a_message_holds(said, action):
    parsed = action_of(said, VERBS)
    assert (parsed.action, parsed.problem) == (action, None)


def test_text_before_and_after_thinking_counts_but_tags_do_not_reach_across():
    assert action_of("<compare>A <think>no</think>B</compare>", VERBS).kind == "unclosed"
    assert action_of("a <think>no</think><swap>A B</swap>", VERBS).action == "swap A B"


@pytest.mark.parametrize(
    ("said", "kind"),
    [
        ("", "empty"),
        ("  \n", "empty"),
        ("<think>x</think>", "empty"),
        ("<swap>A B", "unclosed"),
        ("<answer></answer>", "empty"),
    ],
)
def test_what_is_no_action_says_why(said, kind):
    parsed = action_of(said, VERBS)
    assert parsed.action is None
    assert parsed.kind == kind
    assert parsed.problem


def test_the_end_of_an_action_is_where_its_tag_closes():
    said = "<think>a</think> so <swap>A B</swap> and then"
    assert said[: action_of(said, VERBS).end].endswith("</swap>")
    assert action_of("plain", VERBS).end is None


def test_without_verbs_the_text_is_the_action():
    assert action_of("<compare>A B</compare>", ()).action == "<compare>A B</compare>"


def test_tags_as_calls():
    parsed = parse("go <compare>A B</compare> then <done/> <swap>A", "tags", verbs=VERBS)
    assert [(c.name, c.arguments) for c in parsed.calls] == [("compare", {"text": "A B"}), ("done", {"text": ""})]
    assert [problem.kind for problem in parsed.problems] == ["unclosed"]


def test_an_unknown_format_is_the_persons_error():
    with pytest.raises(UsageError, match="hermes"):
        parse("", "hermess")
