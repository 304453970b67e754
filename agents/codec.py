"""Episodes and groups on disk: JSON lines, compressed when the name ends in ``.zst``.

The first line is a header, the last one a trailer with the number of records, so that a file cut short anywhere is
noticed::

    {"peira": "episodes", "schema": 1}
    {"kind": "group", "task": {...}, "episodes": [...], "faults": [...]}
    {"records": 1}

What follows from the rest is left out: a prompt that extends the last one is its new ids alone, ``written`` and ``at``
stand only where a native action was written, ``versions`` is one number where all are equal. Text is strict JSON.
"""

import json
import math
import os
import tempfile
from collections.abc import Generator, Iterable, Iterator
from contextlib import closing, contextmanager, suppress
from io import TextIOWrapper
from pathlib import Path
from types import MappingProxyType
from typing import IO, Any

import numpy as np
import zstandard

from peira.agents.growing import GrowingIds
from peira.agents.types import (
    SCHEMA,
    Completion,
    End,
    Episode,
    FaultRecord,
    Finish,
    Group,
    Ids,
    Legal,
    Origin,
    Tag,
    Turn,
)
from peira.tasks.task import Task
from peira.tools.errors import UsageError

__all__ = ["decode", "encode", "read", "same", "write"]

Record = Episode | Group


def write(path: str | Path, records: Iterable[Record]) -> int:
    """Write episodes or groups and return how many; the file appears complete or not at all.

    Raises:
        UsageError: a value that strict JSON cannot hold (NaN, infinity), or a place that cannot be written.
    """
    path = Path(path)
    count = 0
    with _appearing(path) as file:
        file.write(_line({"peira": "episodes", "schema": SCHEMA}))
        for record in records:
            try:
                line = _line(encode(record))
            except (TypeError, ValueError) as error:
                raise UsageError(f"cannot write record {count} of task {record.task.key} to {path}: {error}") from error
            file.write(line)
            count += 1
        file.write(_line({"records": count}))
    return count


def read(path: str | Path) -> list[Record]:
    """Read what ``write`` wrote; the records are equal to those written.

    Raises:
        UsageError: no such file, another kind or schema, a damaged line (named by file and line), or a file cut short.
    """
    path = Path(path)
    records: list[Record] = []
    number, ended = 0, False
    with closing(_lines(path)) as lines:
        for number, line in enumerate(lines, start=1):
            place = f"{path}, line {number}"
            if ended:
                raise UsageError(f"{place}: text after the end of the records; two files were joined. Keep them apart")
            try:
                ended = _take(json.loads(line, parse_constant=_refuse_constant), number, records)
            except UsageError as error:
                raise UsageError(f"{place}: {error}") from error
            except (ValueError, TypeError, KeyError, AttributeError, OverflowError) as error:
                raise UsageError(
                    f"{place} is damaged ({type(error).__name__}: {error}); restore the file or remove it"
                ) from error
    if not ended:
        raise UsageError(f"{path} is cut short after line {number}: its end is missing. Restore it or collect again")
    return records


def _take(data: dict[str, Any], number: int, records: list[Record]) -> bool:
    """Take one line in; return whether it was the trailer."""
    if number == 1:
        _check_header(data)
    elif "kind" in data:
        records.append(decode(data))
    elif data["records"] != len(records):
        raise UsageError(f"{data['records']} records were written, but {len(records)} are here")
    else:
        return True
    return False


def encode(record: Record) -> dict[str, Any]:
    """Return a record as plain JSON data."""
    if isinstance(record, Group):
        return {
            "kind": "group",
            "task": _task(record.task),
            "episodes": [_episode(episode) for episode in record.episodes],
            "faults": [
                {"task": _task(f.task), "where": f.where, "error": f.error, "turns": f.turns} for f in record.faults
            ],
        }
    return {"kind": "episode", **_episode(record)}


def decode(data: dict[str, Any]) -> Record:
    """Return the record that ``encode`` made into ``data``.

    Raises:
        UsageError, KeyError, TypeError, ValueError: it is not such data.
    """
    kind = data["kind"]
    if kind == "episode":
        return _read_episode(data)
    if kind != "group":
        raise UsageError(f"unknown kind of record {kind!r}; this version of peira reads episode and group")
    faults = (FaultRecord(_read_task(f["task"]), f["where"], f["error"], int(f["turns"])) for f in data["faults"])
    return Group(_read_task(data["task"]), tuple(map(_read_episode, data["episodes"])), tuple(faults))


