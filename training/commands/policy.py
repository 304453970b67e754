"""``peira policy``."""

import argparse
from typing import Any

from peira.envs.spec import find
from peira.tools.errors import UsageError
from peira.training.commands.common import Parser, add_world, bar, new_parser, params_of, say, say_json

__all__ = ["parser", "run"]


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "policy",
        "Make a tiny policy, add a world's native actions to any policy, or look at one. All are Hugging Face folders.",
        [
            "peira policy new policies/tiny --world sorting -p actions=expanded --demonstrator naive",
            "peira policy expand models/small --out policies/small-sorting --world sorting",
            "peira policy show policies/tiny --json",
        ],
    )
    kinds = made.add_subparsers(dest="kind", required=True, metavar="new|expand|show")
    _new(kinds.add_parser("new", help="make a tiny policy", allow_abbrev=False))
    _expand(kinds.add_parser("expand", help="add a world's native actions to a policy", allow_abbrev=False))
    shown = kinds.add_parser("show", help="look at a policy", allow_abbrev=False)
    shown.add_argument("path", help="a policy folder")
    shown.add_argument("--json", action="store_true", help="as JSON")
    return made


def _new(made: Parser) -> None:
    made.add_argument("path", help="where to; the folder must not hold anything")
    add_world(made, positional=False)
    made.add_argument("--size", default="tiny", help="nano, micro, tiny, small or base (default: tiny)")
    made.add_argument("--seed", type=int, default=0, help="seed of weights and demonstrations (default: 0)")
    made.add_argument("--demonstrator", help="warm-start on the episodes of this player: oracle, naive, ...")
    made.add_argument("--episodes", type=int, default=512, help="demonstrated episodes (default: 512)")
    made.add_argument("--passes", type=int, default=4, help="times each is learnt from (default: 4)")
    made.add_argument("--lr", type=float, default=2e-3, help="learning rate of the warm start (default: 0.002)")
    made.add_argument("--overwrite", action="store_true", help="replace a folder that is there")


def _expand(made: Parser) -> None:
    made.add_argument("path", help="a policy folder; it is not changed")
    made.add_argument("--out", required=True, help="where to")
    add_world(made, positional=False)
    made.add_argument("--overwrite", action="store_true", help="replace a folder that is there")


def run(arguments: argparse.Namespace) -> int:
    """Make, expand or show."""
    return {"new": _make, "expand": _grow, "show": _show}[arguments.kind](arguments)


def _make(arguments: argparse.Namespace) -> int:
    from peira.agents.policy.corpus import world_texts
    from peira.agents.policy.new import new_policy

    spec, params = find(arguments.world), params_of(arguments.param)
    env = spec.open(**params)
    if arguments.demonstrator:
        from peira.agents.baselines import player_for

        player_for(env, arguments.demonstrator)  # an unknown name is told before anything is made
    policy = new_policy(
        arguments.path,
        size=arguments.size,
        seed=arguments.seed,
        texts=world_texts(env, seed=arguments.seed),
        world=spec.id,
        native=env.native(),
        overwrite=arguments.overwrite,
    )
    if arguments.demonstrator:
        _warm(arguments, spec.id, params)
    say(f"made {policy.path}; `peira play {spec.id} --policy {policy.path}` lets you watch it")
    return 0


def _warm(arguments: argparse.Namespace, world: str, params: dict[str, Any]) -> None:
    from peira.training.warmstart import WarmStart, warm_start

    settings = WarmStart(
        player=arguments.demonstrator,
        episodes=arguments.episodes,
        passes=arguments.passes,
        lr=arguments.lr,
        seed=arguments.seed,
    )
    with bar("warm start") as moved:
        warm_start(
            arguments.path,
            world,
            params,
            settings,
            told=lambda done, wanted, metrics: moved(done, wanted, f"nll {metrics.get('nll', float('nan')):.3f}"),
        )


def _grow(arguments: argparse.Namespace) -> int:
    from peira.agents.policy.expand import expand

    spec, params = find(arguments.world), params_of(arguments.param)
    if "actions" in spec.parameters():
        params.setdefault("actions", "expanded")
    native = spec.open(**params).native()
    if not native:
        raise UsageError(f"world {spec.id!r} has no native actions, so a policy plays it as it is")
    made = expand(arguments.path, arguments.out, spec.id, native, overwrite=arguments.overwrite)
    say(f"made {made.path} with {len(native)} native actions of {spec.id}")
    return 0


def _show(arguments: argparse.Namespace) -> int:
    from peira.agents.policy import Policy

    policy = Policy.load(arguments.path)
    model = policy.model(dtype="auto")
    data = {
        "path": str(policy.path),
        "architecture": type(model).__name__,
        "parameters": sum(p.numel() for p in model.parameters()),
        "context": getattr(model.config, "max_position_embeddings", None),
        "vocabulary": policy.vocab,
        "world": policy.world,
        "actions": list(policy.actions.names) if policy.actions else [],
        "fingerprint": policy.fingerprint,
    }
    if arguments.json:
        say_json(data)
        return 0
    for key, value in data.items():
        text = ", ".join(value) if isinstance(value, list) else value
        say(f"  {key:<13} {'none' if text in (None, '') else text}")
    return 0
