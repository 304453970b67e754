"""``peira rollout``."""

import argparse
import json
import sys

from peira.agents.rollout import RolloutSettings, rollout
from peira.agents.types import Episode
from peira.training.commands.common import Parser, add_tasks, add_world, bar, new_parser, params_of, say

__all__ = ["add_limits", "limits_of", "parser", "run"]


def add_limits(parser: Parser) -> None:
    """Add the limits of an episode."""
    parser.add_argument("--temperature", type=float, default=1.0, help="of a policy; 0 is greedy (default: 1)")
    parser.add_argument("--max-turns", type=int, help="turns of an episode (default: the world's)")
    parser.add_argument("--max-tokens", type=int, default=512, help="tokens of a turn (default: 512)")


def limits_of(arguments: argparse.Namespace) -> RolloutSettings:
    """Return the limits that were asked for."""
    return RolloutSettings(
        max_turns=arguments.max_turns, max_tokens=arguments.max_tokens, temperature=arguments.temperature
    )


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "rollout",
        "Play tasks of a world with an agent; print each episode, and keep them with -o.",
        [
            "peira rollout sorting --agent oracle -n 4 --level 3",
            "peira rollout sorting --agent policies/tiny -n 64 -o episodes.jsonl.zst",
        ],
    )
    add_world(made)
    made.add_argument("--agent", default="oracle", help="a policy folder or a player's name (default: oracle)")
    add_tasks(made, split="train", n=1)
    add_limits(made)
    made.add_argument("-o", "--out", help="write the episodes to this file (.jsonl or .jsonl.zst)")
    made.add_argument("--json", action="store_true", help="one JSON object per episode")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Play, print, and keep."""
    limits, params = limits_of(arguments), params_of(arguments.param)
    with bar("episodes") as moved:
        episodes = rollout(
            arguments.world,
            arguments.agent,
            n=arguments.n,
            level=arguments.level,
            split=arguments.split,
            seed=arguments.seed,
            settings=limits,
            progress=lambda _, done, wanted: moved(done, wanted, ""),
            **params,
        )
    if arguments.out:
        from peira.agents.codec import write

        write(arguments.out, episodes)
    for episode in episodes:
        _print(episode, as_json=arguments.json)
    if not arguments.json:
        solved = sum(episode.success for episode in episodes)
        kept = f"; kept in {arguments.out}" if arguments.out else ""
        say(f"{solved} of {len(episodes)} solved{kept}")
    return 0


def _print(episode: Episode, *, as_json: bool) -> None:
    if as_json:
        turns = [{"action": t.action, "observation": t.observation, "reward": t.reward} for t in episode.turns]
        record = {
            "task": episode.task.key,
            "success": episode.success,
            "score": episode.score,
            "end": str(episode.end),
            "first_observation": episode.first_observation,
            "turns": turns,
        }
        sys.stdout.write(json.dumps(record, allow_nan=False) + "\n")
        return
    say(episode.first_observation)
    for turn in episode.turns:
        say(f"  > {turn.action}")
        if turn.observation.strip():
            say(f"    {turn.observation.strip()}")
    say(f"  [{episode.end}, score {episode.score:g}, {len(episode.turns)} turns, task {episode.task.key}]")
    say()
