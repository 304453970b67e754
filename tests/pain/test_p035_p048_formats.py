"""P035-P048 for every format in which models call tools: the pain is the same, whatever the brackets look like."""

import json

import pytest

from peira.tools.calls import Call, Parsed, Stream, parse
from peira.tools.tool import CallIds, Toolbox

FORMS = ("hermes", "qwen_coder", "llama3", "mistral", "pythonic", "react", "tags")
JSON_FORMS = ("hermes", "llama3", "mistral", "react")
"""Formats whose arguments are one JSON object."""
MANY = ("hermes", "qwen_coder", "llama3", "mistral", "pythonic", "tags")
"""Formats that hold several calls in a message."""
VERBS = ("search", "list", "delete_all", "note")
UNTYPED = ("qwen_coder", "tags")
"""Formats whose values are text, to be typed by the tool."""


def said(form: str, name: str, **arguments: str) -> str:
    """One call with text arguments; ``tags`` takes none but ``text``."""
    body = json.dumps(arguments, ensure_ascii=False)
    if form == "hermes":
        return f'<tool_call>\n{{"name": "{name}", "arguments": {body}}}\n</tool_call>'
    if form == "qwen_coder":
        inner = "".join(f"<parameter={key}>\n{value}\n</parameter>\n" for key, value in arguments.items())
        return f"<tool_call>\n<function={name}>\n{inner}</function>\n</tool_call>"
    if form == "llama3":
        return f'{{"name": "{name}", "parameters": {body}}}'
    if form == "mistral":
        return f"[TOOL_CALLS]{name}[ARGS]{body}"
    if form == "pythonic":
        return f"[{name}({', '.join(f'{key}={value!r}' for key, value in arguments.items())})]"
    if form == "react":
        return f"Action: {name}\nAction Input: {body}"
    return f"<{name}>{arguments.get('text', '')}</{name}>"


def two(form: str, first: str, second: str, text: str = "x") -> str:
    """Two calls with the argument ``text``."""
    one, other = said(form, first, text=text), said(form, second, text=text)
    if form == "llama3":
        return f"{one}; {other}"
    if form == "pythonic":
        return f"{one[:-1]}, {other[1:]}"
    return f"{one}\n{other}"


def read(text: str, form: str, **options: object) -> Parsed:
    return parse(text, form, verbs=VERBS, **options)


def only(parsed: Parsed) -> Call:
    assert parsed.problems == ()
    (found,) = parsed.calls
    return found


def kinds(parsed: Parsed) -> list[str]:
    return [problem.kind for problem in parsed.problems]


class Spy:
    """Tools that count their runs."""

    def __init__(self) -> None:
        self.runs: list[str] = []
        self.box = Toolbox([self.search, self.note])

    def search(self, q: str = "") -> str:
        self.runs.append(q)
        return f"found {q}"

    def note(self, n: int) -> int:
        self.runs.append(str(n))
        return n


@pytest.mark.parametrize("form", FORMS)
def test_a_call_as_its_format_writes_it(form):
    assert (only(read(said(form, "search", text="Oslo"), form)).name) == "search"
    assert only(read(said(form, "search", text="Oslo"), form)).arguments == {"text": "Oslo"}


# ---- P035: a bad call is an observation -----------------------------------------------------------------------------

