"""Codec: what is written reads back equal, small, atomically; damage is named by file and line."""

import json
import os
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

import peira
from peira.agents.codec import decode, encode, read, same, write
from peira.agents.types import Completion, End, Episode, FaultRecord, Finish, Group, Legal, Origin, Tag, Turn
from peira.tasks.task import Task
from peira.tools.errors import UsageError

numbers = st.floats(-1e6, 1e6)
texts = st.text(max_size=20)
ids = st.integers(0, 2**31 - 1)


@st.composite
def turns(draw, before=None):
    size = draw(st.integers(1, 6))
    row = lambda values: draw(st.lists(values, min_size=size, max_size=size))  # noqa: E731
    sampled = np.array(row(ids), dtype=np.int32)
    plain = draw(st.booleans())
    tail = draw(st.lists(ids, max_size=3))
    prompt = draw(st.lists(ids, max_size=8))
    if before is not None and draw(st.booleans()):
        prompt = [*before.prompt.tolist(), *before.written.tolist(), *prompt]
    logprobs = draw(hnp.arrays(np.float32, size, elements=st.floats(-100, 0, width=32)))
    legal = draw(st.none() | st.builds(Legal, st.booleans(), st.lists(ids, max_size=3).map(tuple)))
    return Turn(
        prompt=np.array(prompt, dtype=np.int32),
        completion=Completion(
            sampled, logprobs, np.array(row(st.integers(0, 3)), np.int32), draw(st.sampled_from(Finish))
        ),
        written=sampled if plain else np.array([*sampled.tolist(), *tail], dtype=np.int32),
        at=np.arange(size, dtype=np.int32),
        tags=np.array(row(st.sampled_from(Tag)), dtype=np.uint8),
        legal=legal,
        action=draw(texts),
        observation=draw(st.text(st.characters())),
        reward=draw(numbers),
        state_key=draw(texts),
        terminated=draw(st.booleans()),
        truncated=draw(st.booleans()),
        valid=draw(st.booleans()),
        reward_parts=draw(st.dictionaries(texts, numbers, max_size=2)),
        shown=tuple(draw(st.lists(texts, max_size=2))),
    )


@st.composite
def episodes(draw, task=None, first=None):
    made: list[Turn] = []
    for _ in range(draw(st.integers(0, 3))):
        made.append(draw(turns(made[-1] if made else None)))
    origin = draw(st.none() | st.builds(Origin, texts, numbers, st.integers(0, 9), st.integers(0, 9)))
    return Episode(
        task=task or draw(tasks),
        turns=tuple(made),
        score=draw(numbers),
        success=draw(st.booleans()),
        end=draw(st.sampled_from(End)),
        temperature=draw(st.floats(0, 2)),
        first_observation=first or draw(texts),
        seed=draw(st.integers(0, 2**63 - 1)),
        fingerprints={} if task else draw(st.dictionaries(texts, texts, max_size=2)),
        origin=origin,
    )


params = st.dictionaries(texts, st.none() | st.booleans() | st.integers() | texts | st.tuples(texts), max_size=2)
levels = st.none() | st.integers(0, 9)
tasks = st.builds(lambda seed, level, p: Task("w", seed, level, "train", tuple(sorted(p.items()))), ids, levels, params)


@st.composite
def groups(draw):
    task = draw(tasks)
    faults = st.builds(FaultRecord, st.just(task), texts, texts, st.integers(0, 9))
    members = draw(st.lists(episodes(task=task, first="Begin."), max_size=2))
    return Group(task, tuple(members), tuple(draw(st.lists(faults, max_size=2))))


def identical(first, second):
    """Compare deeply without the codec: arrays by type and content, everything else by ``==``."""
    if isinstance(first, np.ndarray):
        return first.dtype == second.dtype and np.array_equal(first, second)
    if isinstance(first, tuple):
        return len(first) == len(second) and all(map(identical, first, second))
    if isinstance(first, Completion | Turn | Episode | Group | FaultRecord):
        names = first.__dataclass_fields__
        return type(first) is type(second) and all(identical(getattr(first, n), getattr(second, n)) for n in names)
    return first == second


@given(episodes() | groups())
def test_records_read_back_equal(record):
    line = json.dumps(encode(record), allow_nan=False)
    back = decode(json.loads(line))
    assert identical(back, record)
    assert same(back, record)


