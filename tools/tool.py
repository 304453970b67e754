"""Tools: typed functions that a model may call, and the box that carries a message's calls out.

::

    @tool
    def add(a: int, b: int) -> int:
        '''Add two numbers.

Args:
            a: the first.
            b: the second.
        '''
        return a + b

    box = Toolbox([add])
    box.run([Call("add", {"a": 1, "b": "2"})])      # one Result, whose text is "3"

Whatever a model sends, the answer is a text it can act on. Only machinery's failures (``Fault``) pass through.
"""

import asyncio
import inspect
import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, get_type_hints, overload

from peira.tools.calls.types import Call, Problem
from peira.tools.errors import Fault, ToolRefusal, UsageError, nearest
from peira.tools.schema import coerce, json_schema

__all__ = ["CallIds", "Result", "Tool", "Toolbox", "error_text", "result_text", "tool"]

MAX_CALLS = 16
MAX_CHARS = 20_000
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_-]{0,63}")
_SECTION = re.compile(r"(Args|Arguments|Parameters|Returns|Raises|Yields|Examples?|Notes?):\s*$")
_PARAMETER = re.compile(r"(?::param\s+)?\*{0,2}(\w+)\s*(?:\([^)]*\))?\s*:\s*(.*)")
_PATH = re.compile(r"(?<![\w.:/])(?:[A-Za-z]:)?(?:[\\/][^\\/\s'\":;,()<>|]+)+")


@dataclass(frozen=True)
class Tool:
    """A function with a name, a description and a JSON Schema of its parameters. ``Tool.of`` and ``tool`` build it."""

    name: str
    description: str
    parameters: Mapping[str, Any]
    """JSON Schema of the arguments object."""
    function: Callable[..., Any]
    hints: Mapping[str, Any]
    """The annotation of each parameter."""
    source: str
    """Where the function is defined: ``module.function``, file and line."""

    @classmethod
    def of(cls, function: Callable[..., Any], *, name: str | None = None, description: str | None = None) -> "Tool":
        """Make a tool of a typed function; its docstring describes it and, under ``Args:``, its parameters.

        Raises:
            UsageError: a parameter or name that no model can use.
        """
        source = _source(function)
        name = name or str(getattr(function, "__name__", ""))
        if not _NAME.fullmatch(name):
            raise UsageError(
                f"{source}: {name!r} is no tool name; use letters, digits, _ and -, at most 64; give name="
            )
        try:
            annotations = get_type_hints(function, include_extras=True)
        except (NameError, TypeError) as error:
            raise UsageError(f"{source}: its annotations cannot be resolved ({error})") from error
        summary, described = _describe(inspect.getdoc(function) or "")
        properties: dict[str, Any] = {}
        hints: dict[str, Any] = {}
        required: list[str] = []
        for parameter in inspect.signature(function).parameters.values():
            if parameter.kind not in (parameter.POSITIONAL_OR_KEYWORD, parameter.KEYWORD_ONLY):
                raise UsageError(f"{source}: {parameter} cannot be called by name; tools take named parameters only")
            hints[parameter.name] = hint = annotations.get(parameter.name, Any)
            try:
                properties[parameter.name] = schema = json_schema(hint)
            except UsageError as error:
                raise UsageError(f"{source}, parameter {parameter.name!r}: {error}") from None
            if parameter.name in described:
                schema["description"] = described[parameter.name]
            if parameter.default is parameter.empty:
                required.append(parameter.name)
        parameters = {"type": "object", "properties": properties, "required": required, "additionalProperties": False}
        return cls(
            name, description or summary, MappingProxyType(parameters), function, MappingProxyType(hints), source
        )

    def schema(self) -> dict[str, Any]:
        """Return what chat templates and servers expect in their list of tools."""
        function = {"name": self.name, "description": self.description, "parameters": dict(self.parameters)}
        return {"type": "function", "function": function}

    def bind(self, arguments: Mapping[str, Any]) -> dict[str, Any]:
        """Return the arguments as the function wants them.

        Raises:
            ToolRefusal: names or values that do not fit; the text names all of them, so that one retry is enough.
        """
        wrong: list[str] = []
        bound: dict[str, Any] = {}
        for key, value in arguments.items():
            if key not in self.hints:
                close = nearest(key, self.hints)
                wrong.append(f"unknown argument {str(key)[:40]!r}{f' (did you mean {close!r}?)' if close else ''}")
                continue
            try:
                bound[key] = coerce(value, self.hints[key])
            except ValueError as error:
                wrong.append(f"{key} must be {error}")
        wrong += [f"{key} is missing" for key in self.parameters["required"] if key not in arguments]
        if wrong:
            takes = ", ".join(self.hints) or "none"
            raise ToolRefusal(f"{self.name} was not run: {'; '.join(wrong)}. Its arguments: {takes}.")
        return bound

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the function itself, as if it had not been made a tool."""
        return self.function(*args, **kwargs)


@overload
def tool(function: Callable[..., Any], /) -> Tool: ...
@overload
def tool(*, name: str | None = None, description: str | None = None) -> Callable[[Callable[..., Any]], Tool]: ...
def tool(
    function: Callable[..., Any] | None = None, /, *, name: str | None = None, description: str | None = None
) -> Tool | Callable[[Callable[..., Any]], Tool]:
    """Decorate a typed function to make it a tool: ``@tool``, or ``@tool(name="search")``."""
    if function is not None:
        return Tool.of(function)
    return lambda function: Tool.of(function, name=name, description=description)


def _source(function: Callable[..., Any]) -> str:
    code = getattr(inspect.unwrap(function), "__code__", None)
    where = f" ({code.co_filename}:{code.co_firstlineno})" if code else ""
    qualified = getattr(function, "__qualname__", type(function).__qualname__)
    return f"{getattr(function, '__module__', '?')}.{qualified}{where}"


def _describe(doc: str) -> tuple[str, dict[str, str]]:
    """Return a docstring's opening text, and what it says of each parameter (``Args:`` section or ``:param x:``)."""
    opening: list[str] = []
    described: dict[str, str] = {}
    section, current = "", ""
    for line in doc.splitlines():
        text = line.strip()
        if heading := _SECTION.fullmatch(text):
            section, current = heading[1], ""
        elif text.startswith(":"):
            section = "Args" if text.startswith(":param") else "other"
            current = _note(text, described) if section == "Args" else ""
        elif not section:
            opening.append(text)
        elif section in ("Args", "Arguments", "Parameters") and text:
            deeper = len(line) - len(line.lstrip()) > 4
            if current and (deeper or not _PARAMETER.fullmatch(text)):
                described[current] = f"{described[current]} {text}".strip()
            else:
                current = _note(text, described)
    return "\n".join(opening).strip(), described


