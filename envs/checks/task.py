"""Checks of the task itself: it can be solved, not by luck, without peeking, and its states have names."""

from collections.abc import Iterator
from dataclasses import replace
from itertools import combinations
from typing import Any

from peira.envs.checks.lab import SEEDS, STEPS, Bench, Check, Finding
from peira.envs.core import BUCKETS, Env
from peira.envs.seeding import canonical, rng
from peira.tools.errors import UsageError

__all__ = ["CHECKS"]

_KEY_REMEDY = "build the key from what decides the future alone: no step counter, no history, no object ids"


def state_key(bench: Bench) -> Iterator[Finding]:
    """One state has one key, whatever led to it, and a key has one future."""
    env = bench.open()
    for seed, level in bench.starts():
        bench.reset(env, seed, level)
        fault = _counter(bench, env)
        if fault:
            yield Finding("state key", f"seed {seed}, level {level}: {fault}", _KEY_REMEDY)
            return
    fault = _collision(bench)
    if fault:
        yield Finding("state key", fault, "let the key name all that decides what actions lead to")


def _counter(bench: Bench, env: Env[Any]) -> str | None:
    """Look for time in the key: turns in a snapshot, and refused actions, which change nothing."""
    key = env.state_key()
    if not isinstance(key, str):
        return f"the key is of type {type(key).__name__}, not str"
    taken = env.snapshot()
    env.restore(replace(taken, turns=taken.turns + 7))
    later = env.state_key()
    env.restore(taken)
    if later != key:
        return f"the key counts turns: {key!r} became {later!r}"
    row = bench.step(env, "\x00 no such action")
    if not row.over and not row.info["valid"] and env.state_key() != key:
        return f"an action that was refused changed the key from {key!r} to {env.state_key()!r}"
    return None


def _collision(bench: Bench) -> str | None:
    """Walk about; whenever a key comes up again, compare what a few actions lead to from both places."""
    env = bench.open()
    known: dict[str, Any] = {}
    for seed, level in bench.starts(SEEDS[:4]):
        for walk in range(3):
            chance = rng("check", "walk", seed, level, walk)
            over = bench.reset(env, seed, level).over
            for _ in range(STEPS):
                if over:
                    break
                key = env.state_key()
                if key in known:
                    fault = _futures_part(bench, env, known[key], key)
                    if fault:
                        return fault
                else:
                    known[key] = env.snapshot()
                over = bench.step(env, bench.choose(env, chance, 0.3)).over
    return None


def _futures_part(bench: Bench, env: Env[Any], other: Any, key: str) -> str | None:
    first, second = env.fork(), env.fork()
    second.restore(other)
    if first.legal() != second.legal():
        return f"two states with the key {key!r} have different legal actions"
    actions = [*first.legal()[:4], *first.legal()[-4:]]
    if bench.can("oracle"):
        actions += [*first.oracle()[:1], *second.oracle()[:1]]
    for action in dict.fromkeys(actions):
        ends = []
        for twin, state in ((first, env.snapshot()), (second, other)):
            twin.restore(replace(state, turns=0))
            twin.np_random = rng("check", "futures")
            row = bench.step(twin, action)
            ends.append((row.reward, row.terminated, row.info["success"], row.info["state_key"], row.info["legal"]))
        if ends[0] != ends[1]:
            return f"two states have the key {key!r}, but {action!r} leads to {ends[0]} and {ends[1]} from them"
    return None


def oracle(bench: Bench) -> Iterator[Finding]:
    """The oracle solves every instance of every level and split, also from the middle of somebody's play."""
    env = bench.open()
    remedy = "draw only instances that can be solved, and plan from the present state"
    for split in env.splits:
        for seed, level in bench.starts():
            for detour in (0, 3):
                bench.reset(env, seed, level, split)
                chance = rng("check", "detour", seed)
                if any(bench.step(env, bench.choose(env, chance, 0.0)).over for _ in range(detour)):
                    continue
                where = f"seed {seed}, level {level}, split {split!r}" + (
                    f", after {detour} random steps" if detour else ""
                )
                try:
                    plan = env.oracle()
                except UsageError:
                    if detour:
                        continue  # The world says that this state has no way out.
                    raise
                ended = False
                for action in plan:
                    if ended:
                        yield Finding("oracle", f"{where}: its plan goes on after the end", remedy)
                        return
                    row = bench.step(env, action)
                    ended = row.over
                if not ended or row.info["success"] is not True:
                    yield Finding(
                        "oracle", f"{where}: its plan of {len(plan)} actions does not solve the instance", remedy
                    )
                    return