@pytest.fixture(scope="module")
def played():
    return peira.rollout("sorting", "naive", n=3, level=4, actions="expanded")


@pytest.mark.parametrize("name", ["a.jsonl", "deep/er/a.jsonl.zst"])
def test_files_read_back_equal(tmp_path, played, name):
    assert write(tmp_path / name, played) == 3
    assert all(map(identical, read(tmp_path / name), played))
    assert [path.name for path in (tmp_path / name).parent.iterdir()] == [(tmp_path / name).name]
    assert write(tmp_path / name, []) == 0
    assert read(tmp_path / name) == []


def test_a_long_episode_costs_its_length_not_its_square(stage, tmp_path):
    _, task = stage.scene(limit=400)
    sizes = []
    for count in (100, 200):
        episode = stage.play(task, ["go"], max_turns=count)
        write(tmp_path / "a.jsonl", [episode])
        sizes.append(os.path.getsize(tmp_path / "a.jsonl") - sum(len(turn.state_key) for turn in episode.turns))
        (back,) = read(tmp_path / "a.jsonl")
        assert identical(back, episode)
        assert np.shares_memory(back.turns[-1].prompt, back.turns[-2].prompt)
    assert sizes[1] < 2.1 * sizes[0]


def test_log_probs_are_written_short_and_read_exactly(played):
    turn = replace(
        played[0].turns[0],
        completion=Completion(
            np.array([1], np.int32), np.array([-0.7], np.float32), np.zeros(1, np.int32), Finish.STOP
        ),
        tags=np.zeros(1, np.uint8),
        at=np.zeros(1, np.int32),
    )
    record = encode(replace(played[0], turns=(turn,)))
    assert record["turns"][0]["logprobs"] == [-0.7]
    assert decode(record).turns[0].completion.logprobs[0] == np.float32(-0.7)


@pytest.mark.parametrize("name", ["a.jsonl", "a.jsonl.zst"])
def test_a_file_cut_anywhere_is_refused(tmp_path, played, name):
    path = tmp_path / name
    write(path, played)
    whole = path.read_bytes()
    for size in range(0, len(whole) - 1, max(1, len(whole) // 40)):
        path.write_bytes(whole[:size])
        with pytest.raises(UsageError, match=name):
            read(path)


def lines_with(path, number, line):
    rows = path.read_text().splitlines(keepends=True)
    rows[number - 1] = line
    path.write_text("".join(rows))


@pytest.mark.parametrize(
    ("number", "line", "named"),
    [
        (2, "{\n", 2),
        (2, '{"kind": "tale"}\n', 2),
        (2, '{"kind": "episode"}\n', 2),
        (2, "[1]\n", 2),
        (2, "\n", 2),
        (3, '{"kind": "episode", "score": NaN}\n', 3),
        (1, '{"peira": "episodes", "schema": 99}\n', 1),
        (1, '{"other": 1}\n', 1),
        (5, '{"records": 2}\n', 5),
        (4, '{"records": 2}\n', 5),
    ],
)
def test_damage_is_named_by_file_and_line(tmp_path, played, number, line, named):
    path = tmp_path / "a.jsonl"
    write(path, played)
    lines_with(path, number, line)
    with pytest.raises(UsageError, match=f"a.jsonl, line {named}"):
        read(path)


def test_wrong_types_in_a_record_are_refused(played):
    for change in ({"success": 1}, {"score": True}, {"end": "gone"}, {"task": {"world": "w"}}):
        with pytest.raises((UsageError, KeyError, TypeError, ValueError)):
            decode({**encode(played[0]), **change})
    bad = encode(played[0])
    bad["turns"][0] = {**bad["turns"][0], "ids": [1, 2]}
    with pytest.raises((UsageError, ValueError)):
        decode(bad)


def test_writing_is_all_or_nothing(tmp_path, played):
    path = tmp_path / "a.jsonl"
    write(path, played[:1])
    before = path.read_bytes()
    with pytest.raises(UsageError, match="record 1 of task"):
        write(path, [played[0], replace(played[1], score=float("nan"))])
    assert path.read_bytes() == before

    def breaks():
        yield played[0]
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        write(path, breaks())
    assert path.read_bytes() == before
    assert list(tmp_path.iterdir()) == [path]
    with pytest.raises(UsageError, match="cannot read"):
        read(tmp_path / "none.jsonl")
    with pytest.raises(UsageError, match="cannot write"):
        write(path / "under a file.jsonl", played)
