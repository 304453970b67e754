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
import tempfile
import time
from dataclasses import asdict
from pathlib import Path

import zstandard

from peira.envs.household import Household, Instance
from peira.envs.household.export import game_text, problem
from peira.envs.household.reader import read_game
from peira.envs.seeding import rng
from peira.envs.spec import make

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE))

from quirks import QUIRKS, rewritten  # noqa: E402

GOLDEN = HERE / "golden" / "household.jsonl.zst"
GOLDEN_QUIRKS = HERE / "golden" / "quirks.jsonl.zst"
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
        self.seconds = 0.0
        """Processor time that the last answer took."""
        self.domain, self.grammar = self.ask(do="rules")

    def ask(self, **order):
        assert self.process.stdin is not None
        assert self.process.stdout is not None
        self.process.stdin.write(json.dumps(order) + "\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise RuntimeError(f"the real engine died on {order}")
        answer, self.seconds = json.loads(line)
        return answer

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
    if walk == "busy" and chance.random() < 0.6:
        rare = [one for one in legal if one.startswith(RARE)]
        return pick(env, rare or errands(env) or legal, chance)
    if walk != "random" and chance.random() < 0.7:
        legal = [one for one in legal if one.split()[0] not in ("go", "look", "help", "inventory")] or legal
    return legal[int(chance.integers(len(legal)))] if walk == "oracle" else pick(env, legal, chance)


def pick(env: Household, commands, chance) -> str:
    """Return one of some commands that does not end the game."""
    for at in chance.permutation(len(commands)).tolist():
        if not env.fork().step(commands[at])[2]:
            return commands[at]
    return "look"


def errands(env: Household) -> list[str]:
    """Return the ways to where something seldom done can be done: slice, heat, cool, clean, switch on, take a knife."""
    instance, state = env.instance, env.state
    held = "" if state.held < 0 else instance.objects[state.held]
    ends = {"slice"} if held.startswith(("knife", "butterknife")) else {"use", "heat", "cool", "clean", "take knife"}
    found = []
    for command in env.legal():
        if command.startswith(("go to", "open")):
            twin = env.fork()
            twin.step(command)
            if any(one.startswith(tuple(ends)) for one in twin.legal()):
                found.append(command)
    return found


def play(real: Real, env: Household, number: int, steps: int):
    """Play one game on both sides; return (rows of the real engine, differences)."""
    observation, info = reset(env, number)
    return walked(real, env, observation, info, real.load(env.instance), number, steps)


def walked(real: Real, env: Household, observation, info, theirs, number: int, steps: int):
    """Walk on both sides from the start of a game that both have loaded."""
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


def play_quirk(real: Real, quirk: str, number: int, steps: int, folder: Path):
    """Play a rewritten game file on both sides; return (text of the problem, goal, rows, differences)."""
    env = opened(number)
    reset(env, number)
    instance = env.instance
    plain = problem(instance)
    text = game_text(instance, real.domain, real.grammar).replace(
        json.dumps(plain)[1:-1], json.dumps(rewritten(plain, quirk))[1:-1]
    )
    path = folder / "game.tw-pddl"
    path.write_text(text)
    observation, info = env.reset(seed=0, options={"instance": read_game(path)})
    theirs = real.ask(do="load", game=text)
    rows, found = walked(real, env, observation, info, theirs, number + 18, steps)
    return rewritten(plain, quirk), instance.goal, rows, found


def compare(number, command, ours, theirs):
    """Return the differences of one step: observation, admissible commands, reward, done."""
    names = ("observation", "admissible", "reward", "done")
    return [
        f"game {number}, {command!r}: {name}\n  ours {mine!r}\n  real {yours!r}"
        for name, mine, yours in zip(names, ours, theirs, strict=True)
        if mine != yours
    ]


def packed(rows):
    """Return rows as JSON data; admissible commands as changes from row to row."""
    before: list[str] = []
    small = []
    for command, observation, legal, reward, done in rows:
        gone, come = sorted(set(before) - set(legal)), sorted(set(legal) - set(before))
        small.append([command, observation, gone, come, reward, done])
        before = legal
    return small


def unpacked(small):
    """Return rows (command, observation, admissible, reward, done)."""
    legal: set[str] = set()
    rows = []
    for command, observation, gone, come, reward, done in small:
        legal = (legal - set(gone)) | set(come)
        rows.append((command, observation, tuple(sorted(legal)), reward, done))
    return rows


def write(path: Path, records) -> None:
    """Write records as compressed JSON lines."""
    path.parent.mkdir(exist_ok=True)
    lines = (json.dumps(record, separators=(",", ":")) for record in records)
    path.write_bytes(zstandard.ZstdCompressor(level=19).compress("\n".join(lines).encode()))


def read(path: Path):
    """Return the records of a file that ``write`` made."""
    return [
        json.loads(line) for line in zstandard.ZstdDecompressor().decompress(path.read_bytes()).decode().splitlines()
    ]


def goldens():
    """Yield the recorded transcripts of generated games: (instance, rows)."""
    for record in read(GOLDEN):
        fields = {key: tuple(value) if isinstance(value, list) else value for key, value in record["instance"].items()}
        yield Instance(**fields), unpacked(record["rows"])


def record_quirks(real: Real, path: Path) -> int:
    """Play every quirk in some games of all types, and record them unless something differs."""
    records, differences = [], 0
    with tempfile.TemporaryDirectory() as folder:
        for at, quirk in enumerate(QUIRKS):
            for number in (24 + at % 6, 24 + (at + 3) % 6):
                try:
                    text, goal, rows, found = play_quirk(real, quirk, number, 40, Path(folder))
                except AssertionError as error:
                    print(error)
                    continue
                print(quirk, number, len(rows), *found, sep="\n" if found else " ", flush=True)
                differences += len(found)
                records.append({"quirk": quirk, "problem": text, "goal": goal, "rows": packed(rows)})
    if not differences:
        write(path, records)
    return differences


def main() -> int:
    """Play, compare, and record when asked to."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--games", type=int, default=500)
    parser.add_argument("--steps", type=int, default=50)
    parser.add_argument("--record", type=Path)
    parser.add_argument("--record-quirks", type=Path)
    given = parser.parse_args()
    if given.record_quirks:
        return int(record_quirks(Real(), given.record_quirks) > 0)
    real, records, differences, steps, begun = Real(), [], 0, 0, time.time()
    for number in range(given.first, given.first + given.games):
        env = opened(number)
        rows, found = play(real, env, number, given.steps)
        differences, steps = differences + len(found), steps + len(rows) - 1
        records.append({"instance": asdict(env.instance), "rows": packed(rows)})
        for one in found:
            print(one, flush=True)
        if number % 10 == 9:
            spent = time.time() - begun
            print(f"{number + 1} games, {steps} steps, {differences} differences, {spent:.0f} s", flush=True)
            if given.record and not differences:
                write(given.record, records)
    print(f"{given.games} games, {steps} steps, {differences} differences", flush=True)
    real.close()
    if given.record and not differences:
        write(given.record, records)
    return int(differences > 0)


if __name__ == "__main__":
    sys.exit(main())