def _note(text: str, described: dict[str, str]) -> str:
    match = _PARAMETER.fullmatch(text)
    if match is None:
        return ""
    described[match[1]] = match[2]
    return match[1]


# ---- what the model reads -------------------------------------------------------------------------------------------


def result_text(value: Any, *, max_chars: int = MAX_CHARS) -> str:
    """Return a tool's result as text that is never empty.

    Text is itself; nothing (``None``) is ``(done)``; empty text is ``(empty)``; numbers are their digits (0 is ``0``);
    ``true`` and ``false``; lists and dicts are JSON. Beyond ``max_chars`` the middle is cut out, and the cut is marked.
    """
    if value is None:
        text = "(done)"
    elif isinstance(value, str):
        text = value
    elif isinstance(value, bytes):
        text = value.decode("utf-8", "replace")
    elif isinstance(value, bool | int | float | list | tuple | dict):
        try:
            text = json.dumps(value, ensure_ascii=False, default=str)
        except (TypeError, ValueError, RecursionError):
            text = str(value)
    else:
        text = str(value)
    # A lone surrogate (from "\ud800" in a model's JSON) could not be written to any file or tokenized.
    text = text.encode("utf-8", "replace").decode("utf-8")
    if len(text) > max_chars:
        half = max_chars // 2
        text = f"{text[:half]}\n[... {len(text) - 2 * half} characters cut ...]\n{text[len(text) - half :]}"
    return text if text.strip() else "(empty)"


def error_text(error: BaseException) -> str:
    """Return an exception as one short line: its type and message, no traceback, no directories."""
    try:
        message = str(error).strip()
    except Exception:  # the boundary: an exception whose own text cannot be made
        message = ""
    message = message.splitlines()[0] if message else ""
    message = _PATH.sub(lambda path: re.split(r"[\\/]", path.group())[-1], message)
    return f"{type(error).__name__}{': ' + message[:200] if message else ''}"


# ---- carrying calls out ---------------------------------------------------------------------------------------------


class CallIds:
    """Gives each call of an episode an id of its own: the model's, or a fresh one. Keep one per episode."""

    def __init__(self) -> None:
        self._used: set[str] = set()
        self._count = 0

    def take(self, given: str | None) -> str:
        """Return ``given`` if it is there and new, else an id that no call of the episode has had."""
        taken = given
        while taken is None or taken in self._used:
            taken = f"call_{self._count}"
            self._count += 1
        self._used.add(taken)
        return taken


@dataclass(frozen=True, slots=True)
class Result:
    """What one call came to."""

    id: str
    name: str
    """The tool's name as it was called; empty for something that could not be read as a call."""
    text: str
    """What the model reads."""
    ok: bool