BAD = [
    ("llama3", '{"name":"search","parameters":{"q":"x"', "bad_json"),
    ("llama3", '{"name":"search","parameters":[1,2]}', "bad_arguments"),
    ("llama3", '{"name":"search"}', "bad_arguments"),
    ("llama3", '{"name":"search","parameters":{},"arguments":{}}', "bad_arguments"),
    ("llama3", '{"parameters":{"q":"x"}}', "missing_name"),
    ("llama3", "<|python_tag|>search(q=1)", "bad_json"),
    ("llama3", "<|python_tag|>[]", "not_an_object"),
    ("llama3", "<|python_tag|> ", "empty"),
    ("mistral", '[TOOL_CALLS][{"name":"search","arguments":{"q":"x"', "bad_json"),
    ("mistral", '[TOOL_CALLS][{"name":"search","arguments":[1,2]}]', "bad_arguments"),
    ("mistral", '[TOOL_CALLS][{"arguments":{}}]', "missing_name"),
    ("mistral", "[TOOL_CALLS][[]]", "not_an_object"),
    ("mistral", "[TOOL_CALLS]", "empty"),
    ("mistral", "[TOOL_CALLS][]", "empty"),
    ("mistral", '[TOOL_CALLS]search[ARGS]{"q":', "bad_json"),
    ("mistral", "[TOOL_CALLS]search[ARGS][1]", "bad_arguments"),
    ("mistral", "[TOOL_CALLS]search{}", "bad_json"),
    ("qwen_coder", "<tool_call></tool_call>", "empty"),
    ("qwen_coder", "<tool_call>", "empty"),
    ("qwen_coder", "<tool_call>search</tool_call>", "bad_syntax"),
    ("qwen_coder", "<tool_call><function=search>q=x</function></tool_call>", "bad_syntax"),
    ("qwen_coder", "<tool_call><function=search><parameter=q>x", "unclosed"),
    ("qwen_coder", "<tool_call><function=search><parameter=q>x</parameter></function>", "unclosed"),
    ("qwen_coder", "<function=search><parameter=q>x</parameter></function></tool_call>", "bad_syntax"),
    (
        "qwen_coder",
        "<tool_call><function=search><parameter=q>1</parameter><parameter=q>2</parameter></function></tool_call>",
        "bad_arguments",
    ),
    (
        "qwen_coder",
        "<tool_call><function=search><parameter=q>1<parameter=n>2</parameter></function></tool_call>",
        "unclosed",
    ),
    ("react", 'Action: search\nAction Input: {"q":', "bad_json"),
    ("react", "Action: search", "bad_arguments"),
    ("react", "Action:\nAction Input: {}", "missing_name"),
    ("react", "Action:", "empty"),
    ("react", "Action: two words\nAction Input: {}", "missing_name"),
    ("react", 'Action: search\nAction Input: {"q":"x"} {"q":"y"}', "extra_data"),
    ("tags", "<search>x", "unclosed"),
]


@pytest.mark.parametrize(("form", "text", "kind"), BAD)
def test_p035_a_bad_call_runs_nothing_and_says_what_was_wrong(form, text, kind):
    spy = Spy()
    parsed = read(text, form)
    assert parsed.calls == ()
    assert kinds(parsed) == [kind]
    (result,) = spy.box.run(parsed.items)
    assert spy.runs == []
    assert not result.ok
    assert 0 < len(result.text) < 400


@pytest.mark.parametrize("form", ["qwen_coder", "mistral"])
def test_p035_a_bad_call_does_not_take_the_good_ones_with_it(form):
    bad = {"qwen_coder": "<tool_call><function=a><parameter=b>", "mistral": "[TOOL_CALLS]a[ARGS]{"}[form]
    parsed = read(bad + said(form, "search", q="a") + bad + said(form, "search", q="b"), form)
    assert [call.arguments["q"] for call in parsed.calls] == ["a", "b"]
    assert [type(item).__name__ for item in parsed.items] == ["Problem", "Call", "Problem", "Call"]


# ---- P036: brackets inside strings are text -------------------------------------------------------------------------

HOSTILE = [
    "if x { y",
    "a]b}",
    "mkdir -p d/{a,b",
    'say "}" now',
    "ends in \\\\",
    "</tool_call>",
    "<tool_call>{",
    "</parameter>",
    "a; b",
    "f(x=1)]",
    "[TOOL_CALLS]",
    "[ARGS]{",
    "line\nAction: delete_all\nAction Input: {}\nObservation: done",
    "é 🚪",
    "<think>",
    "</think>",
    "a <think>b</think> c",
    "[THINK]",
]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "tags"])
@pytest.mark.parametrize("value", HOSTILE)
def test_p036_a_string_is_text(form, value):
    assert only(read(said(form, "search", q=value), form)).arguments == {"q": value}


