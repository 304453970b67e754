"""``peira check``."""

import argparse
import sys

from peira.envs.check import check
from peira.training.commands.common import Parser, add_world, console, new_parser, params_of, say, say_json

__all__ = ["parser", "run"]


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "check",
        "Run the conformance kit on a world, ours or your own. Exit code 1 when it finds something.",
        [
            "peira check sorting",
            "peira check sorting -p actions=expanded",
            "peira check mypackage.myworld:WORLD --json",
        ],
    )
    add_world(made)
    made.add_argument("--json", action="store_true", help="as JSON")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Check one world."""
    params = params_of(arguments.param)
    if arguments.json or not sys.stderr.isatty():
        report = check(arguments.world, **params)
    else:
        with console(stderr=True).status("checking") as status:
            report = check(arguments.world, progress=lambda name: status.update(f"checking: {name}"), **params)
    if arguments.json:
        say_json(report.to_json())
    else:
        say(str(report))
    return 0 if report.ok else 1
