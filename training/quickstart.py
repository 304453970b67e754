"""The main job in minutes: a tiny policy learns to sort from a careless teacher, then finds a better way by trial."""

from collections.abc import Mapping
from itertools import permutations
from math import factorial
from pathlib import Path
from typing import Any

from peira.agents.policy.corpus import world_texts
from peira.agents.policy.new import new_policy
from peira.envs.sorting.rules import swaps_to
from peira.envs.spec import make
from peira.tools.errors import UsageError
from peira.training.commands.common import bar, say, table
from peira.training.evaluate import Evaluation, Score, evaluate
from peira.training.loop import train
from peira.training.recipe import resolve
from peira.training.report import Panel, draw
from peira.training.warmstart import WarmStart, warm_start

__all__ = ["optimum", "quickstart"]

WORLD = "sorting"
PARAMS: Mapping[str, Any] = {"actions": "expanded"}
LEVEL = 3
"""Items in the instances that are measured; a laptop learns these in minutes."""
TEACHER = "noisy_naive"
"""Bubble sort by somebody careless: wasteful, and at times wrong."""
SIZE = "micro"
STEPS = 40
_CASES = 48
"""Different instances that are measured, each under names that are never trained on."""
_TRIES = 4

LESSONS: tuple[tuple[Mapping[str, Any], WarmStart], ...] = (
    # One direction first: how a comparison came out and what is wanted are then learnt one after the other. The rules
    # are learnt from clean episodes; the careless ones then show that there are other ways to go on.
    (
        {"direction": "ascending"},
        WarmStart(player="naive", episodes=1500, passes=9, batch=64, lr=4e-3, levels={2: 0.2, 3: 0.8}),
    ),
    ({}, WarmStart(player="naive", episodes=2500, passes=8, batch=64, lr=3e-3, levels={2: 0.2, 3: 0.8})),
    ({}, WarmStart(player=TEACHER, episodes=1500, passes=4, batch=64, lr=1e-3, levels={3: 1.0})),
)
SETTINGS: Mapping[str, Any] = {
    "world.id": WORLD,
    "world.levels": {"3": 1.0},
    "rollout.tasks": 24,
    "rollout.group_size": 16,
    "rollout.max_tokens": 16,
    "rollout.context": 256,
    "rollout.concurrency": 384,
    "learner.lr": 3e-4,
    "learner.minibatches": 2,
    "learner.divergence": "none",
    "learner.skip_flat": True,
    "evaluate.every": 10,
    "evaluate.level": LEVEL,
    "evaluate.n": _CASES,
    "evaluate.seeds": 2,
    "save_every": 20,
}


def optimum(n: int) -> tuple[float, float]:
    """Return the fewest mean comparisons and swaps with which all orders of ``n`` items can be sorted.

    Comparisons: the mean depth of the leaves of a binary tree with n! leaves is least when all lie on two neighbouring
    levels, which no decision procedure can go below. Swaps: n minus the cycles of the permutation.
    """
    leaves = factorial(n)
    depth = leaves.bit_length() - 1
    comparisons = (leaves * depth + 2 * (leaves - 2**depth)) / leaves
    letters = "ABCDE"[:n]
    swaps = sum(len(swaps_to("".join(order), letters)) for order in permutations(letters))
    return comparisons, swaps / leaves


def quickstart(out: str | Path, *, seed: int = 0, steps: int | None = None) -> int:
    """Make, warm-start, train and compare; prints a table and draws ``curve.png``. Returns the exit code.

    Raises:
        UsageError: the folder is not empty, or an argument makes no sense.
    """
    folder = Path(out)
    if folder.exists() and any(folder.iterdir()):
        raise UsageError(f"{folder} is not empty; give another folder (--out) or remove it")
    steps = STEPS if steps is None else steps
    start = folder / "start"
    shown = sum(lesson.episodes for _, lesson in LESSONS)
    say(f"1/4  a new policy, then a warm start on {shown:,} episodes of wasteful sorters")
    _taught(start, seed)
    say(f"2/4  measuring it on held-out sorts of {LEVEL} items")
    before = _measured(start, beside=(TEACHER,))
    say(f"3/4  {steps} steps of trial and error (recipe earl)")
    resolved = resolve("earl", [], {**SETTINGS, "policy.path": str(start), "steps": steps, "seed": seed})
    with bar("steps") as moved:
        result = train(resolved, folder / "run", watch=lambda done, wanted, m: moved(done, wanted, _note(m)))
    say("4/4  measuring what it has become")
    after = _measured(result.policy)
    _table(before, after)
    picture = draw(
        folder / "curve.png",
        {"earl": [result.path]},
        _panels(before[TEACHER], optimum(LEVEL)),
        title=f"sorting {LEVEL} items: found by trial",
    )
    say(f"curve: {picture}")
    say(f"watch it play: peira play {WORLD} -p actions=expanded --level {LEVEL} --policy {result.policy}")
    return 0


def _taught(path: Path, seed: int) -> None:
    """Make the policy and show it the teacher's episodes."""
    env = make(WORLD, **PARAMS)
    scratch = path.with_name("fresh")
    new_policy(scratch, size=SIZE, seed=seed, texts=world_texts(env), world=WORLD, native=env.native())
    for number, (params, lesson) in enumerate(LESSONS, 1):
        with bar(f"lesson {number}") as moved:
            warm_start(
                scratch,
                WORLD,
                {**PARAMS, **params},
                lesson.model_copy(update={"seed": seed}),
                told=lambda done, wanted, metrics: moved(done, wanted, f"nll {metrics['nll']:.3f}"),
            )
    scratch.rename(path)


def _measured(policy: Path, beside: tuple[str, ...] = ()) -> Evaluation:
    params = dict(PARAMS)
    return evaluate(WORLD, {"policy": policy}, beside=beside, level=LEVEL, n=_CASES, seeds=_TRIES, **params)


def _note(metrics: Mapping[str, float]) -> str:
    return f"success {metrics['success']:.2f}  comparisons {metrics.get('actions/compare', 0):.2f}"


def _table(before: Evaluation, after: Evaluation) -> None:
    """Print the teacher, the policy before and after, and what cannot be beaten, side by side."""
    comparisons, swaps = optimum(LEVEL)

    def row(name: str, score: Score) -> tuple[str, ...]:
        compared, swapped = (score.actions[verb].mean if verb in score.actions else 0.0 for verb in ("compare", "swap"))
        return name, f"{score.success.mean:.1%}", f"{compared:.2f}", f"{swapped:.2f}", f"{score.score.mean:.3f}"

    table(
        ("", "success", "mean comparisons", "mean swaps", "reward"),
        [
            row(f"demonstrator ({TEACHER})", before[TEACHER]),
            row("before (warm start)", before["policy"]),
            row("after training", after["policy"]),
            ("information-theoretic optimum", "100.0%", f"{comparisons:.2f}", f"{swaps:.2f}", ""),
        ],
        title=f"Sorting {LEVEL} items, {after['policy'].trials} held-out trials at temperature 1",
    )


def _panels(teacher: Score, fewest: tuple[float, float]) -> list[Panel]:
    return [
        Panel("eval/success", {}, bottom=0.0, top=1.02),
        Panel(
            "eval/actions/compare",
            {f"demonstrator ({TEACHER})": teacher.actions["compare"].mean, "optimum": fewest[0]},
            bottom=0.0,
        ),
        Panel(
            "eval/actions/swap",
            {f"demonstrator ({TEACHER})": teacher.actions["swap"].mean, "optimum": fewest[1]},
            bottom=0.0,
        ),
    ]