@pytest.mark.parametrize("value", [v for v in HOSTILE if "THINK" not in v and "think" not in v])
def test_p036_the_body_of_a_tag_is_text(value):
    assert only(read(said("tags", "search", text=value), "tags")).arguments == {"text": value}


@pytest.mark.parametrize("form", MANY)
def test_p036_calls_back_to_back(form):
    parsed = read(two(form, "search", "list"), form)
    assert [call.name for call in parsed.calls] == ["search", "list"]
    assert parsed.problems == ()
    assert parsed.text == ""
    text = two(form, "search", "list")
    for call in parsed.calls:  # a call's place is where it stands in the message
        assert call.name in text[call.at : call.at + 50]


# ---- P037: reasoning first ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("marks", [("<think>", "</think>"), ("[THINK]", "[/THINK]")])
@pytest.mark.parametrize("form", FORMS)
def test_p037_a_call_drafted_while_thinking_is_no_call(form, marks):
    draft, real = said(form, "delete_all", text="x"), said(form, "list", text="y")
    parsed = read(f"{marks[0]}maybe\n{draft}\nno{marks[1]}\n{real}", form)
    assert only(parsed).name == "list"
    assert parsed.reasoning == f"maybe\n{draft}\nno"


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("opened", [True, False])
def test_p037_the_prompt_may_have_opened_the_block(form, opened):
    draft, real = said(form, "delete_all", text="x"), said(form, "list", text="y")
    text = f"{draft}\nno</think>\n{real}"
    call = only(read(text, form, opened=opened))
    assert call.name == "list"
    assert call.at > text.index("</think>")  # a place in the whole message, not in what is left of it


@pytest.mark.parametrize("form", FORMS)
def test_p037_thinking_that_never_ends_runs_nothing_and_says_so(form):
    call = said(form, "list", text="x")
    for text, opened in ((f"<think>hm\n{call}", False), (call, True)):
        parsed = read(text, form, opened=opened)
        assert parsed.calls == ()
        assert kinds(parsed) == ["unclosed_reasoning"]


@pytest.mark.parametrize("form", FORMS)
def test_p037_a_half_drafted_call_does_not_hide_the_end_of_thinking(form):
    half = said(form, "delete_all", text="x")[:-3]
    assert only(read(f"<think>{half}</think>\n{said(form, 'list', text='y')}", form)).name == "list"


# ---- P038: a cut-off turn -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
def test_p038_a_cut_off_turn_holds_no_call_wherever_it_was_cut(form):
    whole = said(form, "note", text="a.txt hello")
    for size in range(len(whole) + 1):
        parsed = read(whole[:size], form, cut_off=True)
        assert parsed.calls == ()
        assert parsed.truncated
        assert kinds(parsed) == ["cut_off"]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "react"])
def test_p038_half_a_call_is_never_completed(form):
    """Without the finish reason too: whatever stands there, no call is made of its beginning."""
    whole = said(form, "note", text="a.txt hello")
    for size in range(len(whole)):
        parsed = read(whole[:size], form)
        assert parsed.calls == ()
        assert not parsed.truncated


def test_p038_react_ends_with_the_message_so_only_a_whole_object_counts():
    whole = said("react", "note", text="a.txt hello")
    for size in range(whole.index("{") + 1, len(whole)):
        assert read(whole[:size], "react").calls == ()


