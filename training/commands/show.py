"""``peira show``."""

import argparse
from typing import Any

from peira.agents.baselines import names_of
from peira.envs.spec import find
from peira.training.commands.common import Parser, add_world, new_parser, params_of, say, say_json

__all__ = ["parser", "run"]

_LISTED = 12
"""Actions shown to a person; --json has all of them."""


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "show",
        "Show a world: parameters, levels, splits, players, and the first observation of one instance.",
        ["peira show sorting", "peira show sorting -p actions=expanded --level 4 --json"],
    )
    add_world(made)
    made.add_argument("--level", type=int, help="difficulty of the instance shown")
    made.add_argument("--seed", type=int, default=0, help="which instance is shown (default: 0)")
    made.add_argument("--json", action="store_true", help="as JSON")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Print one world."""
    spec = find(arguments.world)
    env = spec.open(**params_of(arguments.param))
    observation, info = env.reset(seed=arguments.seed, options={"level": arguments.level})
    data: dict[str, Any] = {
        "world": spec.id,
        "summary": spec.summary,
        "source": spec.source,
        "params": dict(env.params),
        "defaults": spec.parameters(),
        "levels": list(env.levels),
        "splits": list(env.splits),
        "max_turns": env.limit,
        "reward_range": list(env.reward_range),
        "players": list(names_of(env)),
        "native": [action.name for action in env.native()],
        "lacks": list(spec.lacks),
        "text": env.text_version(),
        "observation": observation,
        "legal": list(info["legal"]),
        "free_text": info["free_text"],
    }
    if arguments.json:
        say_json(data)
        return 0
    say(f"{spec.id}: {spec.summary}")
    if spec.source:
        say(f"  source      {spec.source}")
    say(f"  parameters  {', '.join(f'{key}={value}' for key, value in data['params'].items()) or 'none'}")
    say(f"  levels      {env.levels.start}..{env.levels.stop - 1}")
    for key in ("splits", "players", "native", "lacks"):
        if data[key]:
            say(f"  {key:<11} {', '.join(data[key])}")
    say(f"  turns       at most {env.limit}; an episode earns {env.reward_range[0]:g}..{env.reward_range[1]:g}")
    say(f"  text        {data['text']}")
    say("")
    say(observation)
    listed = ", ".join(repr(action) for action in data["legal"][:_LISTED])
    say(f"  legal: {listed}{' ...' if len(data['legal']) > _LISTED else ''}")
    return 0
