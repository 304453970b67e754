"""Plain data as TOML text; the standard library reads TOML but does not write it."""

import json
import re
from collections.abc import Callable, Mapping
from typing import Any

from peira.tools.errors import UsageError

__all__ = ["dumps", "value_text"]

_BARE = re.compile(r"[A-Za-z0-9_-]+")


def dumps(data: Mapping[str, Any], comment: Callable[[str], str] | None = None) -> str:
    """Return nested plain data as TOML tables; ``None`` becomes ``"none"``.

    Args:
        data: strings, numbers, booleans, lists and mappings with string keys.
        comment: what to say behind the value of a dotted key.

    Raises:
        UsageError: a value that TOML cannot hold.
    """
    blocks: list[str] = []
    _table(data, (), comment, blocks)
    return "\n\n".join(blocks) + "\n"


def _table(
    data: Mapping[str, Any], path: tuple[str, ...], comment: Callable[[str], str] | None, blocks: list[str]
) -> None:
    lines = [f"[{'.'.join(map(key_text, path))}]"] if path else []
    for key, value in data.items():
        if not isinstance(value, Mapping):
            line = f"{key_text(key)} = {value_text(value)}"
            lines.append(f"{line}  # {comment('.'.join((*path, key)))}" if comment else line)
    tables = {key: value for key, value in data.items() if isinstance(value, Mapping)}
    if len(lines) > bool(path) or not tables:
        blocks.append("\n".join(lines))
    for key, value in tables.items():
        _table(value, (*path, str(key)), comment, blocks)


def key_text(key: str) -> str:
    """Return a key, in quotes where it has to be."""
    return str(key) if _BARE.fullmatch(str(key)) else value_text(str(key))


def value_text(value: Any) -> str:
    """Return one value as TOML text."""
    match value:
        case None:
            return '"none"'
        case bool():
            return "true" if value else "false"
        case int():
            return str(value)
        case float():
            return repr(value)
        case str():
            return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
        case list() | tuple():
            return "[" + ", ".join(map(value_text, value)) + "]"
        case Mapping():
            return "{" + ", ".join(f"{key_text(k)} = {value_text(v)}" for k, v in value.items()) + "}"
    raise UsageError(f"TOML has no way to write a {type(value).__name__} ({value!r})")
