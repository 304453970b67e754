"""Steps per CPU second of the worlds, guards on: ``python tests/bench/bench_worlds.py``. Goal: 100,000."""

import sys

from peira.envs.check import throughput


def main() -> int:
    """Print one line per world and format."""
    worst = float("inf")
    for params in ({"actions": "tags"}, {"actions": "expanded"}):
        speed = throughput("sorting", **params)
        worst = min(worst, speed)
        print(f"sorting {params['actions']:<9} {speed:>10,.0f} steps per CPU second")
    return int(worst < 100_000)


if __name__ == "__main__":
    sys.exit(main())
