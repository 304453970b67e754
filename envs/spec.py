"""Worlds by name: found by listing the folder and an entry-point group, importing only the one asked for."""

import inspect
from dataclasses import dataclass
from functools import cache
from importlib import import_module, metadata
from pathlib import Path
from typing import Any

from peira.envs.core import Env
from peira.tools.errors import UsageError, unknown

__all__ = ["GROUP", "WorldSpec", "find", "make", "names"]

GROUP = "peira.worlds"
"""Entry-point group for worlds of other packages: ``myworld = "mypackage.myworld:WORLD"``."""

_CONTRACT = frozenset(
    {"adapters", "check", "checks", "core", "gymnasium_names", "seeding", "spaces", "spec", "testing", "types"}
)
"""Modules of this folder that are not worlds."""


_PARAMETERS: dict[type[Env[Any]], dict[str, Any]] = {}
"""What ``inspect`` said of each class: asking takes longer than an episode of a small world."""


@dataclass(frozen=True, slots=True, kw_only=True)
class WorldSpec:
    """A world's registration: the constant ``WORLD`` at the end of its module is one of these."""

    id: str
    """Public name; for a world of ours, its module's name."""
    env: type[Env[Any]]
    """The class; its keyword-only constructor parameters are the world's parameters."""
    summary: str
    """One line for ``peira list``."""
    source: str = ""
    """Where the world is described (paper, section)."""
    lacks: tuple[str, ...] = ()
    """What an adapter to a foreign world cannot do: ``snapshot``, ``oracle``, ``state_key``, ``legal``."""

    def parameters(self) -> dict[str, Any]:
        """Return the world's parameters with their defaults."""
        found = _PARAMETERS.get(self.env)
        if found is None:
            given = inspect.signature(self.env).parameters.items()
            found = _PARAMETERS[self.env] = {name: p.default for name, p in given if p.kind is p.KEYWORD_ONLY}
        return dict(found)

    def open(self, *, max_turns: int | None = None, guards: bool = True, **params: Any) -> Env[Any]:
        """Build a world object.

        Raises:
            UsageError: a parameter the world does not have, or a turn limit below one.
        """
        allowed = self.parameters()
        for name in params:
            if name not in allowed:
                raise unknown(f"parameter of world {self.id!r}", name, allowed)
        env = self.env(**params)
        if max_turns is not None:
            if max_turns < 1:
                raise UsageError(f"max_turns must be at least 1, not {max_turns}")
            env.limit = max_turns
        env.guards = guards
        return env


@cache
def _homes() -> dict[str, str]:
    """Map each world's name to ``module:attribute`` without importing any of them."""
    homes: dict[str, str] = {}
    for path in Path(__file__).parent.iterdir():
        name = path.stem
        is_module = path.suffix == ".py" or (path.is_dir() and (path / "__init__.py").exists())
        if is_module and not name.startswith("_") and name not in _CONTRACT:
            homes[name] = f"peira.envs.{name}:WORLD"
    for point in metadata.entry_points(group=GROUP):
        if homes.setdefault(point.name, point.value) != point.value:
            raise UsageError(
                f"two worlds are called {point.name!r}: {homes[point.name]} and {point.value}; "
                f"rename one in its package's {GROUP!r} entry points"
            )
    return homes


def names() -> tuple[str, ...]:
    """Return the names of all worlds, ours and those of installed packages."""
    return tuple(sorted(_homes()))


def find(name: str) -> WorldSpec:
    """Return a world's spec, importing its module only.

    ``name`` may carry Gymnasium's namespace (``peira/sorting``), or be ``module:ATTRIBUTE`` for a world that no package
    registers.

    Raises:
        UsageError: no such world, or what was found is not a ``WorldSpec``.
    """
    name = name.removeprefix("peira/")
    homes = _homes()
    home = homes.get(name, name if ":" in name else "")
    if not home:
        raise unknown("world", name, homes, remedy="`peira list` describes them.")
    module, _, attribute = home.partition(":")
    try:
        spec = getattr(import_module(module), attribute)
    except ModuleNotFoundError as error:
        if error.name is None or not (module == error.name or module.startswith(error.name + ".")):
            raise
        raise UsageError(f"world {name!r} points at the module {module!r}, which cannot be found") from error
    except AttributeError as error:
        raise UsageError(f"world {name!r} points at {home}, but {module!r} has no {attribute!r}") from error
    if not isinstance(spec, WorldSpec):
        raise UsageError(f"{home} is a {type(spec).__name__}; a world's module ends in WORLD = WorldSpec(...)")
    return spec


def make(name: str | WorldSpec, *, max_turns: int | None = None, guards: bool = True, **params: Any) -> Env[Any]:
    """Open a world by name.

    Args:
        name: a world's name or spec.
        max_turns: turns after which an episode is truncated, instead of the world's own limit.
        guards: check every observation and reward on the way out.
        params: the world's parameters.

    Raises:
        UsageError: unknown world or parameter.
    """
    spec = find(name) if isinstance(name, str) else name
    return spec.open(max_turns=max_turns, guards=guards, **params)
