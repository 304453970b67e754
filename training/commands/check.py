"""``peira check``."""

import argparse
import sys
from typing import TYPE_CHECKING, Any, Protocol

from peira.envs.check import check
from peira.tools.errors import UsageError
from peira.training.commands.common import Parser, add_world, console, new_parser, params_of, say, say_json

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parser", "run"]


class _Report(Protocol):
    @property
    def ok(self) -> bool: ...
    def to_json(self) -> dict[str, Any]: ...


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "check",
        "Run the conformance kit on a world, or on a model's chat template. Exit code 1 when it finds something.",
        [
            "peira check sorting",
            "peira check sorting -p actions=expanded",
            "peira check mypackage.myworld:WORLD --json",
            "peira check --template policies/tiny",
        ],
    )
    add_world(made, optional=True)
    made.add_argument(
        "--template", metavar="DIR", help="check the chat template of this model's folder instead of a world"
    )
    made.add_argument("--json", action="store_true", help="as JSON")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Check one thing."""
    report = _checked(arguments)
    if arguments.json:
        say_json(report.to_json())
    else:
        say(str(report))
    return 0 if report.ok else 1


def _checked(arguments: argparse.Namespace) -> _Report:
    given = [name for name in ("world", "template") if getattr(arguments, name) is not None]
    if len(given) != 1:
        raise UsageError(
            f"check takes one thing, and {' and '.join(given) or 'nothing'} was given: "
            "a world's name, or --template DIR"
        )
    if arguments.template is not None:
        if arguments.param:
            raise UsageError("-p is a parameter of a world; a template has none")
        from peira.agents.template_check import check_template

        return check_template(arguments.template)
    params = params_of(arguments.param)
    return _watched(arguments, lambda told: check(arguments.world, progress=told, **params))


def _watched(arguments: argparse.Namespace, work: "Callable[[Callable[[str], None] | None], _Report]") -> _Report:
    """Show on a terminal which check is running."""
    if arguments.json or not sys.stderr.isatty():
        return work(None)
    with console(stderr=True).status("checking") as status:
        return work(lambda name: status.update(f"checking: {name}"))
