"""The page ``docs/household.md``, written from the world itself: ``python -m peira.envs.household.gallery docs``."""

import sys
from collections.abc import Sequence
from pathlib import Path

from peira.envs.household.houses import LARGEST, LEVELS
from peira.envs.household.instance import TASKS
from peira.envs.household.world import Household

__all__ = ["main", "page"]

_NOTE = "<!-- Written by `python -m peira.envs.household.gallery docs` from the code; edit that. -->"
_TITLES = {
    "place": "Pick and place",
    "light": "Examine in light",
    "clean": "Clean and place",
    "heat": "Heat and place",
    "cool": "Cool and place",
    "two": "Pick two and place",
}
_ABOUT = """The world `household` plays ALFWorld's six task types in houses drawn from a seed. What it says, which
commands it admits, what it pays and when it ends are those of the real engine (`alfworld` on `textworld`), word for
word: recorded transcripts of the real engine are repeated in every test run, and `tests/parity/` plays both side by
side.

An episode is at most 50 commands; it earns 1 when the goal holds and nothing before. `info["legal"]` is the real
engine's list of admissible commands, in its order."""
_OPTIONS = """- `task`: one of `place`, `light`, `clean`, `heat`, `cool`, `two`; default all of them.
- `actions="expanded"`: verbs, classes and numbers are single decisions of the policy's own head; the words between them
  are written by the world, and it says what may follow.
- `listed=True`: each observation ends with the admissible commands.
- `put=True`: `put X in/on Y` (older data) is understood as `move X to Y`.
- `reading="lenient"`: `> Go to shelf 1.` and `Action: go to shelf 1` are understood.
- `wording="sane"`: other sentences where the real engine's are plainly at fault (below).
- `games=PATH`: play ALFWorld's own `game.tw-pddl` files, or a folder of them, instead of generated games; the folders
  `train`, `valid_seen` and `valid_unseen` are the splits `train`, `test` and `plans`."""
_QUIRKS = """Kept as they are by default:

- `look` away from any receptacle lists nothing after the first observation. *sane: it lists the receptacles.*
- `examine` of a bowl, box, cup, mug, pan, plate or pot shows what is in it, never that it is hot, cool or clean.
  *sane: it says so.*
- A lamp is "turned on" every time it is used. *sane: it is already on.*
- What is moved from one receptacle to its neighbour at the same spot is said to lie next to them. *sane: nothing does.*
- An object that is only cool is "cold". *sane: "cool".*
- Every item is "a" something, and two items are joined by ", and ".
- Microwave, fridge and sink basin work with their doors closed; a knife slices what lies in a closed drawer.
- A receptacle at the spot where one stands can be opened and examined, but not gone to."""
_SPLITS = f"""- `train`, and `test`: tasks in houses that training never sees.
- `pairs`: the wanted object never belongs at this place in training.
- `plans`: layouts (what stands there, and what shares a spot) that training never sees.
- `large`: more than {LARGEST} receptacles, the most that any house in training has."""


def page() -> str:
    """Return the page."""
    parts = ["# The household world", _NOTE, _ABOUT, "## Levels", _levels(), "## Splits", _SPLITS]
    parts += ["## Options", _OPTIONS, "## Quirks of the real engine", _QUIRKS]
    for seed, task in enumerate(TASKS):
        parts += [f"## {_TITLES[task]}", f"`task={task}`, level 2, played by the oracle:", _episode(task, seed)]
    return "\n\n".join(parts) + "\n"


def _levels() -> str:
    rows = [
        "| level | rooms | receptacles | objects | behind doors | steps of the oracle |",
        "|---|---|---|---|---|---|",
    ]
    env = Household()
    for number, level in enumerate(LEVELS, 1):
        steps = []
        for seed in range(60):
            env.reset(seed=seed, options={"level": number})
            steps.append(len(env.oracle()))
        mean = f"{min(steps)} to {max(steps)}, {sum(steps) / len(steps):.1f} on average"
        receptacles, objects = ("{} to {}".format(*pair) for pair in (level.receptacles, level.objects))
        rows.append(f"| {number} | {level.rooms} | {receptacles} | {objects} | {level.doors:.0%} | {mean} |")
    return "\n".join(rows)


def _episode(task: str, seed: int) -> str:
    env = Household(task=task)  # type: ignore[arg-type]  # one of TASKS
    observation, _ = env.reset(seed=seed, options={"level": 2})
    lines = [observation]
    for command in env.oracle():
        lines += ["", f"> {command}", env.step(command)[0]]
    return "\n".join(["```text", *lines, "```"])


def main(arguments: Sequence[str]) -> int:
    """Write the page into a folder."""
    folder = Path(arguments[0] if arguments else "docs")
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "household.md").write_text(page(), encoding="utf-8")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
