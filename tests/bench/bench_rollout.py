"""How fast the rollout itself is: 1,024 concurrent episodes of sorting with an engine that answers at once.

Run as a script: ``python tests/bench/bench_rollout.py``.
"""

import asyncio
import gc
import sys
import time

import numpy as np

from peira.agents.engines.scripted import Scripted
from peira.agents.rollout import RolloutSettings, collect
from peira.agents.text import ByteText
from peira.agents.types import Completion, Finish
from peira.agents.view import View
from peira.tasks.task import Task

TURNS = ("<compare>A B</compare>", "<compare>B C</compare>", "<swap>A B</swap>", "<swap>A B</swap>") * 4 + ("done",)
EPISODES = 1_024


def script(text):
    """Return completions made beforehand: the engine costs as little as an engine can."""
    made = []
    for turn in TURNS:
        ids = np.array([*text.encode(turn), *text.stop], dtype=np.int32)
        made.append(Completion(ids, np.full(len(ids), -1.0, np.float32), np.zeros(len(ids), np.int32), Finish.STOP))
    told = {}

    def answer(prompt, request):
        turn = told.get(request.session, 0)
        told[request.session] = turn + 1
        return made[turn]

    return answer


def tasks_of_three(count):
    """Return tasks whose items are A, B and C, which the script is about."""
    found, seed = [], 0
    while len(found) < count:
        task = Task.of("sorting", seed, level=3)
        env = task.open()
        task.start(env)
        if set(env.instance.shown) == set("ABC"):
            found.append(task)
        seed += 1
    return found


def run(delay, history="append"):
    """Return turns per second of process time and of the clock."""
    text = ByteText()
    engine = Scripted(script(text), text, delay=delay)
    tasks = tasks_of_three(EPISODES // 8)
    settings = RolloutSettings(concurrency=EPISODES)
    gc.collect()
    cpu, clock = time.process_time(), time.perf_counter()
    groups = asyncio.run(collect(tasks, engine, View(text, history=history), settings, group_size=8, seed=0))
    cpu, clock = time.process_time() - cpu, time.perf_counter() - clock
    turns = sum(len(episode.turns) for group in groups for episode in group.episodes)
    assert turns == EPISODES * len(TURNS)
    return turns / cpu, turns / clock


def world_speed(seconds=1.0):
    """Return steps per CPU second of the same episodes without any agent."""
    tasks = tasks_of_three(64)
    env = tasks[0].open()
    actions = [turn.strip("<").split("</")[0].replace(">", " ") for turn in TURNS]
    steps, start = 0, time.process_time()
    seed = 0
    while time.process_time() - start < seconds:
        tasks[seed % len(tasks)].start(env)
        for action in actions:
            env.step(action)
        steps += len(actions)
        seed += 1
    return steps / (time.process_time() - start)


def test_b_rollout_turns_per_second():
    for name, delay, history in (("instant", None, "append"), ("yielding", 0, "append"), ("window", None, "window")):
        cpu, clock = max(run(delay, history) for _ in range(3))
        print(f"rollout, {name:8} engine, {EPISODES} concurrent: {cpu:9,.0f} turns/CPU s  {clock:9,.0f} turns/s")
        assert cpu > 5_000
    print(f"world sorting alone (reset included): {world_speed():9,.0f} steps/CPU s")


if __name__ == "__main__":
    test_b_rollout_turns_per_second()
    if "--profile" in sys.argv:
        import cProfile
        import pstats

        with cProfile.Profile() as profile:
            run(None)
        pstats.Stats(profile).sort_stats("tottime").print_stats(30)