def random_play(bench: Bench) -> Iterator[Finding]:
    """Random play does not do what the oracle does."""
    env = bench.open()
    level = bench.spec.env.levels[-1]
    scores = {"random": 0.0, "oracle": 0.0}
    wins, episodes = 0, 40
    for seed in range(episodes):
        for name, skill in (("random", 0.0), ("oracle", 1.0)):
            rows = bench.episode(env, seed, level, skill)
            scores[name] += sum(row.reward for row in rows)
            wins += name == "random" and rows[-1].info["success"] is True
    if wins >= 0.9 * episodes or scores["random"] >= 0.9 * scores["oracle"] > 0:
        yield Finding(
            "random play",
            f"random play wins {wins} of {episodes} episodes of level {level} with a total score of "
            f"{scores['random']:.3g}; the oracle scores {scores['oracle']:.3g}",
            "make the task demand something: random admissible actions should mostly fail",
        )


def leak(bench: Bench) -> Iterator[Finding]:
    """No observation holds a secret before the episode is over, unless the agent has said it itself."""
    env = bench.open()
    for seed, level in bench.starts():
        for skill in (0.0, 0.6):
            rows = bench.episode(env, seed, level, skill)
            secrets = [secret for secret in env.secrets() if secret]
            said = ""
            for at, row in enumerate(rows):
                said += f"\n{row.action or ''}"
                open_secrets = [secret for secret in secrets if secret not in said]
                found = next((secret for secret in open_secrets if secret in row.observation), None)
                if found is not None and not row.over:
                    where = "the first observation" if at == 0 else f"the observation of step {at}"
                    yield Finding(
                        "leak",
                        f"seed {seed}, level {level}: {where} holds the secret {found!r}",
                        "the observation is all that an agent may see; put what only trainers may know into `info`",
                    )
                    return


def splits(bench: Bench) -> Iterator[Finding]:
    """Splits share no instance, and every level can fill every split."""
    env = bench.open()
    for one, two in combinations(env.splits, 2):
        (low, high), (other_low, other_high) = env.splits[one], env.splits[two]
        if max(low, other_low) < min(high, other_high):
            yield Finding("splits", f"the buckets of {one!r} and {two!r} overlap", "give them ranges that are apart")
    for name, (low, high) in env.splits.items():
        if not 0 <= low < high <= BUCKETS:
            yield Finding("splits", f"split {name!r} has the buckets [{low}, {high})", f"stay within 0..{BUCKETS}")
    for level in env.levels:
        held: dict[str, str] = {}
        for split in env.splits:
            for seed in range(24):
                try:
                    instance = env.generate(seed, level, split)
                except UsageError as error:
                    yield Finding("splits", str(error), "give the level more instances, or the world another `bucket`")
                    return
                canonical(env.fingerprint(instance))
                before = held.setdefault(env.fingerprint(instance), split)
                if before != split:
                    yield Finding(
                        "splits",
                        f"level {level}: one instance is in both {before!r} and {split!r}",
                        "leave `generate` to the base class; let `bucket` depend on the instance's content alone",
                    )
                    return


def players(bench: Bench) -> Iterator[Finding]:
    """Scripted players make only moves that the world accepts, and come to an end."""
    env = bench.open()
    for name, player in env.players.items():
        for seed, level in bench.starts(SEEDS[:3]):
            chance = rng("check", "player", name, seed)
            row = bench.reset(env, seed, level)
            while not row.over:
                row = bench.step(env, player(env, chance))
                if not row.info["valid"]:
                    yield Finding(
                        "players",
                        f"player {name!r}, seed {seed}, level {level}: {row.action!r} was refused: {row.observation!r}",
                        "let the player answer for the present state, in the format of the world's parameters",
                    )
                    return


CHECKS = (
    Check("state key", state_key, "one state, one key", ("state_key", "snapshot")),
    Check("oracle", oracle, "every instance can be solved", ("oracle",)),
    Check("random play", random_play, "luck does not solve it", ("oracle",)),
    Check("leak", leak, "no observation gives the answer away"),
    Check("splits", splits, "no evaluation instance is ever trained on"),
    Check("players", players, "scripted players play by the rules"),
)
