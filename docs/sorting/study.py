"""The Sort-4 study: EARL beside plain GRPO and the text-tag baseline, from warm starts on the same demonstrations.

    python docs/sorting/study.py all --out runs/study [--workers 2] [--seeds 0 1 2]

Stages: ``teach`` (two policies, one per action format), ``train`` (method x seed), ``report`` (results.json, table,
plots). Each stage skips what is there already. The commands it runs are printed; they are the ones in the docs.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

HERE = Path(__file__).parent
PEIRA = [sys.executable, "-m", "peira"]
WORLD = "sorting"


@dataclass(frozen=True)
class Method:
    """One column of the comparison."""

    recipe: str
    actions: str
    title: str


METHODS = {
    "earl": Method("earl", "expanded", "EARL (expanded actions, CPO)"),
    "grpo": Method("grpo", "expanded", "GRPO (expanded actions)"),
    "tags": Method("grpo", "tags", "GRPO (text tags)"),
}
SIZE = "micro"
TEACHER = "noisy_naive"
SMALL, LARGE = {2: 0.2, 3: 0.8}, {3: 0.3, 4: 0.7}
LESSONS: tuple[tuple[dict[str, str], dict[str, object]], ...] = (
    # One direction first: which way round a comparison came out, and which way is wanted, are learnt one by one. The
    # rules are learnt from clean episodes; the careless ones then show that there are other ways to go on.
    ({"direction": "ascending"}, {"player": "naive", "episodes": 1500, "passes": 9, "lr": 4e-3, "levels": SMALL}),
    ({}, {"player": "naive", "episodes": 2500, "passes": 8, "lr": 3e-3, "levels": SMALL}),
    ({}, {"player": "naive", "episodes": 6000, "passes": 4, "lr": 3e-3, "levels": LARGE}),
    ({}, {"player": TEACHER, "episodes": 6000, "passes": 4, "lr": 2e-3, "levels": LARGE}),
)
SETTINGS = {
    "world.levels": "{4 = 1}",
    "tokens": 2_000_000,
    "steps": 400,
    "rollout.tasks": 24,
    "rollout.group_size": 16,
    "rollout.max_tokens": 24,
    "rollout.context": 640,
    "rollout.concurrency": 384,
    "learner.lr": "{kind = 'linear', start = 4e-4, end = 2e-5, steps = 180}",
    "learner.minibatches": 4,
    "learner.betas": "[0.9, 0.95]",
    "learner.divergence": "none",
    "learner.skip_flat": "true",
    "learner.policy.clip_high": 0.28,
    "learner.aggregate.mode": "tok",
    "evaluate.every": 10,
    "evaluate.suite": "sort4",
    "evaluate.seeds": 4,
    "save_every": 25,
}


def say(text: str) -> None:
    """Write a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def teach(out: Path, actions: str) -> Path:
    """Make and warm-start the policy that all methods of an action format begin with."""
    from peira.agents.policy.corpus import world_texts
    from peira.agents.policy.new import new_policy
    from peira.envs.spec import make
    from peira.training.warmstart import WarmStart, warm_start

    path = out / f"start-{actions}"
    if path.is_dir():
        return path
    env = make(WORLD, actions=actions)
    fresh = out / f"fresh-{actions}"
    native = env.native()
    new_policy(
        fresh,
        size=SIZE,
        texts=world_texts(env),
        world=WORLD if native else None,
        native=native,
        overwrite=True,
    )
    began = time.perf_counter()

    def told(done: int, wanted: int, metrics: dict[str, float]) -> None:
        if done % 25 == 0 or done == wanted:
            say(f"{actions}: warm start {done}/{wanted} nll {metrics['nll']:.4f} {time.perf_counter() - began:.0f} s")

    for params, lesson in LESSONS:
        settings = WarmStart(batch=64, **lesson)
        warm_start(fresh, WORLD, {"actions": actions, **params}, settings, told=told)
    fresh.rename(path)
    return path


