"""``peira recipes``."""

import argparse

from peira.tools.errors import UsageError
from peira.training.commands.common import Parser, new_parser, say, say_json, table
from peira.training.recipe import Layer, layers_of, names, resolve
from peira.training.toml_text import dumps

__all__ = ["parser", "run"]


def parser() -> Parser:
    """Return the command's parser."""
    made = new_parser(
        "recipes",
        "List the training recipes with their papers, or show in which lines one differs from the one it extends.",
        ["peira recipes", "peira recipes dapo", "peira recipes dapo --resolved"],
    )
    made.add_argument("recipe", nargs="?", help="a recipe's name or file")
    made.add_argument("--resolved", action="store_true", help="every setting with its source")
    made.add_argument("--json", action="store_true", help="as JSON")
    return made


def run(arguments: argparse.Namespace) -> int:
    """List recipes or show one."""
    if arguments.recipe is None:
        if arguments.resolved:
            raise UsageError("--resolved shows one recipe: name it, as in `peira recipes dapo --resolved`")
        chains = {name: layers_of(name) for name in names()}
        if arguments.json:
            say_json([_described(name, chain) for name, chain in chains.items()])
            return 0
        rows = [_described(name, chain) for name, chain in chains.items()]
        columns = ("recipe", "extends", "arxiv", "idea")
        table(columns, [[str(row[column] or "") for column in columns] for row in rows])
        return 0
    if arguments.resolved:
        # A recipe names neither world nor policy; what stands here in their place is no part of the recipe.
        placeholders = {"world.id": "WORLD", "policy.path": "POLICY"}
        resolved = resolve(arguments.recipe, dials=placeholders, source="name one when training")
        say_json(resolved.data()) if arguments.json else say(resolved.toml().rstrip())
        return 0
    chain = layers_of(arguments.recipe)
    if arguments.json:
        say_json(_described(chain[-1].data["recipe"], chain))
        return 0
    paper = chain[-1].paper
    say(f"{chain[-1].data['recipe']}: {paper.idea}")
    say(f"{paper.title} (arXiv {paper.arxiv}, {paper.section})")
    for older, layer in zip([None, *chain[:-1]], chain, strict=True):
        say()
        say(f"# {layer.data['recipe']}" + (f", beside {older.data['recipe']}" if older else ", beside the defaults"))
        say(dumps(_lines(layer)).rstrip())
    return 0


def _lines(layer: Layer) -> dict[str, object]:
    return {key: value for key, value in layer.data.items() if key != "recipe"}


def _described(name: str, chain: list[Layer]) -> dict[str, object]:
    paper = chain[-1].paper
    return {
        "recipe": name,
        "extends": chain[-2].data["recipe"] if len(chain) > 1 else None,
        "title": paper.title,
        "arxiv": paper.arxiv,
        "section": paper.section,
        "idea": paper.idea,
        "differs": _lines(chain[-1]),
    }