class Toolbox:
    """The tools of one agent, by name."""

    def __init__(
        self, tools: Iterable[Tool | Callable[..., Any]], *, max_calls: int = MAX_CALLS, max_chars: int = MAX_CHARS
    ) -> None:
        """Collect tools; plain functions are made tools.

        Args:
            tools: in the order in which they are listed.
            max_calls: calls of one message that are carried out; the rest is refused in one result.
            max_chars: longest result.

        Raises:
            UsageError: two tools of one name; both places are named.
        """
        if max_calls < 1:
            raise UsageError(f"max_calls must be at least 1, not {max_calls}")
        self.max_calls, self.max_chars = max_calls, max_chars
        self._tools: dict[str, Tool] = {}
        for given in tools:
            made = given if isinstance(given, Tool) else Tool.of(given)
            other = self._tools.setdefault(made.name, made)
            if other is not made:
                raise UsageError(
                    f"two tools are called {made.name!r}: {other.source} and {made.source}; "
                    "give one another name: Tool.of(function, name=...)"
                )

    @property
    def names(self) -> tuple[str, ...]:
        """Names of the tools."""
        return tuple(self._tools)

    def schemas(self) -> list[dict[str, Any]]:
        """Return the schemas of all tools, as chat templates and servers expect them."""
        return [made.schema() for made in self._tools.values()]

    def run(self, items: Sequence[Call | Problem], ids: CallIds | None = None) -> tuple[Result, ...]:
        """Carry out a message's calls one after the other.

        Args:
            items: calls and problems in the order in which they were written (``Parsed.items``).
            ids: the episode's; without it ids are unique in this message only.

        Returns:
            One result per item, in the same order; beyond ``max_calls`` one more for all the rest.

        Raises:
            Fault: machinery failed inside a tool.
            UsageError: a tool is asynchronous; use ``run_async``.
        """
        ids = ids or CallIds()
        return (*[self._run_one(item, ids) for item in items[: self.max_calls]], *self._surplus(items, ids))

    async def run_async(self, items: Sequence[Call | Problem], ids: CallIds | None = None) -> tuple[Result, ...]:
        """Carry out a message's calls at the same time; the results are in the order of the calls.

        Asynchronous tools run on the event loop, the others in threads.
        """
        ids = ids or CallIds()
        kept = items[: self.max_calls]
        marks = [ids.take(item.id if isinstance(item, Call) else None) for item in kept]
        results = await asyncio.gather(
            *(self._run_one_async(item, mark) for item, mark in zip(kept, marks, strict=True))
        )
        return (*results, *self._surplus(items, ids))

    def _run_one(self, item: Call | Problem, ids: CallIds) -> Result:
        mark = ids.take(item.id if isinstance(item, Call) else None)
        try:
            made, arguments = self._ready(item)
            if inspect.iscoroutinefunction(made.function):
                raise UsageError(f"{made.source} is asynchronous; carry calls out with `await box.run_async(...)`")
        except ToolRefusal as refusal:
            return self._refused(item, mark, refusal)
        try:
            return self._done(item, mark, made.function(**arguments))
        except Fault:
            raise
        except Exception as error:  # the boundary between a tool's code and the model
            return self._refused(item, mark, error)

    async def _run_one_async(self, item: Call | Problem, mark: str) -> Result:
        try:
            made, arguments = self._ready(item)
        except ToolRefusal as refusal:
            return self._refused(item, mark, refusal)
        try:
            if inspect.iscoroutinefunction(made.function):
                return self._done(item, mark, await made.function(**arguments))
            return self._done(item, mark, await asyncio.to_thread(made.function, **arguments))
        except Fault:
            raise
        except Exception as error:  # the boundary between a tool's code and the model
            return self._refused(item, mark, error)

    def _ready(self, item: Call | Problem) -> tuple[Tool, dict[str, Any]]:
        if isinstance(item, Problem):
            raise ToolRefusal(item.text)
        made = self._tools.get(item.name)
        if made is None:
            close = nearest(item.name, self._tools)
            hint = f" Did you mean {close!r}?" if close else ""
            listed = ", ".join(self._tools) or "none"
            raise ToolRefusal(f"There is no tool {item.name[:60]!r}, so nothing was run.{hint} Tools: {listed}.")
        return made, made.bind(item.arguments)

    def _done(self, item: Call | Problem, mark: str, value: Any) -> Result:
        return Result(mark, _name(item), result_text(value, max_chars=self.max_chars), True)

    def _refused(self, item: Call | Problem, mark: str, error: Exception) -> Result:
        text = str(error) if isinstance(error, ToolRefusal) else f"{_name(item)} failed: {error_text(error)}"
        return Result(mark, _name(item), result_text(text, max_chars=self.max_chars), False)

    def _surplus(self, items: Sequence[Call | Problem], ids: CallIds) -> tuple[Result, ...]:
        surplus = len(items) - self.max_calls
        if surplus <= 0:
            return ()
        text = f"At most {self.max_calls} calls per message are carried out; the last {surplus} were not run."
        return (Result(ids.take(None), "", text, False),)


def _name(item: Call | Problem) -> str:
    return item.name if isinstance(item, Call) else ""