def command(out: Path, name: str, seed: int) -> list[str]:
    """Return the command of one training run."""
    method = METHODS[name]
    sets = [text for key, value in SETTINGS.items() for text in ("--set", f"{key}={value}")]
    where = ["--policy", str(out / f"start-{method.actions}"), "--run", str(out / f"{name}-{seed}")]
    what = ["--world", WORLD, "-p", f"actions={method.actions}", "--seed", str(seed)]
    return [*PEIRA, "train", method.recipe, *what, *where, *sets]


def train(out: Path, name: str, seed: int) -> None:
    """Train one method with one seed, in a process of its own with one thread."""
    folder = out / f"{name}-{seed}"
    if (folder / "policy").is_dir():
        return
    line = command(out, name, seed)
    if (folder / "config.toml").is_file():
        line = [*PEIRA, "train", "--resume", str(folder)]
    say("$ " + " ".join(line))
    began = time.perf_counter()
    with (out / f"{name}-{seed}.log").open("a") as log:
        subprocess.run(line, check=True, stdout=log, stderr=log, env={**os.environ, "OMP_NUM_THREADS": "1"})
    say(f"{name}-{seed} took {time.perf_counter() - began:.0f} s")


def measured(policy: Path, actions: str, temperature: float) -> dict[str, object]:
    """Measure a policy on the 48 held-out instances of Sort-4."""
    from peira.training.evaluate import evaluate

    told = evaluate(
        WORLD, {"policy": policy}, beside=(), suite_name="sort4", seeds=8, temperature=temperature, actions=actions
    )
    return told["policy"].json()


def report(out: Path, seeds: list[int]) -> None:
    """Write results.json and the plot beside this file."""
    from peira.training.evaluate import evaluate
    from peira.training.report import Panel, draw

    players = evaluate(WORLD, "naive", beside=(TEACHER, "network", "oracle", "random"), suite_name="sort4", seeds=2)
    results: dict[str, object] = {
        "settings": SETTINGS,
        "lessons": LESSONS,
        "players": {score.agent: score.json() for score in players.scores},
        "starts": {a: measured(out / f"start-{a}", a, 1.0) for a in ("expanded", "tags")},
        "runs": {
            f"{name}-{seed}": {
                "sampled": measured(out / f"{name}-{seed}" / "policy", method.actions, 1.0),
                "greedy": measured(out / f"{name}-{seed}" / "policy", method.actions, 0.0),
                "steps": sum(1 for _ in (out / f"{name}-{seed}" / "metrics.jsonl").open()),
            }
            for name, method in METHODS.items()
            for seed in seeds
        },
        "methods": {name: asdict(method) for name, method in METHODS.items()},
    }
    (HERE / "results.json").write_text(json.dumps(results, indent=1) + "\n")
    teacher = players["naive"].actions
    draw(
        HERE / "curves.png",
        {method.title: [out / f"{name}-{seed}" for seed in seeds] for name, method in METHODS.items()},
        [
            Panel("eval/success", {}, bottom=0.0, top=1.02),
            Panel(
                "eval/actions/compare",
                {"bubble sort": teacher["compare"].mean, "network": 5.0, "decision tree": 14 / 3},
                bottom=4.0,
            ),
            Panel("eval/actions/swap", {"bubble sort": teacher["swap"].mean, "fewest": 23 / 12}, bottom=1.0),
        ],
        title="Sort-4: 48 held-out instances at temperature 1",
        x="eval/total_tokens",
    )


def main() -> None:
    """Run the stages that were asked for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("stage", choices=("teach", "train", "report", "all"))
    parser.add_argument("--formats", nargs="+", default=["expanded", "tags"], help="action formats to teach")
    parser.add_argument("--out", type=Path, default=Path("runs/study"))
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--seeds", type=int, nargs="+", default=[0, 1, 2])
    parser.add_argument("--methods", nargs="+", default=list(METHODS), choices=list(METHODS))
    given = parser.parse_args()
    given.out.mkdir(parents=True, exist_ok=True)
    if given.stage in ("teach", "all"):
        for actions in given.formats:
            teach(given.out, actions)
    if given.stage in ("train", "all"):
        with ThreadPoolExecutor(given.workers) as pool:
            list(pool.map(lambda job: train(given.out, *job), [(m, s) for s in given.seeds for m in given.methods]))
    if given.stage in ("report", "all"):
        report(given.out, given.seeds)


if __name__ == "__main__":
    main()
