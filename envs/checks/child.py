"""Plays the kit's standard episodes in a fresh interpreter: an order (JSON) on stdin, a hash on stdout."""

import json
import sys
from functools import reduce
from importlib import import_module

from peira.envs.checks.lab import Bench, transcript_digest
from peira.envs.spec import WorldSpec

__all__ = ["main"]


def main() -> None:
    """Read the order, play, print the hash."""
    order = json.load(sys.stdin)
    env = reduce(getattr, order["name"].split("."), import_module(order["module"]))
    spec = WorldSpec(id=order["spec"], env=env, summary="", lacks=tuple(order["lacks"]))  # type: ignore[arg-type]
    sys.stdout.write(transcript_digest(Bench(spec, order["params"])))


if __name__ == "__main__":
    main()
