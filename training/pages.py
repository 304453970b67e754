"""Pages of ``docs/`` that are written from the code (``make docs``); a test holds them in step."""

import sys
from collections.abc import Callable, Mapping, Sequence
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path

from peira.agents.baselines import names_of
from peira.envs.spec import find
from peira.envs.spec import names as world_names
from peira.training.cli import COMMANDS, module_of
from peira.training.recipe import layers_of, names
from peira.training.toml_text import dumps

__all__ = ["PAGES", "main"]

_NOTE = "<!-- Written by `make docs` from the code; edit that. -->\n"


def commands() -> str:
    """Return the page of the command line: the help of each command."""
    parts = [
        "# The command line",
        _NOTE,
        "Exit codes: 0 done; 1 the machinery failed or a check found something; 2 you can put it right, and the "
        "message says how; 130 stopped by Ctrl-C.",
    ]
    for name, purpose in COMMANDS.items():
        parser = import_module(module_of(name)).parser()
        examples = [f"$ {line.strip()}" for line in parser.epilog.splitlines()[1:]]
        options = [
            f"- `{', '.join(action.option_strings) or action.dest}`: {action.help}"
            for action in parser._actions
            if action.help and action.dest != "help"
        ]
        parts += [
            f"## peira {name}",
            f"{purpose[0].upper()}{purpose[1:]}.",
            _code("console", examples),
            "\n".join(options),
        ]
    return _page(parts)


def recipes() -> str:
    """Return the page of recipes: each with its paper and the lines in which it differs."""
    parts = [
        "# Recipes",
        _NOTE,
        "A recipe says in what its method differs from the one it extends. `peira recipes NAME --resolved` shows every "
        "setting with its source. The learning rate is the papers', who train billions of parameters: a tiny policy "
        "wants `--lr 1e-3` or so.",
    ]
    for name in sorted(names(), key=lambda name: (len(layers_of(name)), name)):
        chain = layers_of(name)
        layer, paper = chain[-1], chain[-1].paper
        lines = dumps({key: value for key, value in layer.data.items() if key != "recipe"}).rstrip()
        extends = f" Extends `{chain[-2].data['recipe']}`." if len(chain) > 1 else ""
        where = f"*{paper.title}*, arXiv [{paper.arxiv}](https://arxiv.org/abs/{paper.arxiv}), {paper.section}."
        parts += [f"## {name}", f"{paper.idea}{extends}", where, _code("toml", lines.splitlines())]
    return _page(parts)


def worlds() -> str:
    """Return the page of peira's own worlds."""
    parts = [
        "# Worlds",
        _NOTE,
        "`peira show NAME` says more, `peira play NAME` lets you in.",
    ]
    for name in (name for name in world_names() if find_spec(f"peira.envs.{name}")):
        spec = find(name)
        env = spec.open()
        observation, _ = env.reset(seed=0)
        parameters = ", ".join(f"`{key}={value}`" for key, value in env.params.items()) or "none"
        facts = [
            f"- source: {spec.source}" if spec.source else "",
            f"- parameters (with their defaults): {parameters}",
            f"- levels {env.levels.start} to {env.levels.stop - 1}; splits {', '.join(env.splits)}",
            f"- players: {', '.join(names_of(env))}",
            f"- at most {env.limit} turns; an episode earns {env.reward_range[0]:g} to {env.reward_range[1]:g}",
        ]
        shown = "\n".join(fact for fact in facts if fact)
        parts += [f"## {name}", spec.summary, shown, _code("", observation.splitlines())]
    return _page(parts)


PAGES: Mapping[str, Callable[[], str]] = {"cli.md": commands, "recipes.md": recipes, "worlds.md": worlds}
"""File to the function that writes it."""


def main(arguments: Sequence[str]) -> int:
    """Write the pages into a folder."""
    folder = Path(arguments[0] if arguments else "docs")
    folder.mkdir(parents=True, exist_ok=True)
    for name, page in PAGES.items():
        (folder / name).write_text(page(), encoding="utf-8")
    return 0


def _code(language: str, lines: Sequence[str]) -> str:
    return "\n".join([f"```{language}", *lines, "```"])


def _page(parts: Sequence[str]) -> str:
    return "\n\n".join(part.rstrip("\n") for part in parts) + "\n"


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
