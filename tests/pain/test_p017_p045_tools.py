"""What goes wrong between a call and a tool: P017, P035 (inside the tool), P039, P045."""

import asyncio
from typing import Literal

import pytest

from peira.tools.calls import Call, parse
from peira.tools.errors import Fault, ToolRefusal, UsageError
from peira.tools.tool import Tool, Toolbox


def results(box: Toolbox, *calls: Call) -> list[tuple[bool, str]]:
    return [(result.ok, result.text) for result in box.run(calls)]


def test_p017_two_tools_of_one_name_are_refused_naming_both_sources():
    def read(path: str) -> str:
        """Read a file."""
        return path

    def other(url: str) -> str:
        """Read a page."""
        return url

    with pytest.raises(UsageError) as caught:
        Toolbox([read, Tool.of(other, name="read")])
    said = str(caught.value)
    assert "'read'" in said
    assert "<locals>.read (" in said
    assert "<locals>.other (" in said
    assert Toolbox([read, Tool.of(other, name="read_page")]).names == ("read", "read_page")


def test_p017_one_tool_given_twice_is_one_tool():
    made = Tool.of(test_p017_one_tool_given_twice_is_one_tool, name="f")
    assert Toolbox([made, made]).names == ("f",)


def test_p035_an_error_inside_a_tool_is_short_and_the_other_calls_run():
    def broken(path: str) -> str:
        """Fail as tools do."""
        raise FileNotFoundError(2, "No such file", f"/srv/secret/project/{path}")

    def fine() -> str:
        """Work."""
        return "ok"

    box = Toolbox([broken, fine])
    (bad, text), good = results(box, Call("broken", {"path": "a.txt"}), Call("fine", {}))
    assert good == (True, "ok")
    assert not bad
    assert text == "broken failed: FileNotFoundError: [Errno 2] No such file: 'a.txt'"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (ValueError("line one\nTraceback (most recent call last)"), "ValueError: line one"),
        (ValueError("C:\\Users\\me\\x.py is bad"), "ValueError: x.py is bad"),
        (ValueError("1/2 of http://host/a/b and/or"), "ValueError: 1/2 of http://host/a/b and/or"),
        (KeyError("k"), "KeyError: 'k'"),
        (RuntimeError(), "RuntimeError"),
        (ValueError("x" * 1_000), "ValueError: " + "x" * 200),
        (RecursionError("maximum"), "RecursionError: maximum"),
        (UsageError("not so"), "UsageError: not so"),
    ],
)
def test_p035_what_a_model_reads_of_an_error(error, said):
    def fail() -> None:
        raise error

    assert results(Toolbox([fail]), Call("fail", {})) == [(False, f"fail failed: {said}")]


def test_p035_a_refusal_is_read_as_it_stands_and_a_fault_passes_through():
    def refuse() -> None:
        raise ToolRefusal("Not on Sundays.")

    def fault() -> None:
        raise Fault("the machine is gone", where="worker")

    assert results(Toolbox([refuse]), Call("refuse", {})) == [(False, "Not on Sundays.")]
    with pytest.raises(Fault, match="gone"):
        Toolbox([fault]).run([Call("fault", {})])


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, "(done)"),
        ("", "(empty)"),
        (" \n", "(empty)"),
        (0, "0"),
        (0.0, "0.0"),
        (False, "false"),
        ({}, "{}"),
        ([], "[]"),
        ({"a": [1, None, "é"]}, '{"a": [1, null, "é"]}'),
        (b"a\xffb", "a\ufffdb"),
        ("\ud800", "?"),
        (set(), "set()"),
    ],
)
def test_p035_every_result_is_text_that_is_not_empty(value, text):
    def give() -> object:
        return value

    assert results(Toolbox([give]), Call("give", {})) == [(True, text)]


def test_p039_results_stand_in_the_order_of_the_calls():
    begun: list[str] = []

    async def lookup(key: str) -> str:
        """Look something up; ``a`` is answered only after ``b`` was."""
        begun.append(key)
        while key == "a" and "b done" not in begun:
            await asyncio.sleep(0)
        begun.append(f"{key} done")
        return key

    box = Toolbox([lookup])
    got = asyncio.run(box.run_async([Call("lookup", {"key": "a"}), Call("lookup", {"key": "b"})]))
    assert begun == ["a", "b", "b done", "a done"]
    assert [result.text for result in got] == ["a", "b"]
    assert len({result.id for result in got}) == 2


