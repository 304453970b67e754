"""A run on disk, and its metrics as strict JSON lines.

::

    runs/NAME/
        config.toml       every setting with its source; a recipe that repeats the run
        metrics.jsonl     one or more lines per step
        episodes/         a file per step that keeps its episodes
        checkpoints/      what a run goes on from
        curve.png         drawn at the end
"""

import json
import math
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from peira.tools.errors import UsageError

__all__ = ["Metrics", "RunFolder", "read_metrics", "steps_of"]

_OWN = ("step", "phase")


@dataclass(frozen=True, slots=True)
class RunFolder:
    """The files of one run."""

    path: Path

    @property
    def config(self) -> Path:
        """The resolved configuration."""
        return self.path / "config.toml"

    @property
    def metrics(self) -> Path:
        """JSON lines; see ``Metrics``."""
        return self.path / "metrics.jsonl"

    @property
    def checkpoints(self) -> Path:
        """Folder of checkpoints."""
        return self.path / "checkpoints"

    @property
    def curve(self) -> Path:
        """The learning curve."""
        return self.path / "curve.png"

    def episodes(self, step: int) -> Path:
        """File of the episodes of one step."""
        return self.path / "episodes" / f"{step:06d}.jsonl.zst"

    def begin(self, config: str, *, resume: bool = False) -> None:
        """Make the folder, or see that it holds the run that is to go on.

        Args:
            config: text of ``config.toml`` (``Resolved.toml()``).
            resume: go on with the run that is there.

        Raises:
            UsageError: another run lies there, there is nothing to resume, or the disk refuses. Nothing has changed.
        """
        holds = self.path.exists() and (not self.path.is_dir() or any(self.path.iterdir()))
        if holds and not resume:
            raise UsageError(f"{self.path} is not empty; name another run, or go on with this one (--resume)")
        if resume and not self.config.is_file():
            raise UsageError(f"there is no run to resume in {self.path} (no {self.config.name}); leave --resume out")
        if resume:
            return
        try:
            self.path.mkdir(parents=True, exist_ok=True)
            _replace(self.config, config)
        except OSError as error:
            raise UsageError(f"cannot make the run folder {self.path}: {error.strerror or error}") from error


def _replace(path: Path, text: str) -> None:
    """Write a small file so that it is there whole or not at all."""
    scratch = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        scratch.write_text(text, encoding="utf-8")
        os.replace(scratch, path)
    finally:
        scratch.unlink(missing_ok=True)


class Metrics:
    """Writes a run's numbers; the step belongs to the writer's caller, never to a counter of its own.

    Any number of ``log`` calls may name one step: a reader puts them together, and the last value of a key counts, so
    a resumed run that does a step again loses nothing. Values are strict JSON: NaN and infinities become ``null``.

    Raises:
        UsageError: the file cannot be written.
    """

    def __init__(self, path: str | Path) -> None:
        self.path = Path(path)
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            _mend(self.path)
            self._file = self.path.open("a", encoding="utf-8")
        except OSError as error:
            raise UsageError(f"cannot write metrics to {self.path}: {error.strerror or error}") from error

    def log(self, step: int, values: Mapping[str, Any], phase: str = "train") -> None:
        """Append values of a step; each line is on the disk before this returns.

        Raises:
            UsageError: a value named as a key of the writer, a value that is neither number nor text, or a full disk.
        """
        taken = next((key for key in values if key in _OWN), None)
        if taken:
            raise UsageError(f"a metric cannot be called {taken!r}: that key says when a line was written")
        line = json.dumps(
            {"step": int(step), "phase": phase, **{k: _plain(k, v) for k, v in values.items()}}, allow_nan=False
        )
        try:
            self._file.write(line + "\n")
            self._file.flush()
        except OSError as error:
            raise UsageError(
                f"cannot write metrics to {self.path}: {error.strerror or error}; free some space, then resume the run"
            ) from error

    def close(self) -> None:
        """Close the file."""
        self._file.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.close()


def _plain(key: str, value: Any) -> float | int | str | bool | None:
    if value is None or isinstance(value, str | bool):
        return value
    if hasattr(value, "item"):  # a NumPy or torch scalar
        value = value.item()
    if isinstance(value, int):
        return value
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    raise UsageError(f"metric {key!r} is a {type(value).__name__}; metrics are numbers or text")


def _mend(path: Path) -> None:
    """Cut off a line that a crash left unfinished, so that the next one is not glued to it."""
    if not path.exists():
        return
    with path.open("rb+") as file:
        data = file.read()
        if data and not data.endswith(b"\n"):
            file.truncate(data.rfind(b"\n") + 1)


def read_metrics(path: str | Path) -> Iterator[dict[str, Any]]:
    """Yield the lines of a metrics file as they were written; an unfinished last line is left out.

    Raises:
        UsageError: no such file, or a line that is not strict JSON.
    """
    try:
        text = Path(path).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"cannot read the metrics {path}: {error}") from error
    for number, line in enumerate(text.splitlines(keepends=True), 1):
        if not line.endswith("\n"):
            return
        try:
            yield json.loads(line, parse_constant=_refuse)
        except ValueError as error:
            raise UsageError(f"{path}, line {number} is damaged ({error}); remove the line") from error


def _refuse(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def steps_of(path: str | Path, phase: str | None = None) -> list[dict[str, Any]]:
    """Return one record per step, in order: all lines of the step (of a phase) put together.

    Keys of other phases than ``train`` carry the phase: ``eval/success``, unless one phase is asked for.
    """
    steps: dict[int, dict[str, Any]] = {}
    for line in read_metrics(path):
        own = line["phase"]
        if phase is not None and own != phase:
            continue
        prefix = "" if phase is not None or own == "train" else f"{own}/"
        record = steps.setdefault(line["step"], {"step": line["step"]})
        record.update({f"{prefix}{key}": value for key, value in line.items() if key not in _OWN})
    return [steps[step] for step in sorted(steps)]