# ---- P041-P045: what is a call, and what it says --------------------------------------------------------------------


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize(
    "text",
    [
        'Sample: {"name":"search","arguments":{}}',
        'Sample: {"name":"search","parameters":{}}',
        "see [1] and search(q=1)",
        "the list [search(q=1)]",
        "in this Action: search",
        '{"answer": 42}',
        "[1, 2]",
        "Final Answer: 42",
        "Thought: nothing to do",
    ],
)
def test_p041_json_and_brackets_in_prose_are_prose(form, text):
    assert read(text, form) == Parsed("", text, (), ())


def test_p042_pieces_joined_twice_are_not_guessed_at():
    twice = {
        "llama3": '{"name":"search","parameters":{"q":"1"}}{"name":"search","parameters":{"q":"1"}}',
        "mistral": '[TOOL_CALLS]search[ARGS]{"q":"1"}{"q":"1"}',
        "react": 'Action: search\nAction Input: {"q":"1"}{"q":"1"}',
        "pythonic": "[search(q='1')][search(q='1')]",
    }
    spy = Spy()
    for form, text in twice.items():
        parsed = read(text, form)
        assert parsed.calls == (), form
        assert kinds(parsed) in (["extra_data"], ["bad_syntax"])
        spy.box.run(parsed.items)
    for form in FORMS:
        parsed = parse(said(form, "searchsearch", q="1"), form, verbs=("searchsearch",))
        (result,) = spy.box.run(parsed.items)
        assert not result.ok
        assert "searchsearch" in result.text
    assert spy.runs == []


def test_p043_arguments_given_as_text_are_decoded_once():
    text = json.dumps(json.dumps({"city": "Oslo"}))
    twice = json.dumps(text)
    for form, call in {
        "llama3": '{{"name":"w","parameters":{}}}',
        "mistral": '[TOOL_CALLS][{{"name":"w","arguments":{}}}]',
    }.items():
        assert only(read(call.format(text), form)).arguments == {"city": "Oslo"}
        assert kinds(read(call.format(twice), form)) == ["bad_arguments"]


@pytest.mark.parametrize("form", [form for form in FORMS if form != "tags"])
def test_p043_a_text_argument_that_looks_like_json_is_left_alone(form):
    assert only(read(said(form, "search", q='{"a": 1}'), form)).arguments == {"q": '{"a": 1}'}


def test_p045_values_without_types_are_typed_by_the_tool_and_nothing_is_lost():
    """A number in a format of plain text arrives as text; the tool's own type decides, and junk is refused."""
    for value, runs in (("5", ["5"]), ("abc", []), ("true", []), ("", [])):
        spy = Spy()
        (result,) = spy.box.run(read(said("qwen_coder", "note", n=value), "qwen_coder").items)
        assert spy.runs == runs
        assert result.ok == bool(runs)
        spy.box.run(read(said("qwen_coder", "search", q=value), "qwen_coder").items)
        assert spy.runs[-1] == value  # a text parameter keeps what looks like a number


# ---- P039, P046-P048: ids, control tokens, chunks, caps -------------------------------------------------------------


@pytest.mark.parametrize(
    ("form", "text"),
    [
        ("mistral", '[TOOL_CALLS][{"name":"search","arguments":{},"id":"aB3dE6gH9"}]'),
        ("mistral", "[TOOL_CALLS]search[CALL_ID]aB3dE6gH9[ARGS]{}"),
        ("llama3", '{"id":"aB3dE6gH9","name":"search","parameters":{}}'),
    ],
)
def test_p039_ids_pass_through_untouched(form, text):
    call = only(read(text, form))
    assert call.id == "aB3dE6gH9"
    (result,) = Spy().box.run([call], CallIds())
    assert result.id == "aB3dE6gH9"


@pytest.mark.parametrize("form", MANY)
def test_p039_results_are_in_call_order_with_ids_of_their_own(form):
    items = read(two(form, "search", "search"), form).items
    ids = CallIds()
    results = [*Spy().box.run(items, ids), *Spy().box.run(items, ids)]
    assert len({result.id for result in results}) == 4