def same(first: Record, second: Record) -> bool:
    """Return whether two records are equal in everything (``==`` does not work on records that hold arrays)."""
    return encode(first) == encode(second)


# ---- to JSON ----------------------------------------------------------------------------------------------------


def _line(data: dict[str, Any]) -> str:
    return json.dumps(data, separators=(",", ":"), allow_nan=False) + "\n"


def _task(task: Task) -> dict[str, Any]:
    return {
        "world": task.world,
        "seed": task.seed,
        "level": task.level,
        "split": task.split,
        "params": [[name, value] for name, value in task.params],
    }


def _episode(episode: Episode) -> dict[str, Any]:
    turns: list[dict[str, Any]] = []
    last: Turn | None = None
    for turn in episode.turns:
        turns.append(_turn(turn, last))
        last = turn
    origin = episode.origin
    return {
        "task": _task(episode.task),
        "turns": turns,
        "score": episode.score,
        "success": episode.success,
        "end": episode.end.value,
        "temperature": episode.temperature,
        "first_observation": episode.first_observation,
        "seed": episode.seed,
        "fingerprints": dict(episode.fingerprints),
        "origin": origin and [origin.kind, origin.score, origin.turn, origin.position],
    }


def _turn(turn: Turn, last: Turn | None) -> dict[str, Any]:
    made = turn.completion
    shared = 0 if last is None else _extended(turn.prompt, last)
    versions = made.versions.tolist()
    data: dict[str, Any] = {
        "extends": shared > 0,
        "prompt": turn.prompt[shared:].tolist(),
        "ids": made.ids.tolist(),
        # The shortest decimal that is this float32, not the long one of its double.
        "logprobs": [float(str(value)) for value in made.logprobs],
        "versions": versions[0] if versions and len(set(versions)) == 1 else versions,
        "finish": made.finish.value,
        "action": turn.action,
        "observation": turn.observation,
        "reward": turn.reward,
        "state_key": turn.state_key,
        "terminated": turn.terminated,
        "truncated": turn.truncated,
        "valid": turn.valid,
    }
    if not (np.array_equal(turn.written, made.ids) and np.array_equal(turn.at, np.arange(len(made.ids)))):
        data |= {"written": turn.written.tolist(), "at": turn.at.tolist()}
    if turn.tags.any():
        data["tags"] = turn.tags.tolist()
    if turn.legal is not None:
        data["legal"] = {"vocab": turn.legal.vocab, "ids": list(turn.legal.ids)}
    if turn.reward_parts:
        data["reward_parts"] = dict(turn.reward_parts)
    if turn.shown:
        data["shown"] = list(turn.shown)
    return data


def _extended(prompt: Ids, last: Turn) -> int:
    """Return how many ids of a prompt are the last turn's prompt and what was written behind it; 0: it is another."""
    middle, end = len(last.prompt), len(last.prompt) + len(last.written)
    if len(prompt) < end:
        return 0
    extends = np.array_equal(prompt[:middle], last.prompt) and np.array_equal(prompt[middle:end], last.written)
    return end if extends else 0


# ---- from JSON --------------------------------------------------------------------------------------------------


def _read_task(data: dict[str, Any]) -> Task:
    params = tuple((str(name), _hashable(value)) for name, value in data["params"])
    return Task(data["world"], int(data["seed"]), data["level"], data["split"], params)


def _hashable(value: Any) -> Any:
    return tuple(map(_hashable, value)) if isinstance(value, list) else value


def _read_episode(data: dict[str, Any]) -> Episode:
    turns: list[Turn] = []
    context = GrowingIds()
    for record in data["turns"]:
        if record["extends"]:
            context.extend(turns[-1].written)
        else:
            context = GrowingIds()
        context.extend(record["prompt"])
        turns.append(_read_turn(record, context.all()))
    origin = data["origin"]
    return Episode(
        task=_read_task(data["task"]),
        turns=tuple(turns),
        score=_finite(data["score"]),
        success=_bool(data["success"]),
        end=End(data["end"]),
        temperature=_finite(data["temperature"]),
        first_observation=data["first_observation"],
        seed=int(data["seed"]),
        fingerprints=dict(data["fingerprints"]),
        origin=None if origin is None else Origin(*origin),
    )


