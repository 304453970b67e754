"""Checks of reproducibility: nothing but the seed and the actions decides what happens."""

import json
import os
import random
import subprocess
import sys
from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from peira.envs.checks.lab import SEEDS, Bench, Check, Finding, difference, transcript_digest
from peira.envs.seeding import rng

__all__ = ["CHECKS"]

_SEEDED = "draw everything from the `rng` that `draw` is given and from `self.np_random`, nothing else"
_NO_SHARING = "keep everything that changes in `self.state`, set afresh by `begin`; share nothing between objects"


def determinism(bench: Bench) -> Iterator[Finding]:
    """Two objects given the same seeds and actions do the same."""
    one, two = bench.open(), bench.open()
    for seed, level in bench.starts():
        parted = difference(bench.episode(one, seed, level), bench.episode(two, seed, level))
        if parted:
            yield Finding("determinism", f"seed {seed}, level {level} played twice: {parted}", _SEEDED)
            return


def second_process(bench: Bench) -> Iterator[Finding]:
    """A fresh interpreter with another hash salt does the same."""
    module, name = bench.spec.env.__module__, bench.spec.env.__qualname__
    lacks, params = list(bench.spec.lacks), dict(bench.params)
    order = {"module": module, "name": name, "spec": bench.spec.id, "lacks": lacks, "params": params}
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(p for p in sys.path if p), "PYTHONHASHSEED": "4242"}
    child = subprocess.run(
        [sys.executable, "-m", "peira.envs.checks.child"],
        input=json.dumps(order),
        capture_output=True,
        text=True,
        env=environment,
        timeout=120,
        check=False,
    )
    if child.returncode:
        last = (child.stderr.strip().splitlines() or ["no message"])[-1]
        yield Finding(
            "second process",
            f"a fresh interpreter cannot play the world {module}:{name}: {last}",
            "put the world into an importable module, and its parameters into plain JSON values",
        )
    elif child.stdout.strip() != transcript_digest(bench):
        yield Finding(
            "second process",
            "a fresh interpreter plays the same seeds differently",
            "look for `hash()` of a string, iteration over a set, the clock, or a file listing in directory order",
        )


def global_randomness(bench: Bench) -> Iterator[Finding]:
    """The process's global generators are where they were."""
    states = _global_states()
    env = bench.open()
    for seed, level in bench.starts(SEEDS[:3]):
        bench.episode(env, seed, level)
    for name, state in _global_states().items():
        if states.get(name, state) != state:
            yield Finding("global randomness", f"the world drew from (or seeded) the global generator {name}", _SEEDED)


def _global_states() -> dict[str, str]:
    legacy = np.random.get_state()  # noqa: NPY002  (read, never used: to see whether the world used it)
    states = {"random": repr(random.getstate()), "numpy.random": repr([np.asarray(p).tolist() for p in legacy])}
    if "torch" in sys.modules:
        states["torch"] = repr(sys.modules["torch"].random.get_rng_state().tolist())
    return states


def interleaving(bench: Bench) -> Iterator[Finding]:
    """Another object of the world in the same process changes nothing."""
    env, other = bench.open(), bench.open()
    for seed, level in bench.starts(SEEDS[:3]):
        alone = bench.episode(env, seed, level)
        mixed = [bench.reset(env, seed, level)]
        chance = rng("check", "other", seed)
        live = False
        for row in alone[1:]:
            if not live:
                bench.reset(other, seed + 1_000, level)
            live = not bench.step(other, bench.choose(other, chance, 0.5)).over
            mixed += bench.follow(env, [row])
        parted = difference(alone, mixed)
        if parted:
            yield Finding("interleaving", f"with another object stepping in between: {parted}", _NO_SHARING)
            return


def reset_reset(bench: Bench) -> Iterator[Finding]:
    """An episode leaves nothing behind, and resets without a seed go through new instances in a repeatable order."""
    used = bench.open()
    starts = list(bench.starts(SEEDS[:3]))
    for (first, first_level), (second, level) in pairwise(starts):
        bench.episode(used, first, first_level, steps=5)
        parted = difference(bench.episode(used, second, level), bench.episode(bench.open(), second, level))
        if parted:
            yield Finding(
                "reset-reset", f"seed {second} after seed {first}, against a fresh object: {parted}", _NO_SHARING
            )
            return
    walks = []
    for _ in range(2):
        prints = [used.fingerprint((used.reset(seed=3), used.instance)[1])]
        prints += [used.fingerprint((used.reset(), used.instance)[1]) for _ in range(8)]
        walks.append(prints)
    if walks[0] != walks[1]:
        yield Finding(
            "reset-reset", "reset(seed=3), reset(), reset(), ... gave other instances the second time", _SEEDED
        )
    elif len(set(walks[0])) == 1:
        yield Finding(
            "reset-reset",
            "reset(seed=3), reset(), reset(), ... always gives the same instance",
            "do not store the seed; let `reset` of the base class name the next one",
        )


def fork(bench: Bench) -> Iterator[Finding]:
    """A fork does what its original does, and neither moves the other."""
    env = bench.open()
    for seed, level in bench.starts():
        rows = bench.episode(env, seed, level)
        middle = max(1, len(rows) // 2)
        bench.reset(env, seed, level)
        bench.follow(env, rows[1:middle])
        twin = env.fork()
        before = env.state_key() if bench.can("state_key") else ""
        forked = bench.follow(twin, rows[middle:])
        moved = bench.can("state_key") and env.state_key() != before
        parted = difference(rows[middle:], forked)
        if not moved and not parted:
            parted = difference(rows[middle:], bench.follow(env, rows[middle:]))
            moved = parted is not None
        if moved or parted:
            what = "stepping the fork moved the original" if moved else f"the fork's replay parts: {parted}"
            yield Finding(
                "fork",
                f"seed {seed}, level {level}, forked before step {middle}: {what}",
                "keep everything that changes in `self.state`, and make `copy_state` copy all that is mutable in it",
            )
            return


def snapshot(bench: Bench) -> Iterator[Finding]:
    """A snapshot brings back the state, in the same object and in a fresh one, however often."""
    env = bench.open()
    for seed, level in bench.starts():
        rows = bench.episode(env, seed, level)
        middle = max(1, len(rows) // 2)
        bench.reset(env, seed, level)
        bench.follow(env, rows[1:middle])
        taken = env.snapshot()
        bench.follow(env, rows[middle:])
        for where, target in (
            ("the same object", env),
            ("the same object again", env),
            ("a fresh object", bench.open()),
        ):
            target.restore(taken)
            parted = difference(rows[middle:], bench.follow(target, rows[middle:]))
            if parted:
                yield Finding(
                    "snapshot",
                    f"seed {seed}, level {level}, restored before step {middle} into {where}: {parted}",
                    "keep everything that changes in `self.state`; what `begin` derives from the instance elsewhere is "
                    "missing after `restore`",
                )
                return


CHECKS = (
    Check("determinism", determinism, "same seed, same actions, same episode"),
    Check("second process", second_process, "the same in every interpreter"),
    Check("global randomness", global_randomness, "global generators are never touched"),
    Check("interleaving", interleaving, "objects share nothing"),
    Check("reset-reset", reset_reset, "an episode leaves nothing behind"),
    Check("fork", fork, "a fork replays identically", ("snapshot",)),
    Check("snapshot", snapshot, "restore is exact", ("snapshot",)),
)
