"""Checkpoints: everything a run needs to go on, on the disk whole or not at all.

::

    checkpoints/
        000004-step-12/
            tensors.pt       weights, optimiser moments, reference, generators: nested dicts of tensors, numbers
            state.json       whatever else the loop remembers: sampler, controllers, stores, counters
            manifest.json    written last: schema, step, identity of the run, size and hash of each file

A checkpoint is written under another name, flushed to the disk and renamed; the one before it is only removed
afterwards. So a process killed at any moment, or a full disk, leaves the previous checkpoint as it was. The number in
front counts saves, not steps: a run that went back and did a step again never writes over what is there.
"""

import hashlib
import io
import json
import os
import pickle
import re
import shutil
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any, cast

import torch

from peira.tools.errors import UsageError

__all__ = ["Checkpoint", "Checkpoints"]

SCHEMA = 1
_NAME = re.compile(r"(\d{6,})-step-(\d+)")
_MANIFEST, _TENSORS, _STATE = "manifest.json", "tensors.pt", "state.json"
_SCRATCH = ".unfinished-"


@dataclass(frozen=True, slots=True)
class Checkpoint:
    """What was saved."""

    step: int
    tensors: Mapping[str, Any]
    """Nested dictionaries of tensors and plain numbers."""
    state: Mapping[str, Any]
    """JSON data."""


class Checkpoints:
    """The checkpoints of one run.

    Args:
        folder: where they lie; made on the first save.
        identity: JSON data that says which run this is (world, configuration, action table, ...). A checkpoint with
            another identity is refused, key by key.
        keep: how many are kept; the least recently saved or loaded goes first, the one just saved never.
    """

    def __init__(self, folder: str | Path, identity: Mapping[str, Any] | None = None, *, keep: int = 2) -> None:
        if keep < 1:
            raise UsageError(f"at least 1 checkpoint must be kept, not {keep}")
        self.folder, self.identity, self.keep = Path(folder), dict(identity or {}), keep

    def list(self) -> list[Path]:
        """Return the complete checkpoints, the oldest save first."""
        found = [path for path in self.folder.glob("*-step-*") if _NAME.fullmatch(path.name)]
        return sorted((path for path in found if (path / _MANIFEST).is_file()), key=_serial)

    def newest(self) -> Path | None:
        """Return the checkpoint that was saved last."""
        return max(self.list(), key=_serial, default=None)

    def save(self, checkpoint: Checkpoint) -> Path:
        """Write a checkpoint and remove those that are too many.

        Raises:
            UsageError: the disk refuses (full, read-only); every checkpoint that was there is still there.
            TypeError, ValueError: ``state`` is not JSON data; likewise.
        """
        state = json.dumps(checkpoint.state, allow_nan=False, sort_keys=True)
        serial = 1 + max((_serial(path) for path in self.list()), default=0)
        path = self.folder / f"{serial:06d}-step-{checkpoint.step}"
        scratch = self.folder / f"{_SCRATCH}{path.name}"
        try:
            self._sweep()
            scratch.mkdir(parents=True)
            self._write(scratch, checkpoint, state)
            os.rename(scratch, path)
            _flush(self.folder)
        except OSError as error:
            shutil.rmtree(scratch, ignore_errors=True)
            there = self.newest()
            rest = f"the newest one is still {there}" if there else "there is none yet"
            raise UsageError(
                f"cannot save a checkpoint to {self.folder}: {error.strerror or error}; {rest}. Make room or name "
                "another run folder, then resume"
            ) from error
        self._prune(path)
        return path

    def load(self, path: str | Path | None = None) -> Checkpoint:
        """Read a checkpoint, by default the newest, after checking that it is whole and of this run.

        Raises:
            UsageError: there is none; a file is missing or not what was written (both named); another schema; another
                identity (every difference is named).
        """
        chosen = self.newest() if path is None else Path(path)
        if chosen is None:
            raise UsageError(f"there is no complete checkpoint in {self.folder}")
        manifest = self._manifest(chosen)
        for name, facts in manifest["files"].items():
            problem = _problem(chosen / name, facts)
            if problem:
                raise UsageError(f"the checkpoint {chosen} is damaged: {name} {problem}.{self._instead(chosen)}")
        try:
            tensors = torch.load(chosen / _TENSORS, map_location="cpu", weights_only=True)
            state = json.loads((chosen / _STATE).read_text(encoding="utf-8"))
        except (OSError, ValueError, RuntimeError, pickle.UnpicklingError) as error:
            raise UsageError(f"the checkpoint {chosen} cannot be read: {error}.{self._instead(chosen)}") from error
        os.utime(chosen)  # it was of use: it goes later
        return Checkpoint(int(manifest["step"]), tensors, state)

    # -- writing ------------------------------------------------------------------------------------------------------

    def _write(self, scratch: Path, checkpoint: Checkpoint, state: str) -> None:
        """Fill a folder, the manifest last, and flush it to the disk."""
        files = {
            _TENSORS: _write_tensors(scratch / _TENSORS, checkpoint.tensors),
            _STATE: _write_bytes(scratch / _STATE, state.encode()),
        }
        manifest = {"schema": SCHEMA, "step": checkpoint.step, "identity": self.identity, "files": files}
        _write_bytes(scratch / _MANIFEST, json.dumps(manifest, indent=1, allow_nan=False).encode())
        _flush(scratch)

    def _sweep(self) -> None:
        """Remove what a killed process left unfinished."""
        for left in self.folder.glob(f"{_SCRATCH}*"):
            shutil.rmtree(left)

    def _prune(self, newest: Path) -> None:
        """Remove the checkpoints least recently used; under another name first, so that none is ever half there."""
        others = sorted((p for p in self.list() if p != newest), key=lambda p: (p.stat().st_mtime_ns, _serial(p)))
        for path in others[: max(0, len(others) - (self.keep - 1))]:
            doomed = self.folder / f"{_SCRATCH}{path.name}"
            os.rename(path, doomed)
            shutil.rmtree(doomed, ignore_errors=True)

    # -- checking -----------------------------------------------------------------------------------------------------

    def _manifest(self, path: Path) -> dict[str, Any]:
        """Read and check a manifest."""
        instead = self._instead(path)
        try:
            manifest: dict[str, Any] = json.loads((path / _MANIFEST).read_text(encoding="utf-8"))
            schema, files, identity = manifest["schema"], manifest["files"], manifest["identity"]
            if not {_TENSORS, _STATE} <= set(files):
                raise ValueError(f"it lists {sorted(files)}")
        except FileNotFoundError as error:
            raise UsageError(
                f"{path} is no complete checkpoint: {_MANIFEST} is missing.{self._instead(path)}"
            ) from error
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise UsageError(f"the checkpoint {path} is damaged: {_MANIFEST}: {error}.{instead}") from error
        if schema != SCHEMA:
            raise UsageError(f"the checkpoint {path} has format {schema}; this version of peira reads format {SCHEMA}")
        differences = list(_differences(identity, json.loads(json.dumps(self.identity))))
        if differences:
            raise UsageError(
                f"the checkpoint {path} belongs to another run: {'; '.join(differences)}. Start a run of its own, or "
                "resume with the settings it was made with"
            )
        return manifest

    def _instead(self, path: Path) -> str:
        others = [other for other in self.list() if other != path]
        return f" The one before it is {others[-1]}" if others else " There is no other one: start the run again"


