"""From recipes and the command line to one checked ``RunConfig``, with the source of each value.

A recipe is a TOML file that says in what its method differs from the one it extends::

    extends = "grpo"

    [paper]
    title = "..."
    arxiv = "2503.14476"

    [learner.policy]
    clip_high = 0.28

Layers are put on top of each other: the defaults of the settings classes, the recipe's ancestors, the recipe, the
command line's dials, ``--set`` last. A table is merged key by key, with three exceptions where half a table of another
kind would be nonsense: another ``kind``, another ``world.id``, and ``world.levels`` replace what was there. Since TOML
has no null, ``"none"`` turns an optional section or number off.
"""

import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from peira.tools.errors import UsageError, unknown

if TYPE_CHECKING:
    from peira.training.config import RunConfig

__all__ = ["Paper", "Resolved", "layers_of", "names", "paper_of", "resolve"]

FOLDER = Path(__file__).parent / "recipes"
_APART = ("extends", "paper")
"""Keys of a recipe file that are about the recipe, not part of a run."""


@dataclass(frozen=True, slots=True)
class Paper:
    """Where a method was published, and what makes it another one."""

    title: str = ""
    arxiv: str = ""
    section: str = ""
    idea: str = ""
    """One sentence."""


@dataclass(frozen=True, slots=True)
class Layer:
    """Values from one place."""

    source: str
    """``recipe dapo``, ``command line``."""
    data: Mapping[str, Any]
    text: str = ""
    """The file as written, to find the line of a key."""
    paper: Paper = Paper()

    def line_of(self, path: Sequence[str]) -> int | None:
        """Return the line on which a key is set, as far as the text's tables and plain assignments tell."""
        table: list[str] = []
        for number, line in enumerate(self.text.splitlines(), 1):
            bare = line.strip()
            if bare.startswith("["):
                table = [part.strip(" \"'") for part in bare.strip("[] ").split("#")[0].rstrip("] ").split(".")]
                if table == list(path):
                    return number
            elif "=" in bare and not bare.startswith("#"):
                key = [part.strip(" \"'") for part in bare.split("=")[0].split(".")]
                if (table + key)[: len(path)] == list(path):
                    return number
        return None

    def place(self, path: Sequence[str]) -> str:
        """Return where a key stands, for a person."""
        line = self.line_of(path)
        return self.source if line is None else f"{self.source}, line {line}"


class Leaf(NamedTuple):
    """A value and where it came from."""

    value: Any
    source: str


@dataclass(frozen=True, slots=True)
class Resolved:
    """A run's configuration, with the source of each value."""

    config: "RunConfig"
    sources: Mapping[str, str]
    """Dotted key to source; a key that is not here has its default."""

    def toml(self) -> str:
        """Return the whole configuration as a recipe file that resolves to itself, each value with its source."""
        from peira.training.toml_text import dumps

        return dumps(self.data(), self.source_of)

    def data(self) -> dict[str, Any]:
        """Return every setting as plain data; a schedule that never changes is its number."""
        return {key: _unscheduled(value) for key, value in self.config.model_dump(mode="json").items()}

    def source_of(self, key: str) -> str:
        """Return where the value of a dotted key came from; a whole table may have come from one place."""
        while key not in self.sources and "." in key:
            key = key.rpartition(".")[0]
        return self.sources.get(key, "default")


