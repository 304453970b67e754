"""``peira train``."""

import argparse
from collections.abc import Mapping
from pathlib import Path

from peira.tools.errors import UsageError
from peira.training.commands.common import Parser, bar, new_parser, params_of, say, say_json
from peira.training.recipe import Resolved, resolve
from peira.training.runs import RunFolder

__all__ = ["parser", "run"]

_MAY_CHANGE = ("steps", "tokens", "save_every", "keep_episodes", "evaluate.", "policy.device")
"""Settings that a resumed run may change without becoming another run."""


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "train",
        "Train a policy by a recipe. Every setting can be set: `peira recipes RECIPE --resolved` lists them.",
        [
            "peira train earl --world sorting --policy policies/tiny --lr 1e-3 --steps 200 --run runs/first",
            "peira train grpo --world sorting --policy policies/tiny --set rollout.group_size=16 --dry-run",
            "peira train --resume runs/first",
        ],
    )
    made.add_argument("recipe", nargs="?", help="a recipe's name (`peira recipes`) or a .toml file")
    made.add_argument("--world", help="a world's name")
    made.add_argument("-p", "--param", action="append", default=[], metavar="KEY=VALUE", help="parameter of the world")
    made.add_argument("--policy", help="the policy folder to start from; it is not changed")
    made.add_argument("--run", help="folder of the run (default: runs/RECIPE-WORLD-SEED)")
    made.add_argument("--steps", type=int, help="iterations")
    made.add_argument("--seed", type=int, help="names all random choices")
    made.add_argument("--lr", type=float, help="learning rate (short for --set learner.lr=...)")
    made.add_argument("--set", action="append", default=[], metavar="KEY=VALUE", help="any setting; wins over all else")
    made.add_argument("--resume", metavar="RUN", help="go on with the run in this folder")
    made.add_argument("--dry-run", action="store_true", help="print the settings with their sources and stop")
    made.add_argument("--json", action="store_true", help="print the result as JSON")
    return made


def run(arguments: argparse.Namespace) -> int:
    """Resolve, check, and train."""
    resolved, folder = _going_on(arguments) if arguments.resume else _fresh(arguments)
    if arguments.dry_run:
        say_json(resolved.data()) if arguments.json else say(resolved.toml().rstrip())
        return 0
    from peira.training.loop import train

    with bar("steps") as moved:
        result = train(
            resolved,
            folder,
            watch=lambda done, wanted, metrics: moved(done, wanted, _note(metrics)),
            resume=bool(arguments.resume),
        )
    if arguments.json:
        score = None if result.score is None else result.score.json()
        say_json({"run": str(result.path), "policy": str(result.policy), "steps": result.steps,
                  "tokens": result.tokens, "last": dict(result.last), "score": score})  # fmt: skip
        return 0
    say(f"done after {result.steps} steps and {result.tokens:,} sampled tokens: {result.path}")
    if result.last.get("skipped"):
        say("the last step changed no weight: its episodes said nothing (see flat_group_share in metrics.jsonl)")
    if result.score is not None:
        say(f"success {result.score.success:.3f}, score {result.score.score:.3f} on held-out tasks")
    say(f"watch it:   peira play {resolved.config.world.id} --policy {result.policy}")
    return 0


def _fresh(arguments: argparse.Namespace) -> tuple[Resolved, Path]:
    if arguments.recipe is None:
        raise UsageError("name a recipe, as in `peira train grpo --world sorting --policy policies/tiny`")
    resolved = resolve(arguments.recipe, arguments.set, _dials(arguments))
    config = resolved.config
    return resolved, Path(arguments.run or f"runs/{config.recipe}-{config.world.id.replace(':', '.')}-{config.seed}")


def _dials(arguments: argparse.Namespace) -> dict[str, object]:
    return {
        "world.id": arguments.world,
        **{f"world.params.{key}": value for key, value in params_of(arguments.param).items()},
        "policy.path": arguments.policy,
        "steps": arguments.steps,
        "seed": arguments.seed,
        "learner.lr": arguments.lr,
    }


def _going_on(arguments: argparse.Namespace) -> tuple[Resolved, Path]:
    """Return the settings of the run that is there; what decides its course cannot be changed under way.

    Raises:
        UsageError: no run, or settings that would make it another one.
    """
    if arguments.recipe is not None or arguments.run is not None:
        raise UsageError("--resume takes recipe and folder from the run; leave the recipe and --run out")
    folder = Path(arguments.resume)
    before = RunFolder(folder).config
    if not before.is_file():
        raise UsageError(f"there is no run to resume in {folder} (no {before.name})")
    old = resolve(before)
    new = resolve(before, arguments.set, _dials(arguments))
    changed = [
        key
        for key in new.sources
        if _value(new, key) != _value(old, key) and not any(key == k or key.startswith(k) for k in _MAY_CHANGE)
    ]
    if changed:
        raise UsageError(
            f"a resumed run keeps its settings, but {', '.join(changed)} would change; start another run for that. "
            f"Only {', '.join(_MAY_CHANGE)} may change under way"
        )
    return new, folder


def _value(resolved: Resolved, key: str) -> object:
    value: object = resolved.data()
    for part in key.split("."):
        value = value.get(part) if isinstance(value, dict) else None
    return value


def _note(metrics: Mapping[str, float]) -> str:
    shown = ((name, metrics.get(name)) for name in ("success", "score", "grad_norm"))
    return " ".join(f"{name} {value:.3f}" for name, value in shown if value is not None)
