"""Our engine and the real one side by side: which games, which walks, what is compared, and the recording of goldens.

``python tests/parity/harness.py --games 500`` plays and prints what differs; ``--record FILE`` writes goldens.
The real engine runs under ``PEIRA_ALFWORLD_PYTHON``, an interpreter with the package ``alfworld`` (default: this one).
"""

import argparse
import importlib.util
import json
import os
import subprocess
import sys
import time
from dataclasses import asdict
from pathlib import Path

import zstandard

from peira.envs.household import Household, Instance
from peira.envs.household.export import game_text
from peira.envs.seeding import rng
from peira.envs.spec import make

HERE = Path(__file__).parent
GOLDEN = HERE / "golden" / "household.jsonl.zst"
TASKS = ("place", "light", "clean", "heat", "cool", "two")
WALKS = ("random", "oracle", "wrong", "busy")
SPLITS = ("train", "test", "pairs", "plans")
WRONG = (
    "go to nowhere 1", "take apple 1", "Look", "go to", "examine", "put apple 1 in/on fridge 1", "open  cabinet 1", "",
    "go to cabinet 1", "take mug 1 from cabinet 1", "examine fridge 1", "open drawer 1", "use desklamp 1",
    "heat apple 1 with microwave 1", "go to countertop 1 and look", "move mug 1 to countertop 1", "GO TO BED 1",
    "slice apple 1 with knife 1", "clean mug 1 with sinkbasin 1", "take apple 1 from countertop 1", " inventory ",
)  # fmt: skip
"""Commands that are rarely or never admissible; two of them mean something to who trims blanks."""
RARE = ("slice", "take knife", "take butterknife", "use", "heat", "cool", "clean")
"""Commands that a walk seldom comes upon by chance."""


def missing() -> str | None:
    """Return why the real engine cannot be run, or ``None`` when it can."""
    if os.environ.get("PEIRA_ALFWORLD_PYTHON") or importlib.util.find_spec("alfworld"):
        return None
    return "the real engine is missing: pip install 'peira[alfworld]', or set PEIRA_ALFWORLD_PYTHON"


class Real:
    """The real engine in a process of its own."""

    def __init__(self) -> None:
        python = os.environ.get("PEIRA_ALFWORLD_PYTHON", sys.executable)
        self.process = subprocess.Popen(
            [python, str(HERE / "real.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        self.domain, self.grammar = self.ask(do="rules")

    def ask(self, **order):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the real engine died on {order}")
        return json.loads(line)

    def load(self, instance: Instance):
        return self.ask(do="load", game=game_text(instance, self.domain, self.grammar))

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        for pipe in (self.process.stdin, self.process.stdout):
            if pipe is not None:
                pipe.close()


def reset(env: Household, number: int):
    """Start game ``number`` of the parity series: tasks, levels, splits and walks in all combinations."""
    level = 6 if number % 50 == 49 else 5 if number % 25 == 24 else 1 + number // 24 % 4
    return env.reset(seed=number, options={"level": level, "split": SPLITS[number // 96 % 4]})


def opened(number: int) -> Household:
    return make("household", task=TASKS[number % 6], max_turns=1_000_000)


def choose(env: Household, walk: str, chance) -> str:
    """Return the next command of a walk. Only the oracle's walk is allowed to win."""
    legal = env.legal()
    if walk == "oracle" and chance.random() < 0.5:
        return env.oracle()[0]
    if walk == "wrong" and chance.random() < 0.5:
        return WRONG[int(chance.integers(len(WRONG)))]
    if walk == "busy" and chance.random() < 0.5:
        legal = [one for one in legal if one.startswith(RARE)] or legal
    if walk != "random" and chance.random() < 0.7:
        legal = [one for one in legal if one.split()[0] not in ("go", "look", "help", "inventory")] or legal
    for at in chance.permutation(len(legal)).tolist():
        twin = env.fork()
        if walk == "oracle" or not twin.step(legal[at])[2]:
            return legal[at]
    return "look"


def play(real: Real, env: Household, number: int, steps: int):
    """Play one game on both sides; return (rows of the real engine, differences)."""
    observation, info = reset(env, number)
    theirs = real.load(env.instance)
    rows, found = [[None, *theirs]], compare(number, None, [observation, list(info["legal"]), 0, False], theirs)
    walk, chance = WALKS[number // 6 % 4], rng("parity", number)
    while len(rows) <= steps and not rows[-1][4]:
        command = choose(env, walk, chance)
        observation, reward, terminated, _, info = env.step(command)
        theirs = real.ask(do="step", command=command)
        found += compare(number, command, [observation, list(info["legal"]), reward, terminated], theirs)
        rows.append([command, *theirs])
        if terminated != theirs[3]:
            break
    return rows, found


def compare(number, command, ours, theirs):
    """Return the differences of one step: observation, admissible commands, reward, done."""
    names = ("observation", "admissible", "reward", "done")
    return [
        f"game {number}, {command!r}: {name}\n  ours {mine!r}\n  real {yours!r}"
        for name, mine, yours in zip(names, ours, theirs, strict=True)
        if mine != yours
    ]


def packed(env: Household, rows):
    """Return a transcript as JSON data; admissible commands as changes from row to row."""
    before: list[str] = []
    small = []
    for command, observation, legal, reward, done in rows:
        gone, come = sorted(set(before) - set(legal)), sorted(set(legal) - set(before))
        small.append([command, observation, gone, come, reward, done])
        before = legal
    return {"instance": asdict(env.instance), "rows": small}


def goldens():
    """Yield the recorded transcripts: (instance, rows of command, observation, admissible, reward, done)."""
    text = zstandard.ZstdDecompressor().decompress(GOLDEN.read_bytes()).decode()
    for line in text.splitlines():
        record = json.loads(line)
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in record["instance"].items()}
        legal: set[str] = set()
        rows = []
        for command, observation, gone, come, reward, done in record["rows"]:
            legal = (legal - set(gone)) | set(come)
            rows.append((command, observation, tuple(sorted(legal)), reward, done))
        yield Instance(**fields), rows


def main() -> int:
    """Play, compare, and record when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--games", type=int, default=500)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--record", type=Path)
    given = parser.parse_args()
    real, records, differences, steps, begun = Real(), [], 0, 0, time.time()
    for number in range(given.first, given.first + given.games):
        env = opened(number)
        rows, found = play(real, env, number, given.steps)
        differences, steps = differences + len(found), steps + len(rows) - 1
        records.append(json.dumps(packed(env, rows), separators=(",", ":")))
        for one in found:
            print(one, flush=True)
        if number % 10 == 9:
            print(
                f"{number + 1} games, {steps} steps, {differences} differences, {time.time() - begun:.0f} s", flush=True
            )
    print(f"{given.games} games, {steps} steps, {differences} differences", flush=True)
    real.close()
    if given.record and not differences:
        given.record.parent.mkdir(exist_ok=True)
        given.record.write_bytes(zstandard.ZstdCompressor(level=19).compress("\n".join(records).encode()))
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