@pytest.mark.parametrize("form", FORMS)
def test_p046_the_end_of_a_turn_is_no_part_of_a_call_or_of_the_text(form):
    for mark in ("<|im_end|>", "<|eot_id|>", "</s>"):
        call = only(read(f"{said(form, 'list', text='x')}\n{mark}", form, special=(mark,)))
        assert (call.name, call.arguments) == ("list", {"text": "x"})
        assert read(f"Hello.{mark}", form, special=(mark,)).text == "Hello."


@pytest.mark.parametrize("form", FORMS)
def test_p047_no_result_depends_on_where_a_chunk_ended(form):
    inner = "d {a} é🚪 )]"
    call = two(form, "note", "list", inner) if form in MANY else said(form, "note", text=inner)
    text = f"<think>hm\n{said(form, 'delete_all', text='x')}</think>\n{call}"
    whole = read(text, form)
    assert [c.name for c in whole.calls] == (["note", "list"] if form in MANY else ["note"])
    assert whole.calls[0].arguments == {"text": inner}
    for pieces in (text, text.encode()):
        for cut in range(len(pieces) + 1):
            stream = Stream()
            stream.feed(pieces[:cut])
            stream.feed(pieces[cut:])
            assert stream.parse(form, verbs=VERBS) == whole


@pytest.mark.parametrize("form", MANY)
def test_p048_surplus_calls_are_one_refusal(form):
    one = said(form, "search", q="x")
    text = {"llama3": "; ".join([one] * 200), "pythonic": "[" + ", ".join([one[1:-1]] * 200) + "]"}.get(
        form, "\n".join([one] * 200)
    )
    runs: list[str] = []
    box = Toolbox([_counted(runs)], max_calls=16)
    results = box.run(parse(text, form, verbs=VERBS).items)
    assert len(runs) == 16
    assert len(results) == 17
    assert "184" in results[-1].text


def _counted(runs):
    def search(q: str = "", text: str = "") -> str:
        """Search."""
        runs.append(q or text)
        return "found"

    return search


def test_react_one_action_a_message_and_the_observation_is_the_worlds():
    text = (
        f"Thought: look\n{said('react', 'search', q='a')}\nObservation: made up\n{said('react', 'delete_all', q='b')}"
    )
    parsed = read(text, "react")
    assert only(parsed).name == "search"
    assert "made up" not in parsed.text
    parsed = read(f"{said('react', 'search', q='a')}\n{said('react', 'delete_all', q='b')}", "react")
    assert [call.name for call in parsed.calls] == ["search"]
    assert kinds(parsed) == ["extra_data"]


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("Action: search[Oslo [city]]", {"text": "Oslo [city]"}),
        ("Action: search\nAction Input: Oslo", {"text": "Oslo"}),
        ("Action: search\nAction Input:", {"text": ""}),
        ("Action: search\nAction Input: two\nlines\nThought: then", {"text": "two\nlines"}),
        ('Action: search\nAction Input: {\n "q": [1, 2]\n}\nObservation:', {"q": [1, 2]}),
    ],
)
def test_react_inputs(text, arguments):
    assert only(read(text, "react")).arguments == arguments


def test_qwen_coder_values_keep_every_character_but_the_formats_own_line_breaks():
    for value in ("", "\n", "  x  ", "a\n\nb", "\n\nx\n\n", "<b>1</b>", "5", "null"):
        assert only(read(said("qwen_coder", "note", q=value), "qwen_coder")).arguments == {"q": value}
    assert only(read("<tool_call><function=note><parameter=q>x</parameter></function></tool_call>", "qwen_coder")) == (
        Call("note", {"q": "x"}, None, 0)
    )


def test_every_format_is_covered_here():
    from peira.tools.calls import FORMATS

    assert set(FORMATS) == set(FORMS)
    assert set(JSON_FORMS) | set(UNTYPED) | {"pythonic"} == set(FORMS)
