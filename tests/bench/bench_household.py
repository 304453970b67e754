"""The household world's speed, in processor time: ``python tests/bench/bench_household.py``.

Goals: 50,000 steps a second with the admissible list computed each step, a reset below 1 ms, a fork below 100
microseconds, a plan below 5 ms, below 100 kB an instance, 10,000 of them alive in one process. With the real engine at
hand (``PEIRA_ALFWORLD_PYTHON``, or the package ``alfworld``), its speed on the same games is printed beside.
"""

import gc
import importlib.util
import statistics
import sys
import time
import tracemalloc
from pathlib import Path

from peira.envs.check import throughput
from peira.envs.seeding import rng
from peira.envs.spec import make


def recorded(level, seed, *, share=0.3):
    """Return actions of an episode: the oracle's at times, any admissible one otherwise."""
    env, chance = make("household"), rng("bench", level, seed)
    actions = []
    env.reset(seed=seed, options={"level": level})
    for _ in range(50):
        legal = env.legal()
        action = env.oracle()[0] if chance.random() < share else legal[int(chance.integers(len(legal)))]
        actions.append(action)
        if env.step(action)[2]:
            break
    return level, seed, actions


def timed(call, times):
    """Return the median seconds of processor time of a call, in ten parts."""
    parts = []
    for part in range(10):
        begun = time.process_time()
        for at in range(times // 10):
            call(part * (times // 10) + at)
        parts.append((time.process_time() - begun) / (times // 10))
    return statistics.median(parts)


def stepping(episodes, seconds=1.0):
    """Return steps per second of processor time over recorded episodes, the best of many rounds."""
    env, best, begun = make("household"), 0.0, time.process_time()
    while time.process_time() - begun < seconds:
        steps = spent = 0.0
        for level, seed, actions in episodes:
            env.reset(seed=seed, options={"level": level})
            since = time.process_time()
            for action in actions:
                env.step(action)
            spent += time.process_time() - since
            steps += len(actions)
        best = max(best, steps / spent)
    return best


def memory(level, count=200):
    """Return bytes an instance that has been played."""
    episodes = [recorded(level, seed)[2] for seed in range(20)]
    gc.collect()
    tracemalloc.start()
    envs = []
    for seed in range(count):
        env = make("household")
        env.reset(seed=seed % 20, options={"level": level})
        for action in episodes[seed % 20][:-1]:
            env.step(action)
        envs.append(env)
    gc.collect()
    size = tracemalloc.get_traced_memory()[0] / len(envs)
    tracemalloc.stop()
    return size


def crowd(count=10_000):
    """Return steps per second of processor time, round robin over many live instances, and seconds to start them."""
    begun = time.process_time()
    envs = [make("household") for _ in range(count)]
    for seed, env in enumerate(envs):
        env.reset(seed=seed, options={"level": 4})
    started, begun = time.process_time() - begun, time.process_time()
    for turn in range(3):
        for env in envs:
            legal = env.legal()
            env.step(legal[turn * 7 % len(legal)])
    return 3 * count / (time.process_time() - begun), started


def real(episodes):
    """Return (steps, resets) per second of the real engine on the same episodes; ``None`` where it is missing."""
    path = Path(__file__).parents[1] / "parity" / "harness.py"
    spec = importlib.util.spec_from_file_location("peira_parity_harness", path)
    harness = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(harness)
    if harness.missing():
        print(harness.missing())
        return None
    engine, steps, stepping_s, loading_s = harness.Real(), 0, 0.0, 0.0
    env = make("household")
    for level, seed, actions in episodes:
        env.reset(seed=seed, options={"level": level})
        engine.load(env.instance)
        loading_s += engine.seconds
        for action in actions:
            engine.ask(do="step", command=action)
            stepping_s += engine.seconds
        steps += len(actions)
    engine.close()
    return steps / stepping_s, len(episodes) / loading_s


def main() -> int:
    """Print the figures; exit code 1 when a goal is missed."""
    env, missed = make("household"), []

    def show(name, value, unit, goal, *, least=False):
        met = value >= goal if least else value <= goal
        print(
            f"{name:<44}{value:>12,.1f} {unit:<18} goal {'>=' if least else '<='} {goal:,}{'' if met else '   MISSED'}"
        )
        if not met:
            missed.append(name)

    for level in env.levels:
        show(
            f"steps, level {level}",
            stepping([recorded(level, s) for s in range(24)]),
            "a CPU second",
            50_000,
            least=True,
        )
    show("steps, half of them the oracle's", throughput("household"), "a CPU second", 50_000, least=True)
    show("steps, expanded", throughput("household", actions="expanded"), "a CPU second", 50_000, least=True)
    for level in (1, 4, 6):
        show(f"reset, level {level}", 1e3 * timed(lambda s: env.reset(seed=s, options={"level": level}), 400), "ms", 1)  # noqa: B023
        env.reset(seed=1, options={"level": level})
        show(f"fork, level {level}", 1e6 * timed(lambda _: env.fork(), 2_000), "microseconds", 100)
        show(f"oracle, level {level}", 1e3 * timed(lambda _: env.oracle(), 200), "ms", 5)
        show(f"memory, level {level}", memory(level) / 1e3, "kB an instance", 100)
    rate, started = crowd()
    show("steps, round robin over 10,000 instances", rate, "a CPU second", 50_000, least=True)
    print(f"{'starting them':<44}{started:>12,.1f} CPU seconds")
    episodes = [recorded(4, seed) for seed in range(4)]
    found = real(episodes)
    if found:
        ours = stepping(episodes)
        print(
            f"{'the real engine, level 4':<44}{found[0]:>12,.1f} a CPU second; {1 / found[1]:.1f} CPU s to load a game"
        )
        show("ours beside it", ours / found[0], "times as fast", 10_000, least=True)
    return int(bool(missed))


if __name__ == "__main__":
    sys.exit(main())
