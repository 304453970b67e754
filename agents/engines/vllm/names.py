"""Which tensors a policy folder holds, and the learner's weights under those names: mapped, or refused with both lists.

vLLM's loaders skip names they do not know, so a delivery whose names are all wrong succeeds and changes nothing. Here
every name is accounted for before anything is sent.
"""

import json
import struct
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peira.tools.errors import UsageError

__all__ = ["Manifest", "matched"]

_ANYWHERE = frozenset({"_orig_mod", "_fsdp_wrapped_module", "_checkpoint_wrapped_module", "base_layer"})
"""Segments that wrappers put into names: compilation, sharding, recomputation, adapters."""
_IN_FRONT = (("module",), ("base_model", "model"))
_HEAD = "lm_head.weight"
_EMBEDDINGS = ("embed_tokens.weight", "wte.weight", "word_embeddings.weight", "embed_in.weight")
_SHOWN = 8


@dataclass(frozen=True)
class Manifest:
    """The tensors of a policy folder."""

    shapes: Mapping[str, tuple[int, ...]]
    """Shape of each tensor by its name in the weight files."""
    aliases: Mapping[str, str]
    """Second names of tied tensors: the output head that is the input embedding."""

    @property
    def rows(self) -> int:
        """Output rows of the model."""
        return self.shapes[_HEAD if _HEAD in self.shapes else self.aliases[_HEAD]][0]

    @classmethod
    def read(cls, folder: Path) -> "Manifest":
        """Read the headers of a folder's weight files; the tensors themselves are not touched.

        Raises:
            UsageError: no safetensors files, or a damaged one.
        """
        files = sorted(folder.glob("*.safetensors"))
        if not files:
            raise UsageError(
                f"{folder} has no .safetensors files, which say what a delivery must hold; load the policy and save it "
                "again with transformers"
            )
        shapes: dict[str, tuple[int, ...]] = {}
        for file in files:
            shapes.update(_header(file))
        config = json.loads((folder / "config.json").read_text(encoding="utf-8"))
        tied = bool(config.get("tie_word_embeddings", config.get("text_config", {}).get("tie_word_embeddings", False)))
        embedding = next((name for name in shapes if name.endswith(_EMBEDDINGS)), None)
        aliases = {_HEAD: embedding} if tied and embedding is not None and _HEAD not in shapes else {}
        if _HEAD not in shapes and not aliases:
            raise UsageError(
                f"the weights in {folder} have no {_HEAD} and no tied embedding; vLLM cannot serve them here"
            )
        return cls(shapes, aliases)


def _header(file: Path) -> Iterator[tuple[str, tuple[int, ...]]]:
    """Yield name and shape of each tensor: eight bytes of length, then JSON."""
    try:
        with file.open("rb") as stream:
            (length,) = struct.unpack("<Q", stream.read(8))
            header = json.loads(stream.read(length))
        for name, entry in header.items():
            if name != "__metadata__":
                yield name, tuple(int(size) for size in entry["shape"])
    except (OSError, struct.error, ValueError, KeyError, MemoryError) as error:
        raise UsageError(f"{file} is not a whole safetensors file ({error}); copy the folder again") from error


def _bare(name: str) -> str:
    """Return a name without what wrappers added to it."""
    parts = [part for part in name.split(".") if part not in _ANYWHERE]
    for front in _IN_FRONT:
        if tuple(parts[: len(front)]) == front:
            parts = parts[len(front) :]
    return ".".join(parts)


def matched(weights: Mapping[str, Any], manifest: Manifest) -> dict[str, Any]:
    """Return the weights under the folder's names, in the folder's order.

    Names with a wrapper's prefix are mapped. A tied tensor may be given under one of its names or under both, then with
    one value.

    Raises:
        UsageError: names are missing, unknown or given twice, or shapes differ.
    """
    found: dict[str, tuple[str, Any]] = {}
    strange: list[str] = []
    for given, value in weights.items():
        name = next((n for n in (given, _bare(given)) if n in manifest.shapes or n in manifest.aliases), None)
        if name is None:
            strange.append(given)
            continue
        name = manifest.aliases.get(name, name)
        if name in found and not _equal(found[name][1], value):
            raise UsageError(
                f"{found[name][0]} and {given} are one tensor ({name}) to the engine, but two different ones were given"
            )
        found[name] = (given, value)
    missing = [name for name in manifest.shapes if name not in found]
    if missing or strange:
        raise UsageError(
            f"weights do not match the policy that is served. Missing: {_listed(missing)}. Unknown: {_listed(strange)}."
            " Deliver every tensor under the name it has in the policy's folder; merge an adapter into its base first"
        )
    wrong = [
        f"{given} {tuple(value.shape)} instead of {manifest.shapes[name]}"
        for name, (given, value) in found.items()
        if tuple(value.shape) != manifest.shapes[name]
    ]
    if wrong:
        raise UsageError(f"weights do not match the shapes of the policy that is served: {_listed(wrong)}")
    return {name: found[name][1] for name in manifest.shapes}


def _equal(one: Any, other: Any) -> bool:
    return one is other or (tuple(one.shape) == tuple(other.shape) and bool((one == other).all()))


def _listed(names: list[str]) -> str:
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return (", ".join(names[:_SHOWN]) or "none") + more
