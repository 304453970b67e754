"""``peira list``."""

import argparse

from peira.envs.spec import find, names
from peira.training.commands.common import Parser, new_parser, say_json, table

__all__ = ["parser", "run"]


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser("list", "List the worlds that are installed, ours and those of other packages.", ["peira list"])
    made.add_argument("--json", action="store_true", help="as JSON")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Print every world; one that cannot be imported is listed with the reason and spoils nothing."""
    found = [_described(name) for name in names()]
    if arguments.json:
        say_json(found)
    else:
        table(["world", "", "source"], [[w["world"], w["summary"] or w["broken"], w["source"]] for w in found])
    return 0


def _described(name: str) -> dict[str, str]:
    try:
        spec = find(name)
    except Exception as error:  # boundary: importing another package's module may raise anything
        reason = f"cannot be loaded: {type(error).__name__}: {error}"
        return {"world": name, "summary": "", "source": "", "broken": reason}
    return {"world": name, "summary": spec.summary, "source": spec.source, "broken": ""}
