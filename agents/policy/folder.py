"""A policy is an ordinary Hugging Face folder, plus ``peira.json`` when it has native actions.

``peira.json`` (schema 1)::

    {"schema": 1, "world": "sorting", "base": 384, "fingerprint": "…",
     "actions": [{"name": "compare", "text": " compare", "routing": true}, …]}
"""

import json
import os
import shutil
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import cached_property
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, Any

from peira.agents.actions import ActionTable
from peira.tools.errors import UsageError, missing_extra
from peira.tools.native import NativeAction

if TYPE_CHECKING:
    from peira.agents.text import HFText

__all__ = ["SIDECAR", "Policy", "libraries", "read_actions", "read_tokenizer", "silent", "write_actions", "writing"]

SIDECAR = "peira.json"
_SCHEMA = 1
_WEIGHTS = ("model.safetensors", "model.safetensors.index.json", "pytorch_model.bin", "pytorch_model.bin.index.json")
_READS = ("tokenizer.json", "tokenizer_config.json", "chat_template.jinja", "special_tokens_map.json", SIDECAR)
"""Files that decide what the policy reads and writes; its fingerprint is theirs."""


def libraries() -> tuple[Any, Any]:
    """Import ``torch`` and ``transformers`` for whoever handles a policy's weights or tokenizer.

    Raises:
        UsageError: one of them is not installed.
    """
    try:
        import torch
        import transformers
    except ModuleNotFoundError as error:
        if error.name not in ("torch", "transformers"):
            raise
        raise missing_extra(error.name, "train", "a policy folder") from error
    return torch, transformers


def read_tokenizer(folder: str | Path) -> Any:
    """Return the Hugging Face tokenizer of a model's folder, whether or not there are weights in it.

    Raises:
        UsageError: no such folder, or no tokenizer that can be read in it.
    """
    path = Path(folder)
    if not path.is_dir():
        what = "is a file" if path.exists() else "does not exist"
        raise UsageError(f"the model folder {path} {what}; name a folder with tokenizer.json and a chat template")
    _, transformers = libraries()
    try:
        return transformers.AutoTokenizer.from_pretrained(str(path), local_files_only=True)
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise UsageError(f"the tokenizer in {path} cannot be read ({error}); copy the folder again") from error


@contextmanager
def silent() -> Iterator[None]:
    """Keep the library's own progress bars (they last milliseconds) off the terminal."""
    from transformers.utils import logging

    shown = logging.is_progress_bar_enabled()
    logging.disable_progress_bar()
    try:
        yield
    finally:
        if shown:
            logging.enable_progress_bar()


@contextmanager
def writing(path: Path, *, overwrite: bool = False) -> Iterator[Path]:
    """Give a temporary folder beside ``path`` that takes its place when the block ends well, and vanishes otherwise.

    Raises:
        UsageError: ``path`` holds something and ``overwrite`` is off, or the disk refuses the write.
    """
    if path.exists() and not path.is_dir():
        raise UsageError(f"{path} is a file; a policy is a folder. Name another path")
    if path.is_dir() and any(path.iterdir()) and not overwrite:
        raise UsageError(f"{path} is not empty; name another folder, or ask for it to be overwritten")
    scratch: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        scratch = Path(tempfile.mkdtemp(prefix=f".{path.name}.", dir=path.parent))
        yield scratch
        scratch.chmod(0o755)
        _swap(scratch, path)
    except OSError as error:
        raise UsageError(
            f"cannot write the folder {path}: {error.strerror or error}. Free some space or choose another place; "
            "nothing that was there has changed"
        ) from error
    finally:
        if scratch is not None and scratch.exists():
            shutil.rmtree(scratch, ignore_errors=True)


def _swap(scratch: Path, path: Path) -> None:
    """Put ``scratch`` in the place of ``path``; the old folder is removed only after the new one stands."""
    if not path.exists():
        os.replace(scratch, path)
        return
    old = Path(tempfile.mkdtemp(prefix=f".{path.name}.old.", dir=path.parent))
    os.replace(path, old)
    try:
        os.replace(scratch, path)
    except OSError:
        os.replace(old, path)
        raise
    shutil.rmtree(old, ignore_errors=True)


def write_actions(folder: Path, table: ActionTable, actions: Sequence[NativeAction]) -> None:
    """Write ``peira.json``: the native actions whose rows the folder's model carries."""
    record = {
        "schema": _SCHEMA,
        "world": table.world,
        "base": table.ids[0],
        "fingerprint": table.fingerprint,
        "actions": [{"name": a.name, "text": a.text, "routing": a.routing} for a in actions],
    }
    (folder / SIDECAR).write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def read_actions(folder: Path, text: "HFText") -> ActionTable | None:
    """Read ``peira.json`` and rebuild the action table with the folder's own tokenizer.

    Raises:
        UsageError: the file is corrupt, of another schema, or does not fit the tokenizer beside it.
    """
    file = folder / SIDECAR
    if not file.exists():
        return None
    record = _json(file)
    try:
        if record["schema"] != _SCHEMA:
            raise UsageError(f"{file} has schema {record['schema']!r}; this version of peira reads {_SCHEMA}")
        actions = [NativeAction(a["name"], a["text"], bool(a["routing"])) for a in record["actions"]]
        world, base, fingerprint = str(record["world"]), int(record["base"]), str(record["fingerprint"])
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        if isinstance(error, UsageError):
            raise
        raise UsageError(
            f"{file} lacks or garbles {error}; it was not written by peira or was edited. Expand the policy again"
        ) from error
    table = ActionTable.build(world, actions, text.encode, base)
    if table.fingerprint != fingerprint:
        raise UsageError(
            f"{file} does not fit the tokenizer in {folder}: its actions would be written with other tokens than when "
            "the policy was made. Use the folder as it was saved, or expand the policy again"
        )
    return table