def _serial(path: Path) -> int:
    found = _NAME.fullmatch(path.name)
    return int(found[1]) if found else 0


def _differences(saved: Any, given: Any, place: str = "") -> Iterator[str]:
    """Yield one line per place where two JSON values differ."""
    if isinstance(saved, dict) and isinstance(given, dict):
        for key in sorted({*saved, *given}):
            here = f"{place}.{key}" if place else str(key)
            if key not in saved or key not in given:
                side = "the checkpoint" if key in saved else "this run"
                yield f"{here} is only in {side}"
            else:
                yield from _differences(saved[key], given[key], here)
    elif saved != given:
        yield f"{place or 'identity'} is {saved!r} there and {given!r} here"


class _Counting(io.RawIOBase):
    """A file that hashes what passes, and keeps the disk's own error, which the tensor writer would hide."""

    def __init__(self, path: Path) -> None:
        self.file = path.open("wb")
        self.digest, self.size = hashlib.blake2b(digest_size=16), 0
        self.error: OSError | None = None

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        try:
            self._sink(data)
        except OSError as error:
            self.error = error
            raise
        self.digest.update(data)
        self.size += memoryview(data).nbytes
        return memoryview(data).nbytes

    def _sink(self, data: Any) -> None:
        self.file.write(data)

    def finish(self) -> dict[str, Any]:
        """Flush to the disk and return the file's facts."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        return {"bytes": self.size, "blake2b": self.digest.hexdigest()}


def _write_tensors(path: Path, tensors: Mapping[str, Any]) -> dict[str, Any]:
    file = _Counting(path)
    try:
        torch.save(tensors, cast("IO[bytes]", file))
        return file.finish()
    except RuntimeError as error:
        raise file.error or error from error
    finally:
        file.file.close()


def _write_bytes(path: Path, data: bytes) -> dict[str, Any]:
    file = _Counting(path)
    try:
        file.write(data)
        return file.finish()
    finally:
        file.file.close()


def _problem(path: Path, facts: Mapping[str, Any]) -> str | None:
    """Say what is wrong with a file, if anything."""
    try:
        if path.stat().st_size != facts["bytes"]:
            return f"has {path.stat().st_size} bytes instead of {facts['bytes']}"
        with path.open("rb") as file:
            digest = hashlib.file_digest(file, lambda: hashlib.blake2b(digest_size=16)).hexdigest()
    except FileNotFoundError:
        return "is missing"
    except OSError as error:
        return f"cannot be read ({error.strerror or error})"
    return None if digest == facts["blake2b"] else "does not hold what was written"


def _flush(folder: Path) -> None:
    """Make a folder's entries durable, where the system can."""
    if os.name != "posix":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
