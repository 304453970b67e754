"""Tools from functions: schemas, binding, results."""

import asyncio
from typing import Annotated, Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.tools.calls import Call
from peira.tools.errors import ToolRefusal, UsageError
from peira.tools.schema import coerce, json_schema
from peira.tools.tool import CallIds, Tool, Toolbox, result_text, tool


@tool
def search(query: str, limit: int = 5, sort: Literal["new", "best"] = "best") -> list[str]:
    """Search the shelves.

    Everything is looked through.

    Args:
        query: what to look for,
            in plain words.
        limit (int): the most that is
            returned.

    Returns:
        limit: not a parameter's text.
    """
    return [f"{query} {sort}"] * limit


def test_a_schema_comes_from_annotations_and_docstring():
    assert search.schema() == {
        "type": "function",
        "function": {
            "name": "search",
            "description": "Search the shelves.\n\nEverything is looked through.",
            "parameters": {
                "type": "object",
                "properties": {
                    "query": {"type": "string", "description": "what to look for, in plain words."},
                    "limit": {"type": "integer", "description": "the most that is returned."},
                    "sort": {"enum": ["new", "best"]},
                },
                "required": ["query"],
                "additionalProperties": False,
            },
        },
    }
    assert search.source.startswith(f"{__name__}.search (")


def test_sphinx_parameters_are_read_too():
    def f(a: int, b: int) -> int:
        """Add.

        :param a: the first
        :param b: the second
        :returns: a: nothing
        """
        return a + b

    properties = Tool.of(f).parameters["properties"]
    assert [properties[name]["description"] for name in "ab"] == ["the first", "the second"]
    assert Tool.of(f).description == "Add."


@pytest.mark.parametrize(
    ("hint", "schema"),
    [
        (str, {"type": "string"}),
        (None, {"type": "null"}),
        (Any, {}),
        (list[int], {"type": "array", "items": {"type": "integer"}}),
        (list, {"type": "array", "items": {}}),
        (
            dict[str, list[bool]],
            {"type": "object", "additionalProperties": {"type": "array", "items": {"type": "boolean"}}},
        ),
        (int | None, {"anyOf": [{"type": "integer"}, {"type": "null"}]}),
        (Annotated[float, ["unhashable"]], {"type": "number"}),
        (tuple[str, ...], {"type": "array", "items": {"type": "string"}}),
    ],
)
def test_schemas_of_annotations(hint, schema):
    assert json_schema(hint) == schema


def test_a_decorated_function_can_still_be_called_and_named():
    assert search("x", limit=1) == ["x best"]

    @tool(name="find-it", description="Find it.")
    def find() -> None: ...

    assert (find.name, find.description) == ("find-it", "Find it.")


def test_functions_that_no_model_can_call_are_refused_when_they_are_made_tools():
    def rest(*words: str) -> None: ...
    def positional(a: int, /) -> None: ...
    def odd(a: complex) -> None: ...
    def pair(a: tuple[int, str]) -> None: ...
    def unknown(a: "Nowhere") -> None: ...  # noqa: F821

    for function in (rest, positional, odd, pair, unknown):
        with pytest.raises(UsageError, match=function.__name__):
            Tool.of(function)
    with pytest.raises(UsageError, match="lambda"):
        Tool.of(lambda: None)
    with pytest.raises(UsageError, match="max_calls"):
        Toolbox([], max_calls=0)


def test_one_refusal_names_everything_that_is_wrong():
    with pytest.raises(ToolRefusal) as caught:
        search.bind({"limt": 3, "sort": "worst"})
    said = str(caught.value)
    for part in (
        "unknown argument 'limt' (did you mean 'limit'?)",
        "sort must be one of",
        "query is missing",
        "query, limit, sort",
    ):
        assert part in said


def test_defaults_are_the_functions_own():
    assert search.bind({"query": "x"}) == {"query": "x"}
    (result,) = Toolbox([search]).run([Call("search", {"query": "x", "limit": "2"})])
    assert (result.ok, result.text) == (True, '["x best", "x best"]')


def test_an_asynchronous_tool_needs_run_async():
    async def wait() -> int:
        """Wait."""
        await asyncio.sleep(0)
        return 1

    box = Toolbox([wait, search])
    with pytest.raises(UsageError, match="run_async"):
        box.run([Call("wait", {})])
    got = asyncio.run(box.run_async([Call("wait", {}), Call("search", {"query": "q", "limit": 0}), Call("no", {})]))
    assert [(result.ok, result.text[:2]) for result in got] == [(True, "1"), (True, "[]"), (False, "Th")]


def test_a_long_result_is_cut_in_the_middle_and_says_so():
    text = result_text("a" * 600_000 + "b" * 400_000, max_chars=1_000)
    assert text == "a" * 500 + "\n[... 999000 characters cut ...]\n" + "b" * 500


@given(st.lists(st.none() | st.sampled_from(["call_0", "call_1", "x"]), max_size=12))
def test_ids_are_unique_and_given_ones_are_kept_where_they_can_be(given_ids):
    ids = CallIds()
    taken = [ids.take(one) for one in given_ids]
    assert len(set(taken)) == len(taken)
    for at, one in enumerate(given_ids):
        if one is not None and one not in taken[:at]:
            assert taken[at] == one


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=12),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)
HINTS = [str, int, float, bool, list[int], dict[str, float], int | None, Literal["a", 1], Any, list[list[str]]]


@given(json_values, st.sampled_from(HINTS))
def test_conversion_never_breaks_and_is_stable(value, hint):
    try:
        once = coerce(value, hint)
    except ValueError:
        return
    if hint is not Any:
        assert coerce(once, hint) == once