def test_p039_an_error_keeps_its_place():
    def lookup(key: str) -> str:
        """Look something up."""
        if key == "a":
            raise KeyError(key)
        return key

    box = Toolbox([lookup])
    calls = [Call("lookup", {"key": "a"}, "one"), Call("lookup", {"key": "b"}, "two")]
    for got in (box.run(calls), asyncio.run(box.run_async(calls))):
        assert [(result.id, result.ok) for result in got] == [("one", False), ("two", True)]


def test_p039_a_problem_keeps_its_place_too():
    def lookup() -> str:
        """Look something up."""
        return "found"

    said = '<tool_call>{</tool_call><tool_call>{"name": "lookup", "arguments": {}}</tool_call>'
    assert [result.ok for result in Toolbox([lookup]).run(parse(said).items)] == [False, True]


def echo(hint):
    """Return a toolbox with one tool whose parameter ``x`` is annotated ``hint``, and what it receives."""
    got: list[object] = []

    def tell(x):
        got.append(x)

    tell.__annotations__["x"] = hint
    return Toolbox([tell]), got


@pytest.mark.parametrize(
    ("hint", "value", "meant"),
    [
        (int, "5", 5),
        (int, "5.0", 5),  # the rule: a whole number in any spelling
        (int, 5.0, 5),
        (int, " -7 ", -7),
        (int, "9" * 300, int("9" * 300)),
        (float, "2.5", 2.5),
        (float, 2, 2.0),
        (float, "1e-3", 0.001),
        (bool, "true", True),
        (bool, False, False),
        (str, "5", "5"),
        (str, 5, "5"),
        (str, '{"a":1}', '{"a":1}'),
        (list[int], "[1,2]", [1, 2]),
        (list[int], ["1", 2], [1, 2]),
        (list, "[1]", [1]),
        (tuple[int, ...], [1, 2], (1, 2)),
        (dict[str, int], '{"a":"1"}', {"a": 1}),
        (dict, {"a": None}, {"a": None}),
        (int | None, None, None),
        (int | None, "5", 5),
        (int | str, "5", "5"),  # the first that fits as it is
        (Literal["up", "down"], "up", "up"),
        (Literal[1, 2], "2", 2),
    ],
)
def test_p045_what_can_be_converted_without_loss_is(hint, value, meant):
    box, got = echo(hint)
    (result,) = box.run([Call("tell", {"x": value})])
    assert result.ok, result.text
    assert got == [meant]
    assert type(got[0]) is type(meant)


@pytest.mark.parametrize(
    ("hint", "value", "said"),
    [
        (int, "abc", "a whole number"),
        (int, True, "a whole number"),
        (int, 5.5, "a whole number"),
        (int, "5.5", "a whole number"),
        (int, None, "a whole number"),
        (int, 1e300, "a whole number"),
        (int, "９", "a whole number"),
        (int, "9" * 100_000, "a whole number"),
        (float, "abc", "a number"),
        (float, True, "a number"),
        (float, "nan", "a number"),
        (float, "1e999", "a finite number"),
        (float, 2**53 + 1, "exactly"),
        (bool, 1, "true or false"),
        (bool, "yes", "true or false"),
        (str, None, "a string"),
        (str, True, "a string"),
        (str, 1.5, "a string"),
        (str, ["a"], "a string"),
        (list[int], "1,2", "a list"),
        (list[int], "[1", "a list"),
        (list[int], [1, "x"], "a whole number"),
        (list[int], "[" * 100_000, "a list"),
        (dict[str, int], "[1]", "an object"),
        (int | None, "x", "a whole number or null"),
        (Literal["up", "down"], "left", '"up", "down"'),
    ],
)
def test_p045_everything_else_is_refused_with_a_reason(hint, value, said):
    box, got = echo(hint)
    (result,) = box.run([Call("tell", {"x": value})])
    assert got == []
    assert not result.ok
    assert said in result.text
    assert len(result.text) < 300
