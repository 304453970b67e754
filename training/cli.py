"""The command line. Each command is a module of ``peira.training.commands`` and is imported when it is called.

Exit codes: 0 done; 1 the machinery failed, or a check found something; 2 the person can put it right; 130 stopped by
Ctrl-C.
"""

import errno
import os
import sys
from collections.abc import Sequence
from importlib import import_module

from peira.tools.errors import Fault, UsageError, unknown

__all__ = ["COMMANDS", "main", "module_of"]

COMMANDS = {
    "quickstart": "an agent trains itself on sorting: a table, a curve, and a way to watch it",
    "list": "the worlds that are installed",
    "show": "one world: its parameters, levels, splits, players and a first observation",
    "check": "does a world keep the contract? the conformance kit says so",
    "play": "play a world yourself, or watch a policy or player step by step",
    "rollout": "play tasks with an agent and keep the episodes",
    "eval": "measure agents on held-out tasks, beside the oracle and chance",
    "train": "train a policy by a recipe",
    "recipes": "the training recipes, and in what they differ",
    "policy": "make, expand or look at a policy folder",
}
"""Commands and what they are for; ``commands/<name>.py`` holds each (``list`` in ``list_.py``)."""

_DISK = (errno.ENOSPC, errno.EDQUOT, errno.EACCES, errno.EROFS, errno.EPERM)


def main(argv: Sequence[str] | None = None) -> int:
    """Run one command and return its exit code."""
    arguments = list(sys.argv[1:] if argv is None else argv)
    try:
        return _run(arguments)
    except UsageError as error:
        return _told(str(error), 2)
    except Fault as error:
        return _told(f"{error.where} failed: {error}", 1)
    except KeyboardInterrupt:
        return _told("stopped", 130)
    except BrokenPipeError:
        # Whoever read our output has enough. Python would complain once more while it shuts down.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 1
    except OSError as error:
        if error.errno not in _DISK:
            raise
        where = f" {error.filename}" if error.filename else ""
        return _told(f"cannot write{where}: {error.strerror}; free some space or choose another place", 2)


def _told(message: str, code: int) -> int:
    sys.stderr.write(f"peira: {message}\n")
    return code


def _run(arguments: list[str]) -> int:
    if not arguments or arguments[0] in ("-h", "--help", "help"):
        sys.stdout.write(_overview())
        return 0
    if arguments[0] in ("-V", "--version"):
        from peira import __version__

        sys.stdout.write(f"peira {__version__}\n")
        return 0
    name, rest = arguments[0], arguments[1:]
    if name not in COMMANDS:
        raise unknown("command", name, COMMANDS, remedy="`peira --help` says what each is for.")
    module = import_module(module_of(name))
    parser = module.parser()
    try:
        parsed = parser.parse_args(rest)
    except SystemExit as stop:  # argparse has said what was wrong, or printed its help
        return stop.code if isinstance(stop.code, int) else 2
    return int(module.run(parsed))


def module_of(command: str) -> str:
    """Return the module that holds a command."""
    return f"peira.training.commands.{'list_' if command == 'list' else command}"


def _overview() -> str:
    width = max(map(len, COMMANDS))
    lines = [f"  {name:<{width}}  {purpose}" for name, purpose in COMMANDS.items()]
    return "\n".join(
        [
            "usage: peira COMMAND ...",
            "",
            "Agents that learn by trial. `peira COMMAND --help` has an example of each:",
            "",
            *lines,
            "",
        ]
    )
