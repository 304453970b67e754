"""``peira eval``."""

import argparse
from typing import Any

from peira.tools.errors import UsageError
from peira.training.commands.common import Parser, add_tasks, add_world, bar, console, new_parser, params_of, say_json
from peira.training.commands.rollout import add_limits, limits_of
from peira.training.commands.server import add_server, served_of
from peira.training.evaluate import evaluate, label

__all__ = ["parser", "run"]


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "eval",
        "Measure agents on a fixed list of held-out tasks. Success is the world's word; brackets are 95 % intervals.",
        [
            "peira eval sorting --agent policies/tiny --suite sort4 --seeds 3",
            "peira eval sorting --agent naive --agent network --level 4 -n 50 --json",
            "peira eval sorting --server http://localhost:8000/v1 --model some-model -n 20",
        ],
    )
    add_world(made)
    made.add_argument(
        "--agent", action="append", default=[], help="a policy folder or a player's name; may be repeated"
    )
    add_server(made)
    made.add_argument("--beside", default="oracle,random", help="players measured too (default: oracle,random)")
    made.add_argument("--suite", help="a named list of tasks instead of -n, --split and --level")
    made.add_argument("--seeds", type=int, default=1, help="tries per task (default: 1)")
    add_tasks(made, split="test", n=None)
    add_limits(made)
    made.add_argument("--json", action="store_true", help="as JSON")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Measure and print."""
    beside = [name for name in arguments.beside.split(",") if name]
    agents: dict[str, Any] = {label(agent): agent for agent in arguments.agent}
    if len(agents) != len(arguments.agent):
        raise UsageError(f"two agents have the same name in {', '.join(arguments.agent)}; rename a folder")
    served = served_of(arguments)
    if served is not None:
        agents[served.model] = served
    with bar("episodes") as moved:
        report = evaluate(
            arguments.world,
            agents,
            beside=beside,
            suite_name=arguments.suite,
            split=arguments.split,
            level=arguments.level,
            n=arguments.n,
            seeds=arguments.seeds,
            seed=arguments.seed,
            temperature=arguments.temperature,
            settings=limits_of(arguments),
            progress=lambda _, done, wanted: moved(done, wanted, ""),
            **params_of(arguments.param),
        )
    if arguments.json:
        say_json(report.json())
    else:
        console().print(report.table())
    return 0
