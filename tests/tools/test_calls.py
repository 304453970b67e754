"""Parsing never raises, never guesses, and stays fast, whatever a model writes."""

import importlib.util
import json
import time
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.tools.calls import (
    FORMATS,
    Call,
    Stream,
    action_of,
    boxed_answer,
    marked_answer,
    parse,
    split_reasoning,
    tagged_answer,
    write,
)
from peira.tools.errors import UsageError

VERBS = ("compare", "swap", "done", "answer")
_spec = importlib.util.spec_from_file_location("fuzz_calls", Path(__file__).parents[1] / "fuzz" / "fuzz_calls.py")
fuzz = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(fuzz)
text = st.one_of(st.text(max_size=80), st.lists(st.sampled_from(fuzz.SHARDS), max_size=25).map("".join))
json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(10**12), 10**12) | st.text(max_size=20),
    lambda c: st.lists(c, max_size=3) | st.dictionaries(st.text(max_size=8), c, max_size=3),
    max_leaves=8,
)


@given(text, st.booleans(), st.booleans())
def test_no_text_raises(said, cut_off, opened):
    for form in FORMATS:
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
    for form in FORMATS:
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


names = st.from_regex(r"[a-z_]{1,8}", fullmatch=True)
keys = st.from_regex(r"[a-z]{1,6}", fullmatch=True)
hostile = st.lists(st.sampled_from(fuzz.SHARDS), max_size=6).map("".join)
any_value = st.one_of(json_values, hostile)


@pytest.mark.parametrize("form", ["hermes", "llama3", "mistral", "pythonic", "react"])
@given(st.lists(st.tuples(names, st.dictionaries(keys, any_value, max_size=3)), min_size=1, max_size=3))
def test_what_is_written_is_read_again(form, made):
    calls = [Call(name, arguments) for name, arguments in made[: 1 if form == "react" else None]]
    parsed = parse(write(calls, form), form)
    assert [(c.name, c.arguments) for c in parsed.calls] == [(c.name, c.arguments) for c in calls]
    assert parsed.problems == ()
    assert parsed.text == ""


@given(st.lists(st.tuples(names, st.dictionaries(keys, any_value, max_size=3)), min_size=1, max_size=3))
def test_a_format_of_plain_text_gives_texts_back_or_refuses_to_write(made):
    calls = [Call(name, arguments) for name, arguments in made]
    try:
        said = write(calls, "qwen_coder")
    except UsageError:  # a value holds what would end it: there is no way to say it
        assert "=" in repr(made) or "think" in repr(made).lower()
        return
    for sent, got in zip(calls, parse(said, "qwen_coder").calls, strict=True):
        assert got.name == sent.name
        for key, value in sent.arguments.items():
            assert got.arguments[key] == (value if isinstance(value, str) else json.dumps(value, ensure_ascii=False))


@pytest.mark.parametrize(
    ("form", "call", "said"),
    [
        (
            "hermes",
            Call("f", {"x": [1]}, "id7"),
            '<tool_call>\n{"id": "id7", "name": "f", "arguments": {"x": [1]}}\n</tool_call>',
        ),
        ("llama3", Call("f", {"x": "é"}), '{"name": "f", "parameters": {"x": "é"}}'),
        ("mistral", Call("f", {"x": 1}), '[TOOL_CALLS][{"name": "f", "arguments": {"x": 1}}]'),
        ("pythonic", Call("f", {"x": "a'b", "y": None}), '[f(x="a\'b", y=None)]'),
        ("react", Call("f", {"x": 1}), 'Action: f\nAction Input: {"x": 1}'),
        ("tags", Call("f", {"text": "A B"}), "<f>A B</f>"),
        (
            "qwen_coder",
            Call("f", {"x": "a\nb", "y": {"z": 1}}),
            '<tool_call>\n<function=f>\n<parameter=x>\na\nb\n</parameter>\n<parameter=y>\n{"z": 1}\n</parameter>\n'
            "</function>\n</tool_call>",
        ),
    ],
)
def test_how_each_format_writes(form, call, said):
    assert write([call], form) == said
    assert write([], form) == ""


@pytest.mark.parametrize(
    ("form", "calls"),
    [
        ("hermes", [Call("f", {"x": float("nan")})]),
        ("hermes", [Call("", {})]),
        ("llama3", [Call("f", {"x": object()})]),
        ("pythonic", [Call("f", {}, "id7")]),
        ("pythonic", [Call("f", {"not a name": 1})]),
        ("react", [Call("f", {}), Call("g", {})]),
        ("react", [Call("two words", {})]),
        ("tags", [Call("f", {"text": "</f>"})]),
        ("tags", [Call("f", {"q": "x"})]),
        ("tags", [Call("f", {"text": " edge "})]),
        ("qwen_coder", [Call("f", {"x": "</parameter></function></tool_call>"})]),
        ("qwen_coder", [Call("f", {"x": "<parameter=y>"})]),
    ],
)
def test_what_a_format_cannot_say_is_refused(form, calls):
    with pytest.raises(UsageError, match="cannot be written"):
        write(calls, form)


def test_the_fuzzer_finds_nothing():
    done, trips = fuzz.run(seed=1, start=0, texts=300, seconds=None)
    assert done == 300
    assert trips > 300


def _raises(text, *given, **options):
    if "<|python_tag|>" in text:
        raise RecursionError
    return parse(text, *given, **options)


def _forgets_cut_off(text, form="hermes", **options):
    return parse(text, form, **{**options, "cut_off": False})


def _drops_arguments(text, form="hermes", **options):
    parsed = parse(text, form, **options)
    return type(parsed)(parsed.reasoning, parsed.text, tuple(Call(c.name, {}, c.id, c.at) for c in parsed.calls), ())


@pytest.mark.parametrize("planted", [_raises, _forgets_cut_off, _drops_arguments])
def test_the_fuzzer_finds_what_is_planted(planted):
    with pytest.raises(AssertionError, match="seed 1, text"):
        fuzz.run(seed=1, start=0, texts=300, seconds=None, parser=planted)


@given(text)
def test_reasoning_and_the_rest_cover_the_message(said):
    split = split_reasoning(said)
    assert all(low < high for low, high in split.spans)
    assert list(split.spans) == sorted(split.spans)
    if "think" not in said and "THINK" not in said:
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
        "[f(x=" * 50_000 + "<think>",
        "[TOOL_CALLS]" * 50_000,
        '[TOOL_CALLS][{"' * 50_000,
        "[TOOL_CALLS]f[ARGS]{" * 30_000 + "<think>",
        '[TOOL_CALLS]f[ARGS]{"a":1}' * 20_000,
        '{"name":' * 50_000,
        '{"name":"f","parameters":{}};' * 20_000,
        '{ "' * 100_000 + "<think>",
        "<|python_tag|>" * 50_000 + "<think>",
        "Action: f\n" * 50_000,
        'Action Input: {"' * 50_000,
        'Action: f\nAction Input: {"a\n' * 20_000 + "<think>",
        "<tool_call><function=f><parameter=x>" * 20_000,
        "<tool_call><function=f>" + "<parameter=x>1</parameter>" * 20_000,
        "<tool_call><function=f></function></tool_call>" * 20_000,
        "<tool_call><function=f><parameter=x>" + "</parameter>" * 50_000,
        "<tool_call><function=f><parameter=x>" + ("</parameter>" + " " * 900) * 500,
    ],
    ids=lambda said: said[:16],
)
def test_no_text_takes_long(said):
    began = time.process_time()
    for form in FORMATS:
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