def _whose(folder: Path) -> tuple[str | None, int | None]:
    """Return the world and the first native row that ``peira.json`` names, where there is one."""
    if not (folder / SIDECAR).exists():
        return None, None
    record = _json(folder / SIDECAR)
    world, base = record.get("world"), record.get("base")
    if not isinstance(world, str) or not isinstance(base, int):
        raise UsageError(f"{folder / SIDECAR} does not say its world and base; expand the policy again")
    return world, base


def _json(file: Path) -> dict[str, Any]:
    try:
        record = json.loads(file.read_text(encoding="utf-8"))
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UsageError(f"{file} is not JSON ({error}); the folder is damaged, so make or copy it again") from error
    if not isinstance(record, dict):
        raise UsageError(f"{file} holds a {type(record).__name__}, not an object; make or copy the folder again")
    return record


@dataclass(frozen=True)
class Policy:
    """A policy folder, opened. Weights are read only when ``model`` is called."""

    path: Path
    world: str | None
    """World whose native actions the policy has rows for; ``None``: a plain language model."""
    base: int | None
    """First native row; ``None``: a plain language model."""
    fingerprint: str
    """Hash of tokenizer, template and actions: what the policy reads and writes, not its weights."""

    @classmethod
    def load(cls, path: str | Path) -> "Policy":
        """Open a folder and check that it is whole.

        Raises:
            UsageError: no such folder, a missing or damaged file, or a ``peira.json`` that does not fit.
        """
        folder = Path(path)
        if not folder.is_dir():
            what = "is a file" if folder.exists() else "does not exist"
            raise UsageError(f"the policy folder {folder} {what}; `peira policy new {folder}` makes a small one")
        for name in ("config.json", "tokenizer_config.json", "tokenizer.json"):
            if not (folder / name).exists():
                raise UsageError(f"{folder} has no {name}, so it is not a whole policy folder; make or copy it again")
            _json(folder / name)
        if not any((folder / name).exists() for name in _WEIGHTS):
            raise UsageError(f"{folder} has no weights ({' or '.join(_WEIGHTS[:2])}); make or copy it again")
        world, base = _whose(folder)
        content = blake2b(digest_size=8)
        for name in _READS:
            file = folder / name
            content.update(name.encode() + b"\0" + (file.read_bytes() if file.exists() else b"") + b"\0")
        policy = cls(folder, world, base, content.hexdigest())
        _ = policy.actions  # a peira.json that does not fit is told now, not in the middle of a run
        return policy

    @cached_property
    def tokenizer(self) -> Any:
        """The folder's Hugging Face tokenizer."""
        return read_tokenizer(self.path)

    @cached_property
    def text(self) -> "HFText":
        """The tokenizer and template as the rollout uses them."""
        from peira.agents.text import HFText

        return HFText(self.tokenizer, vocab=self.base)

    @cached_property
    def actions(self) -> ActionTable | None:
        """The native actions, or ``None`` for a plain language model."""
        return read_actions(self.path, self.text) if self.world is not None else None

    @property
    def vocab(self) -> int:
        """Number of plain vocabulary ids: everything below the native rows and the model's padding rows."""
        return len(self.tokenizer) if self.base is None else self.base

    def require(self, world: str, native: Sequence[NativeAction] = ()) -> ActionTable:
        """Return the action table for a world, having checked that it is that world's, unchanged.

        Raises:
            UsageError: the policy has no native actions, another world's, or the world's have changed since.
        """
        table = self.actions
        if table is None:
            raise UsageError(
                f"the policy {self.path} has no native actions, but world {world!r} is used in its expanded format; "
                f"run `peira policy expand {self.path} --world {world}`, or use the world with actions='tags'"
            )
        if table.world != world:
            raise UsageError(
                f"the policy {self.path} was expanded for world {table.world!r}, not {world!r}; expand a plain policy "
                f"for {world!r}, or use the world with actions='tags'"
            )
        if native and ActionTable.build(world, native, self.text.encode, table.ids[0]) != table:
            raise UsageError(
                f"world {world!r} now lists other native actions ({', '.join(a.name for a in native)}) than the policy "
                f"{self.path} was made for ({', '.join(table.names)}); expand a plain policy again"
            )
        return table

    def model(self, *, device: str = "cpu", dtype: str = "float32") -> Any:
        """Load the weights as a Hugging Face causal LM in evaluation mode; dtype ``auto`` is that of the files.

        Raises:
            UsageError: damaged weights, an unknown device or dtype, or fewer output rows than ids.
        """
        torch, transformers = libraries()
        kind = dtype if dtype == "auto" else getattr(torch, dtype, None)
        if kind != "auto" and not isinstance(kind, torch.dtype):
            raise UsageError(f"{dtype!r} is not a torch dtype; use float32 (right on a CPU), bfloat16 or float16")
        read = transformers.AutoModelForCausalLM.from_pretrained
        try:
            with silent():
                model = read(str(self.path), dtype=kind, local_files_only=True).to(device)
        except Exception as error:  # boundary: readers of weight files raise types of their own
            raise UsageError(
                f"the model in {self.path} cannot be loaded on {device!r} as {dtype} ({type(error).__name__}: {error})"
            ) from error
        rows = model.get_output_embeddings().weight.shape[0]
        needed = self.vocab + (len(self.actions.ids) if self.actions is not None else 0)
        if rows < needed:
            raise UsageError(f"the model in {self.path} has {rows} output rows for {needed} ids; copy the folder again")
        return model.eval()