def _read_turn(data: dict[str, Any], prompt: Ids) -> Turn:
    ids = np.array(data["ids"], dtype=np.int32)
    versions = data["versions"]
    versions = [versions] * len(ids) if isinstance(versions, int) else versions
    completion = Completion(
        ids,
        np.array(data["logprobs"], dtype=np.float32),
        np.array(versions, dtype=np.int32),
        Finish(data["finish"]),
    )
    legal = data.get("legal")
    written = np.array(data["written"], dtype=np.int32) if "written" in data else ids
    at = np.array(data["at"], dtype=np.int32) if "at" in data else np.arange(len(ids), dtype=np.int32)
    tags = np.array([Tag(tag) for tag in data["tags"]] if "tags" in data else [0] * len(ids), dtype=np.uint8)
    if not len(at) == len(tags) == len(ids):
        raise ValueError(f"{len(ids)} ids with {len(at)} places and {len(tags)} tags")
    return Turn(
        prompt=prompt,
        completion=completion,
        written=written,
        at=at,
        tags=tags,
        legal=None if legal is None else Legal(_bool(legal["vocab"]), tuple(legal["ids"])),
        action=data["action"],
        observation=data["observation"],
        reward=_finite(data["reward"]),
        state_key=data["state_key"],
        terminated=_bool(data["terminated"]),
        truncated=_bool(data["truncated"]),
        valid=_bool(data["valid"]),
        reward_parts=MappingProxyType(dict(data.get("reward_parts", {}))),
        shown=tuple(data.get("shown", ())),
    )


def _bool(value: Any) -> bool:
    if not isinstance(value, bool):
        raise TypeError(f"{value!r} is not true or false")
    return value


def _finite(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not math.isfinite(value):
        raise TypeError(f"{value!r} is not a finite number")
    return float(value)


def _refuse_constant(name: str) -> float:
    raise ValueError(f"{name} is not JSON")


def _check_header(data: Any) -> None:
    if not isinstance(data, dict) or data.get("peira") != "episodes":
        raise UsageError("this is not a file of episodes (its first line is another)")
    if data.get("schema") != SCHEMA:
        raise UsageError(f"schema {data.get('schema')!r}; this version of peira reads schema {SCHEMA}")


# ---- files ------------------------------------------------------------------------------------------------------


@contextmanager
def _appearing(path: Path) -> Iterator[IO[str]]:
    """Give a text file beside ``path`` that takes its place when the block ends well, and vanishes otherwise."""
    scratch: Path | None = None
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
        scratch = Path(name)
        with os.fdopen(handle, "wb") as raw:
            packed: Any = raw
            if path.suffix == ".zst":
                packed = zstandard.ZstdCompressor(level=6).stream_writer(raw, closefd=False)
            text = TextIOWrapper(packed, encoding="ascii", newline="\n")
            yield text
            text.flush()
            text.detach()
            if packed is not raw:
                packed.close()
            raw.flush()
            os.fsync(raw.fileno())
        scratch.chmod(0o644)
        os.replace(scratch, path)
    except OSError as error:
        raise UsageError(
            f"cannot write {path}: {error.strerror or error}; free some space or choose another place"
        ) from error
    finally:
        if scratch is not None:
            with suppress(FileNotFoundError):
                scratch.unlink()


def _lines(path: Path) -> Generator[str, None, None]:
    """Yield a file's lines, whole ones only.

    Raises:
        UsageError: it cannot be opened, unpacked, or read as text.
    """
    try:
        with path.open("rb") as raw:
            stream: Any = zstandard.ZstdDecompressor().stream_reader(raw) if path.suffix == ".zst" else raw
            number = 0
            try:
                with TextIOWrapper(stream, encoding="ascii", newline="\n") as text:
                    for number, line in enumerate(text, start=1):
                        if not line.endswith("\n"):
                            raise UsageError(f"{path}, line {number} is cut short. Restore the file or collect again")
                        yield line
            except (zstandard.ZstdError, UnicodeDecodeError) as error:
                raise UsageError(f"{path}, after line {number}, is damaged ({error}); restore the file") from error
    except OSError as error:
        raise UsageError(f"cannot read {path}: {error.strerror or error}") from error