def _unscheduled(value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    if value.get("kind") == "constant":
        return value["value"]
    return {key: _unscheduled(inner) for key, inner in value.items()}


# ---- recipes --------------------------------------------------------------------------------------------------------


def names() -> tuple[str, ...]:
    """Return the names of the recipes that come with peira."""
    return tuple(sorted(path.stem for path in FOLDER.glob("*.toml")))


def paper_of(recipe: str | Path) -> Paper:
    """Return a recipe's paper."""
    return layers_of(recipe)[-1].paper


def layers_of(recipe: str | Path) -> list[Layer]:
    """Return a recipe and its ancestors, the oldest first.

    Args:
        recipe: a name, or the path of a ``.toml`` file. ``extends`` of a file may name a file beside it.

    Raises:
        UsageError: no such recipe, a file that is not TOML, or recipes that extend each other.
    """
    chain: list[Layer] = []
    seen: list[Path] = []
    path: Path | None = _find(recipe, Path())
    while path is not None:
        if path in seen:
            ring = " extends ".join(p.stem for p in [*seen[seen.index(path) :], path])
            raise UsageError(f"recipes extend each other in a ring: {ring}; let one of them stand alone")
        seen.append(path)
        layer, parent = _read(path)
        chain.append(layer)
        path = None if parent is None else _find(parent, path.parent)
    return chain[::-1]


def _find(recipe: str | Path, beside: Path) -> Path:
    name = str(recipe)
    if name.endswith(".toml") or "/" in name or "\\" in name:
        path = (beside / name).resolve()
        if not path.is_file():
            raise UsageError(f"there is no recipe file {name!r} in {path.parent}; `peira recipes` lists those by name")
        return path
    path = FOLDER / f"{name}.toml"
    if not path.is_file():
        raise unknown("recipe", name, names(), remedy="A file of your own is named with its ending, ./mine.toml.")
    return path


def _read(path: Path) -> tuple[Layer, str | None]:
    label = f"recipe {path.stem}" if path.parent == FOLDER else str(path)
    try:
        text = path.read_text(encoding="utf-8")
        data = tomllib.loads(text)
    except OSError as error:
        raise UsageError(f"the recipe {path} cannot be read: {error.strerror or error}") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{label} is not TOML: {error}. Text values stand in quotes") from error
    parent = data.pop("extends", None)
    about = data.pop("paper", {})
    if parent is not None and not isinstance(parent, str):
        raise UsageError(f"{label}: 'extends' is the name of a recipe, not {parent!r}")
    data.setdefault("recipe", path.stem)
    return Layer(label, data, text, _paper(about, label)), parent


def _paper(about: Any, label: str) -> Paper:
    if not isinstance(about, dict):
        raise UsageError(f"{label}: [paper] is a table with {', '.join(Paper.__slots__)}")
    for key, value in about.items():
        if key not in Paper.__slots__:
            raise unknown(f"key in section [paper] of {label}", key, Paper.__slots__)
        if not isinstance(value, str):
            raise UsageError(f"{label}: paper.{key} is text, not {value!r}; put it in quotes")
    return Paper(**about)


# ---- resolving ------------------------------------------------------------------------------------------------------


def resolve(
    recipe: str | Path, sets: Sequence[str] = (), dials: Mapping[str, Any] | None = None, source: str = "command line"
) -> Resolved:
    """Put a recipe, dials and overrides together and check the whole. Nothing is loaded but the settings classes.

    Args:
        recipe: a name or the path of a file.
        sets: ``key.of.a.section=value`` with a TOML value; they win over everything.
        dials: dotted keys to values; ``None`` values are left out.
        source: how the dials are called in the result's sources.

    Raises:
        UsageError: an unknown recipe or key, a malformed override, or a value out of range; says the key, where it
            stands, and what is allowed.
    """
    from peira.training.checking import checked

    layers = layers_of(recipe)
    given = {key: value for key, value in (dials or {}).items() if value is not None}
    layers += [Layer(source, nested(key, value)) for key, value in given.items()]
    layers += [_override(text) for text in sets]
    tree: dict[str, Any] = {}
    for layer in layers:
        _merge(tree, layer.data, layer.source, ())
    return Resolved(checked(layers, plain(tree)), dict(flat(tree)))


def nested(key: str, value: Any) -> dict[str, Any]:
    """Return ``{"a": {"b": value}}`` for ``a.b``."""
    for part in reversed(key.split(".")):
        value = {part: value}
    return dict(value)


def _override(text: str) -> Layer:
    """Read one ``--set`` argument."""
    key, equals, value = text.partition("=")
    key = key.strip()
    if not equals or not all(part.strip() for part in key.split(".")):
        raise UsageError(f"--set takes key=value (as in --set learner.lr=1e-4), not {text!r}; nothing was started")
    return Layer(f"--set {key}", nested(key, toml_value(value.strip(), key)))


def toml_value(text: str, key: str) -> Any:
    """Read a TOML value; a bare word that begins with a letter, ``.`` or ``/`` is text.

    Raises:
        UsageError: neither, such as ``010`` or an open bracket.
    """
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as error:
        bare = text[:1].isalpha() or text[:1] in {".", "/", "~", "_"}
        if bare and not set(text) & set("[]{}=,\"'\n#"):
            return text
        raise UsageError(f"--set {key}: {text!r} is not a TOML value ({error}); text goes in quotes") from error


def _merge(tree: dict[str, Any], data: Mapping[str, Any], source: str, path: tuple[str, ...]) -> None:
    for key, value in data.items():
        here, old = (*path, str(key)), tree.get(key)
        if not isinstance(value, Mapping):
            tree[key] = Leaf(value, source)
            continue
        if not isinstance(old, dict) or _replaces(here, old, value, source):
            old = tree[key] = {}
        _merge(old, value, source, here)


def _replaces(path: tuple[str, ...], old: Mapping[str, Any], new: Mapping[str, Any], source: str) -> bool:
    if path == ("world", "levels"):
        return not source.startswith("--set world.levels.")
    name = "id" if path == ("world",) else "kind"
    return name in new and name in old and old[name].value != new[name]


def plain(tree: Mapping[str, Any]) -> dict[str, Any]:
    """Return the values of a merged tree."""
    return {key: value.value if isinstance(value, Leaf) else plain(value) for key, value in tree.items()}


def flat(tree: Mapping[str, Any], path: str = "") -> Iterator[tuple[str, str]]:
    """Yield (dotted key, source) of each value of a merged tree."""
    for key, value in tree.items():
        here = f"{path}.{key}" if path else str(key)
        if isinstance(value, Leaf):
            yield here, value.source
        else:
            yield from flat(value, here)
