"""What commands share: arguments, output for people and for scripts, progress bars."""

import argparse
import json
import sys
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeRemainingColumn

from peira.tools.errors import UsageError
from peira.training.recipe import toml_value

__all__ = ["Parser", "add_tasks", "add_world", "bar", "console", "new_parser", "params_of", "say", "say_json", "table"]

Parser = argparse.ArgumentParser


def new_parser(name: str, purpose: str, examples: Sequence[str]) -> Parser:
    """Return a command's parser, whose help ends in examples that work."""
    shown = "\n".join(f"  {example}" for example in examples)
    return argparse.ArgumentParser(
        prog=f"peira {name}",
        description=purpose,
        epilog=f"examples:\n{shown}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
        allow_abbrev=False,
    )


def add_world(parser: Parser, *, positional: bool = True, optional: bool = False) -> None:
    """Add the world and its parameters; an ``optional`` world may be left out."""
    if positional:
        parser.add_argument(
            "world", nargs="?" if optional else None, help="a world's name (`peira list`), or module:WORLD"
        )
    else:
        parser.add_argument("--world", required=True, help="a world's name (`peira list`), or module:WORLD")
    parser.add_argument(
        "-p",
        "--param",
        action="append",
        default=[],
        metavar="KEY=VALUE",
        help="a parameter of the world; may be given several times",
    )


def add_tasks(parser: Parser, *, split: str, n: int | None) -> None:
    """Add what chooses instances."""
    parser.add_argument("--level", type=int, help="difficulty (default: the easiest)")
    parser.add_argument("--split", default=split, help=f"part of the instances (default: {split})")
    parser.add_argument("-n", type=int, default=n, help=f"number of tasks (default: {n or 'all, 100 at the most'})")
    parser.add_argument("--seed", type=int, default=0, help="names the random choices (default: 0)")


def params_of(given: Sequence[str]) -> dict[str, Any]:
    """Return world parameters from ``key=value`` texts; values are TOML, bare words are text.

    Raises:
        UsageError: a text without ``=``.
    """
    params = {}
    for text in given:
        key, equals, value = text.partition("=")
        if not equals or not key:
            raise UsageError(f"-p takes key=value (as in -p actions=expanded), not {text!r}")
        params[key] = toml_value(value, key)
    return params


def say(text: str = "") -> None:
    """Write a line to standard output."""
    sys.stdout.write(text + "\n")


def say_json(data: Any) -> None:
    """Write strict JSON to standard output."""
    say(json.dumps(data, indent=2, allow_nan=False))


def console(*, stderr: bool = False) -> Console:
    """Return a terminal; in a pipe it is wide, so that tables are not folded."""
    made = Console(stderr=stderr, highlight=False)
    return made if made.is_terminal else Console(stderr=stderr, highlight=False, width=160)


def table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str | None = None) -> None:
    """Print a table."""
    from rich.table import Table

    made = Table(title=title, box=None, padding=(0, 2, 0, 0), title_justify="left")
    for column in columns:
        made.add_column(column, overflow="fold")
    for row in rows:
        made.add_row(*row)
    console().print(made)


@contextmanager
def bar(what: str, total: int | None = None) -> Iterator[Callable[[int, int, str], None]]:
    """Show a progress bar on standard error; give a function ``(done, wanted, note)`` that moves it.

    Where standard error is not a terminal, a line appears at every tenth of the way instead.
    """
    terminal = Console(stderr=True)
    if not terminal.is_terminal:
        yield _lines(what)
        return
    name, note = TextColumn("{task.description}"), TextColumn("{task.fields[note]}")
    with Progress(
        name, BarColumn(), MofNCompleteColumn(), TimeRemainingColumn(), note, console=terminal, transient=True
    ) as shown:
        task = shown.add_task(what, total=total, note="")

        def tell(done: int, wanted: int, note: str = "") -> None:
            shown.update(task, completed=done, total=wanted, note=note)

        yield tell


def _lines(what: str) -> Callable[[int, int, str], None]:
    last = -1

    def tell(done: int, wanted: int, note: str = "") -> None:
        nonlocal last
        tenth = 10 * done // max(wanted, 1)
        if tenth != last:
            last = tenth
            sys.stderr.write(f"{what} {done}/{wanted} {note}".rstrip() + "\n")
            sys.stderr.flush()

    return tell
