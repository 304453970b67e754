"""``peira check``."""

import argparse
import sys
from typing import TYPE_CHECKING, Any, Protocol

from peira.envs.check import check
from peira.tools.errors import UsageError
from peira.training.commands.common import Parser, add_world, console, new_parser, params_of, say, say_json
from peira.training.commands.server import add_server, key_of

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["parser", "run"]

_OF_ENGINES = ("policy", "server", "model", "key_env")
"""Options that say more about an engine."""


class _Report(Protocol):
    @property
    def ok(self) -> bool: ...
    def to_json(self) -> dict[str, Any]: ...


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "check",
        "Run the conformance kit on a world, a chat template or an engine. Exit code 1 when it finds something.",
        [
            "peira check sorting",
            "peira check sorting -p actions=expanded",
            "peira check mypackage.myworld:WORLD --json",
            "peira check --template policies/tiny",
            "peira check --engine local --policy policies/tiny",
            "peira check --engine server --server http://localhost:8000/v1 --model tiny --policy policies/tiny",
        ],
    )
    add_world(made, optional=True)
    made.add_argument(
        "--template", metavar="DIR", help="check the chat template of this model's folder instead of a world"
    )
    made.add_argument(
        "--engine",
        metavar="NAME",
        help="check an engine instead: scripted, local, server, or module:function (from a Policy to an engine)",
    )
    made.add_argument("--policy", metavar="DIR", help="the policy whose weights the engine serves")
    add_server(made, evaluation=False)
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
    given = [name for name in ("world", "template", "engine") if getattr(arguments, name) is not None]
    if len(given) != 1:
        raise UsageError(
            f"check takes one thing, and {' and '.join(given) or 'nothing'} was given: "
            "a world's name, --template DIR, or --engine NAME"
        )
    if given != ["world"] and arguments.param:
        raise UsageError(f"-p is a parameter of a world; {given[0]} has none")
    lost = [f"--{name.replace('_', '-')}" for name in _OF_ENGINES if getattr(arguments, name) is not None]
    if lost and given != ["engine"]:
        raise UsageError(f"{', '.join(lost)}: these belong to --engine")
    if arguments.template is not None:
        from peira.agents.template_check import check_template

        return check_template(arguments.template)
    if arguments.engine is not None:
        return _engine(arguments)
    params = params_of(arguments.param)
    return _watched(arguments, lambda told: check(arguments.world, progress=told, **params))


def _engine(arguments: argparse.Namespace) -> _Report:
    from peira.agents.engine_check import check_engine, table_subject

    if arguments.engine == "scripted":  # needs no learner, so nothing heavy is loaded
        subject = table_subject()
    else:
        from peira.training.engine_subjects import subject_of

        subject = subject_of(
            arguments.engine, arguments.policy, url=arguments.server, model=arguments.model, key=key_of(arguments)
        )
    return _watched(arguments, lambda told: check_engine(subject, progress=told))


def _watched(arguments: argparse.Namespace, work: "Callable[[Callable[[str], None] | None], _Report]") -> _Report:
    """Show on a terminal which check is running."""
    if arguments.json or not sys.stderr.isatty():
        return work(None)
    with console(stderr=True).status("checking") as status:
        return work(lambda name: status.update(f"checking: {name}"))
