"""What goes wrong between a model's text and a call: P035-P048."""

import json

import pytest

from peira.tools.calls import Call, Parsed, Stream, action_of, boxed_answer, marked_answer, parse, tagged_answer
from peira.tools.tool import CallIds, Toolbox

VERBS = ("compare", "swap", "answer")


def block(body: str) -> str:
    return f"<tool_call>{body}</tool_call>"


def call(name: str, **arguments: object) -> str:
    return block(json.dumps({"name": name, "arguments": arguments}))


def only(parsed: Parsed) -> Call:
    assert not parsed.problems
    (found,) = parsed.calls
    return found


class Spy:
    """A search tool that counts its runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.box = Toolbox([self.search])

    def search(self, q: str = "") -> str:
        self.runs.append(q)
        return f"found {q}"


# ---- P035: a bad call is an observation -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("body", "kind"),
    [
        ('{"name":"search","arguments":{"q":"x"', "bad_json"),
        ('{"name":"search","arguments":[1,2]}', "bad_arguments"),
        ('{"name":"search","arguments":null}', "bad_arguments"),
        ('{"name":"search","arguments":"x"}', "bad_arguments"),
        ('{"name":"search"}', "bad_arguments"),
        ('{"arguments":{"q":"x"}}', "missing_name"),
        ('{"name":"","arguments":{}}', "missing_name"),
        ('{"name":7,"arguments":{}}', "missing_name"),
        ("[]", "not_an_object"),
        ("search(q=1)", "bad_json"),
        ("", "empty"),
        (" \n ", "empty"),
        ('{"name":"search","arguments":{"q":NaN}}', "bad_json"),
        ('{"name":"search","name":"other","arguments":{}}', "bad_json"),
        ('{"name":"search","arguments":' + "[" * 200_000, "bad_json"),
        ('{"name":"search","arguments":{"q":' + "9" * 5_000 + "}}", "bad_json"),
    ],
)
def test_p035_a_bad_call_runs_nothing_and_says_what_was_wrong(body, kind):
    spy = Spy()
    parsed = parse(block(body))
    assert parsed.calls == ()
    assert [problem.kind for problem in parsed.problems] == [kind]
    (result,) = spy.box.run(parsed.items)
    assert spy.runs == []
    assert not result.ok
    assert 0 < len(result.text) < 400
    assert "Traceback" not in result.text


def test_p035_an_unknown_name_lists_the_known_ones():
    spy = Spy()
    (result,) = spy.box.run(parse(call("serach", q="x")).items)
    assert spy.runs == []
    assert "serach" in result.text
    assert "Tools: search" in result.text
    assert "'search'" in result.text  # the nearest


def test_p035_an_unclosed_call_at_the_end_is_not_run():
    parsed = parse('<tool_call>{"name":"search","arguments":{"q":"x"}}')
    assert parsed.calls == ()
    assert [problem.kind for problem in parsed.problems] == ["unclosed"]


def test_p035_a_bad_call_does_not_take_the_good_ones_with_it():
    parsed = parse(block("{") + call("search", q="a") + block('{"name":') + call("search", q="b"))
    assert [c.arguments["q"] for c in parsed.calls] == ["a", "b"]
    assert [type(item).__name__ for item in parsed.items] == ["Problem", "Call", "Problem", "Call"]


# ---- P036: brackets inside strings ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        "if x { y",
        "a]b}",
        "mkdir -p d/{a,b",
        'say "}" now',
        "ends in \\\\",
        "</tool_call>",
        "<tool_call>{",
        "line\nbreak",
        "é 🚪",
    ],
)
def test_p036_a_string_is_text(text):
    assert only(parse(call("run", cmd=text))).arguments == {"cmd": text}


def test_p036_calls_back_to_back():
    parsed = parse(call("a", x=1) + "\n" + call("b", x=2))
    assert [(c.name, c.arguments) for c in parsed.calls] == [("a", {"x": 1}), ("b", {"x": 2})]
    assert parsed.problems == ()
    assert parsed.text == ""


def test_p036_a_raw_line_break_inside_a_string_has_one_reading():
    assert only(parse(block('{"name":"run","arguments":{"cmd":"a\nb"}}'))).arguments == {"cmd": "a\nb"}


# ---- P037: reasoning first ------------------------------------------------------------------------------------------

DRAFT = call("delete_all")
REAL = call("list")


def test_p037_a_call_drafted_while_thinking_is_no_call():
    parsed = parse(f"<think>maybe {DRAFT} no</think>{REAL}")
    assert only(parsed).name == "list"
    assert parsed.reasoning == f"maybe {DRAFT} no"


@pytest.mark.parametrize("opened", [True, False])
def test_p037_the_prompt_may_have_opened_the_block(opened):
    parsed = parse(f"maybe {DRAFT} no</think>\nok {REAL}", opened=opened)
    assert only(parsed).name == "list"
    assert parsed.reasoning == f"maybe {DRAFT} no"
    assert parsed.text == "ok"


def test_p037_a_half_drafted_call_does_not_hide_the_end_of_thinking():
    assert only(parse(f'maybe <tool_call>{{"name":"del </think>{REAL}')).name == "list"


@pytest.mark.parametrize(("text", "opened"), [(f"<think>hm {DRAFT}", False), (f"{DRAFT} {REAL}", True)])
def test_p037_thinking_that_never_ends_runs_nothing_and_says_so(text, opened):
    parsed = parse(text, opened=opened)
    assert parsed.calls == ()
    assert [problem.kind for problem in parsed.problems] == ["unclosed_reasoning"]
    assert "</think>" in parsed.problems[0].text


def test_p037_the_same_holds_for_tags_and_lists():
    assert action_of("<think><compare>A B</compare></think><swap>B C</swap>", VERBS).action == "swap B C"
    parse_ = action_of("<think><compare>A B</compare>", VERBS)
    assert (parse_.action, parse_.kind) == (None, "unclosed_reasoning")
    assert only(parse("<think>[bad(x=1)]</think>[good(x=1)]", "pythonic")).name == "good"


def test_p037_a_call_may_write_about_think_tags():
    assert only(parse(call("write", text="use <think> and </think>"))).arguments["text"] == "use <think> and </think>"


# ---- P038: a cut-off turn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "text",
    [
        '<tool_call>{"name":"write","arguments":{"path":"a.txt","content":"hel',
        call("write", path="a.txt", content="hello"),
        f"<think>{DRAFT}",
        "plain",
    ],
)
def test_p038_a_cut_off_turn_holds_no_call(text):
    parsed = parse(text, cut_off=True)
    assert parsed.calls == ()
    assert parsed.truncated
    assert [problem.kind for problem in parsed.problems] == ["cut_off"]


@pytest.mark.parametrize("text", ["<compare>A B</compare>", "<compare>A B", "<answer>7</answer>", "7", ""])
def test_p038_a_cut_off_turn_holds_no_action(text):
    parsed = action_of(text, VERBS, cut_off=True)
    assert (parsed.action, parsed.kind) == (None, "cut_off")
    assert "cut off" in parsed.problem


def test_p038_a_turn_that_was_not_cut_off_is_bad_format_instead():
    assert not parse('<tool_call>{"name":"write","arguments":{"path":"a').truncated


# ---- P040: the answer -----------------------------------------------------------------------------------------------


def test_p040_the_last_complete_answer_wins():
    said = "<answer>5</answer> wait <answer>7</answer>"
    assert tagged_answer(said) == "7"
    assert action_of(said, VERBS).action == "answer 7"
    assert tagged_answer("<answer>5</answer> and <answer>7") == "5"


@pytest.mark.parametrize(
    "said",
    ["<answer>5", "5</answer>", "<answer></answer>", "<answer> </answer>", "<think><answer>5</answer></think>", "5"],
)
def test_p040_what_is_no_answer(said):
    assert tagged_answer(said) is None
    action = action_of(said, VERBS).action
    assert action is None or not action.startswith("answer")


def test_p040_boxed_braces_balance():
    assert boxed_answer(r"so \boxed{\frac{1}{2}}.") == r"\frac{1}{2}"
    assert boxed_answer(r"\boxed{1} no \boxed{2}") == "2"
    assert boxed_answer(r"\boxed{1} no \boxed{2") == "1"
    assert boxed_answer(r"\boxed{\{1\}}") == r"\{1\}"
    assert boxed_answer(r"{ \boxed{ 3 }") == "3"
    for nothing in (r"\boxed{", r"\boxed{}", "boxed", r"<think>\boxed{1}</think>", r"<think>\boxed{1}"):
        assert boxed_answer(nothing) is None


def test_p040_marked_answers():
    assert marked_answer("#### 5\nno, #### 7") == " 7"
    assert marked_answer("5") is None
    assert marked_answer("<think>#### 5</think>6") is None


def test_p040_a_call_comes_before_an_answer_built_on_an_imagined_result():
    parsed = action_of("<compare>A B</compare> A < B <answer>A</answer>", VERBS)
    assert parsed.action == "compare A B"
    assert parsed.end == len("<compare>A B</compare>")


# ---- P041-P044: what is a call --------------------------------------------------------------------------------------


def test_p041_json_in_prose_is_prose():
    said = 'Sample: {"name":"search","arguments":{}}'
    assert parse(said) == Parsed("", said, (), ())
    for said in ("see [1] and f(x=1)", "a list: [f(x=1)]", "[1, 2]", "[x]"):
        assert parse(said, "pythonic") == Parsed("", said, (), ())


def test_p042_pieces_joined_twice_are_not_guessed_at():
    spy = Spy()
    (result,) = spy.box.run(parse(call("searchsearch", q="1")).items)
    assert not result.ok
    assert "searchsearch" in result.text
    for body in ('{"name":"search","arguments":{"q":"1"}{"q":"1"}}', '{"name":"search","arguments":"{}{}"}'):
        assert parse(block(body)).calls == ()
    twice = '{"name":"search","arguments":{"q":"1"}}'
    assert [problem.kind for problem in parse(block(twice + twice)).problems] == ["extra_data"]
    assert spy.runs == []


def test_p043_arguments_are_decoded_once():
    assert only(parse(block('{"name":"w","arguments":"{\\"city\\":\\"Oslo\\"}"}'))).arguments == {"city": "Oslo"}
    twice = json.dumps({"name": "w", "arguments": json.dumps(json.dumps({"city": "Oslo"}))})
    assert [problem.kind for problem in parse(block(twice)).problems] == ["bad_arguments"]


def test_p043_a_string_argument_that_looks_like_json_is_left_alone():
    got = []

    def note(text: str) -> None:
        """Keep a note."""
        got.append(text)

    Toolbox([note]).run(parse(call("note", text='{"a": 1}')).items)
    assert got == ['{"a": 1}']


def test_p044_python_style_calls_are_parsed():
    parsed = parse("""[note(text='a, b)', n=2), web-search(q="x")]""", "pythonic")
    assert [(c.name, c.arguments) for c in parsed.calls] == [
        ("note", {"text": "a, b)", "n": 2}),
        ("web-search", {"q": "x"}),
    ]
    assert parsed.problems == ()


@pytest.mark.parametrize(
    ("value", "meant"),
    [
        (r"'it\'s'", "it's"),
        (r'"a\\"', "a\\"),
        ("'''two\nlines'''", "two\nlines"),
        (r"'\u00e9\n\x41'", "é\nA"),
        ("''", ""),
        ("[1, (2, 3), {'a': None},]", [1, [2, 3], {"a": None}]),
        ("-1.5e3", -1500.0),
        ("True", True),
        ("null", None),
        ("{}", {}),
        ("'</tool_call>]'", "</tool_call>]"),
    ],
)
def test_p044_values(value, meant):
    assert only(parse(f"[f(x={value})]", "pythonic")).arguments == {"x": meant}


@pytest.mark.parametrize(
    "said",
    [
        "[f(1)]",
        "[f(x=1]",
        "[f(x=y)]",
        "[f(x=1), g]",
        "[f(x=1)] and more",
        "[f(x='a)]",
        "[f(x=1, x=2)]",
        "[f(x=__import__('os'))]",
        "[f(x=" + "[" * 1_000 + ")]",
        "[f(x=" + "9" * 5_000 + ")]",
        "[f(x=1e999)]",
        "[f(x={1: 2})]",
    ],
)
def test_p044_what_cannot_be_read_runs_nothing(said):
    parsed = parse(said, "pythonic")
    assert parsed.calls == ()
    assert [problem.kind for problem in parsed.problems] == ["bad_syntax"]


# ---- P046, P047: control tokens and chunks --------------------------------------------------------------------------


def test_p046_calls_are_found_and_the_readers_text_is_clean():
    parsed = parse(f"Let me look.{REAL}</tool_call><|im_end|>", special=("<|im_end|>",))
    assert only(parsed).name == "list"
    assert parsed.text == "Let me look."


NESTED = call("plan", steps=[{"do": "a}", "n": [1, {"x": "é🚪"}]}, {"do": "b"}])


@pytest.mark.parametrize("form", ["hermes", "tags", "pythonic"])
def test_p047_no_result_depends_on_where_a_chunk_ended(form):
    said = {
        "hermes": f"<think>hm {DRAFT}</think>ok {NESTED}\n{REAL} done",
        "tags": "<think><swap>A B</swap></think>ok <compare>A B</compare> é <done/>",
        "pythonic": "<think>[a()]</think>[plan(steps=[{'do': 'a}'}, 'é🚪'], n=2), list()]",
    }[form]
    whole = parse(said, form, verbs=("compare", "swap", "done"))
    assert whole.calls
    for pieces in (said, said.encode()):
        for cut in range(len(pieces) + 1):
            stream = Stream()
            stream.feed(pieces[:cut])
            stream.feed(pieces[cut:])
            assert stream.parse(form, verbs=("compare", "swap", "done")) == whole
    byte_by_byte = Stream()
    for byte in said.encode():
        byte_by_byte.feed(bytes([byte]))
    assert byte_by_byte.parse(form, verbs=("compare", "swap", "done")) == whole


# ---- P039, P048: ids and caps ---------------------------------------------------------------------------------------


def test_p039_ids_pass_through_and_missing_ones_are_fresh():
    given = block('{"id":"call_0","name":"search","arguments":{}}')
    items = parse(given + call("search") + call("search") + given).items
    assert [item.id for item in items] == ["call_0", None, None, "call_0"]
    ids = CallIds()
    box = Spy().box
    first = [result.id for result in box.run(items, ids)]
    second = [result.id for result in box.run(items[1:3], ids)]
    assert first[0] == "call_0"
    assert len({*first, *second}) == 6


def test_p048_surplus_calls_are_one_refusal():
    spy = Spy()
    box = Toolbox([spy.search], max_calls=16)
    results = box.run(parse("\n".join(call("search", q=str(n)) for n in range(200))).items)
    assert len(spy.runs) == 16
    assert len(results) == 17
    assert not results[-1].ok
    assert "184" in results[-1].text
