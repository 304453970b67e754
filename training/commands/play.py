"""``peira play``."""

import argparse
import asyncio
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from peira.agents.episode import run_episode
from peira.agents.rollout import seated
from peira.agents.types import Episode, Turn
from peira.envs.core import Env
from peira.envs.seeding import seed_of
from peira.envs.types import Snapshot
from peira.tasks.task import Task
from peira.tools.errors import Fault, UsageError
from peira.training.commands.common import Parser, add_world, new_parser, params_of, say
from peira.training.commands.rollout import add_limits, limits_of

__all__ = ["Table", "parser", "run"]

_HELP = """\
  a number     the action with that number in the list
  other text   an action as the world reads it
  ?            this help, and the list of actions
  :hint        what the oracle would do now
  :undo        take the last action back
  :quit        stop"""
_LISTED = 24


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "play",
        "Play a world yourself; or, with --policy or --agent, watch a policy or player step by step.",
        [
            "peira play sorting --level 4",
            "peira play sorting --actions expanded",
            "peira play sorting --policy runs/mine/policy --level 4",
        ],
    )
    add_world(made)
    made.add_argument("--actions", choices=("tags", "expanded"), help="short for -p actions=...")
    made.add_argument("--agent", "--policy", dest="agent", help="watch this policy folder or player")
    made.add_argument("--level", type=int, help="difficulty (default: the easiest)")
    made.add_argument("--split", default="test", help="part of the instances (default: test)")
    made.add_argument("--seed", type=int, default=0, help="which instance (default: 0)")
    made.add_argument("--go", action="store_true", help="watch without waiting for Enter after each step")
    add_limits(made)
    return made


def run(arguments: argparse.Namespace) -> int:
    """Play or watch one episode."""
    params = params_of(arguments.param)
    if arguments.actions:
        params["actions"] = arguments.actions
    if arguments.agent and arguments.agent != "human":
        return _watch(arguments, params)
    task = Task.of(arguments.world, arguments.seed, level=arguments.level, split=arguments.split, **params)
    env = task.open(max_turns=arguments.max_turns)
    Table(env, input, say).play(task)
    return 0


class Table:
    """Where a person sits: shows the world, reads actions, takes steps back.

    Args:
        env: the world.
        read: asks for a line.
        write: shows one.
    """

    def __init__(self, env: Env[Any], read: Callable[[str], str], write: Callable[[str], None]) -> None:
        self.env, self._read, self._write = env, read, write
        self._past: list[tuple[Snapshot, float]] = []
        self._score = 0.0

    def play(self, task: Task) -> bool | None:
        """Play one task to its end; return whether it was solved, ``None`` when the person stopped."""
        observation, info = task.start(self.env)
        self._write(observation)
        self._write("(? for help)")
        while True:
            action = self._ask(info["legal"], info["free_text"])
            if action is None:
                return None
            if not action:
                continue
            self._past.append((self.env.snapshot(), self._score))
            observation, reward, terminated, truncated, info = self.env.step(action)
            self._score += reward
            if observation.strip():
                self._write(observation.strip("\n"))
            if terminated or truncated:
                self._write(f"[{info['end']}, score {self._score:g}, {info['turn']} turns]")
                return bool(info["success"])

    def _ask(self, legal: tuple[str, ...], free_text: bool) -> str | None:
        """Return an action, nothing after a command, ``None`` to stop."""
        try:
            typed = self._read("> ").strip()
        except EOFError:
            return None
        match typed:
            case ":quit":
                return None
            case "?":
                self._write(_HELP)
                self._list(legal, free_text)
            case ":hint":
                self._hint()
            case ":undo":
                self._undo()
            case _ if typed in legal:  # before numbers: a world may have the action "7"
                return typed
            case _ if typed.isdigit() and 1 <= int(typed) <= len(legal):
                chosen = legal[int(typed) - 1]
                self._write(f"  {chosen}")
                return chosen
            case _:
                return typed
        return ""

    def _list(self, legal: tuple[str, ...], free_text: bool) -> None:
        for number, action in enumerate(legal[:_LISTED], 1):
            self._write(f"  {number:>3}  {action!r}")
        if len(legal) > _LISTED:
            self._write(f"       and {len(legal) - _LISTED} more")
        if free_text:
            self._write("       or any text" if legal else "  any text")

    def _hint(self) -> None:
        try:
            plan = self.env.oracle()
        except (TypeError, UsageError) as error:
            self._write(f"  no hint: {error}")
            return
        self._write(f"  the oracle would: {plan[0]}" if plan else "  the oracle has nothing left to do")

    def _undo(self) -> None:
        if not self._past:
            self._write("  nothing to take back")
            return
        snapshot, self._score = self._past.pop()
        self.env.restore(snapshot)
        self._write("  taken back")


def _watch(arguments: argparse.Namespace, params: dict[str, Any]) -> int:
    """Show an episode turn by turn, as it is played."""
    engine, view, player = seated(arguments.agent, arguments.world, params)
    if engine is not None and view.actions is not None:
        params.setdefault("actions", "expanded")
    task = Task.of(arguments.world, arguments.seed, level=arguments.level, split=arguments.split, **params)
    env = task.open()
    say(task.start(env)[0])
    waits = sys.stdin.isatty() and not arguments.go

    def shown(turn: Turn) -> None:
        say(f"  > {turn.action!r}{_certainty(turn)}")
        if turn.observation.strip():
            say(f"    {turn.observation.strip()}")
        if waits and not (turn.terminated or turn.truncated):
            input()

    async def play() -> Any:
        limits, seed = limits_of(arguments), seed_of("play", arguments.seed)
        try:
            return await run_episode(task, engine, view, limits, seed=seed, player=player, watch=shown)
        finally:
            if engine is not None:
                await engine.close()

    made = asyncio.run(play())
    if not isinstance(made, Episode):
        raise Fault(made.error, where=made.where)
    say(f"  [{made.end}, score {made.score:g}, {len(made.turns)} turns]")
    return 0


def _certainty(turn: Turn) -> str:
    """Return how probable the turn was under the policy; a player's turns have no probability."""
    logprobs = turn.completion.logprobs[turn.tags == 0]
    return f"   (p {float(np.exp(logprobs.sum(dtype=np.float64))):.2f})" if len(logprobs) else ""
