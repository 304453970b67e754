"""``peira quickstart``."""

import argparse
import itertools
from pathlib import Path

from peira.training.commands.common import Parser, new_parser

__all__ = ["parser", "run"]


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "quickstart",
        "Make a tiny policy, show it a wasteful sorter, train it by trial, and say what it found. Minutes on a laptop.",
        ["peira quickstart", "peira quickstart --out runs/first"],
    )
    made.add_argument("--out", help="folder of the run (default: runs/quickstart, or the next free number)")
    made.add_argument("--seed", type=int, default=0, help="names all random choices (default: 0)")
    made.add_argument("--steps", type=int, help="training steps (default: what shows the effect)")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Hand over to the main job."""
    from peira.training.quickstart import quickstart

    return quickstart(arguments.out or _free(), seed=arguments.seed, steps=arguments.steps)


def _free() -> Path:
    """Return a folder that nothing lies in yet: a second quickstart does not end with a refusal."""
    first = Path("runs/quickstart")
    choices = itertools.chain([first], (first.with_name(f"{first.name}-{n}") for n in itertools.count(2)))
    return next(path for path in choices if not path.exists())
