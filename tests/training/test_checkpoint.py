"""Checkpoints: whole or not at all, of this run or refused, and a resumed run is the unbroken one."""

import errno
import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
import torch

from peira.agents.types import Tag
from peira.envs.seeding import rng
from peira.tools.errors import UsageError
from peira.training import checkpoint as module
from peira.training.checkpoint import Checkpoint, Checkpoints
from peira.training.control import Linear, Warmup
from peira.training.learner import Learner, LearnerSettings
from peira.training.reference import Reference, ReferenceSettings
from peira.training.types import Sample

VOCAB = 44


def saved(step=1, value=1.0):
    return Checkpoint(step, {"model": {"w": torch.full((3,), value)}}, {"step": step, "store": ["a", "b"]})


def files(folder):
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(Path(folder).rglob("*")) if p.is_file()}


# -- round trip -------------------------------------------------------------------------------------------------------


def test_what_is_loaded_is_what_was_saved(tmp_path):
    generator = torch.Generator().manual_seed(3)
    before = Checkpoint(
        7, {"generator": generator.get_state(), "moments": {0: {"step": torch.tensor(2.0)}}}, {"x": [1]}
    )
    checkpoints = Checkpoints(tmp_path / "deep" / "er", {"world": "sorting"})
    path = checkpoints.save(before)
    after = checkpoints.load()
    assert (after.step, after.state) == (7, {"x": [1]})
    assert torch.equal(after.tensors["generator"], before.tensors["generator"])
    assert after.tensors["moments"][0]["step"] == 2
    assert path == checkpoints.newest()


def test_newest_is_the_last_saved_not_the_highest_step(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=9)
    for step, value in ((6, 1.0), (9, 2.0), (6, 3.0)):
        checkpoints.save(saved(step, value))
    assert checkpoints.load().tensors["model"]["w"][0] == 3
    assert len(checkpoints.list()) == 3


def test_the_least_used_goes_first(tmp_path):
    checkpoints = Checkpoints(tmp_path, keep=2)
    first, second = checkpoints.save(saved(1)), checkpoints.save(saved(2))
    for age, path in ((20, first), (10, second)):
        os.utime(path, (1e9 - age, 1e9 - age))
    checkpoints.load(first)
    third = checkpoints.save(saved(3))
    assert checkpoints.list() == [first, third]
    assert files(tmp_path).keys() == {f"{p.name}/{f}" for p in (first, third) for f in os.listdir(p)}


def test_keep_is_at_least_one(tmp_path):
    with pytest.raises(UsageError, match="at least 1"):
        Checkpoints(tmp_path, keep=0)


# -- crashes ----------------------------------------------------------------------------------------------------------

KILLED = """
import os, signal, sys
import torch
from peira.training import checkpoint as module
from peira.training.checkpoint import Checkpoint, Checkpoints

moment = sys.argv[2]
def die(*_, **__):
    os.kill(os.getpid(), signal.SIGKILL)
if moment == "tensors":
    module.torch.save = lambda tensors, file: (file.write(b"half"), die())
elif moment == "manifest":
    module._flush = die
elif moment == "rename":
    module.os.rename = die
elif moment == "prune":
    module.shutil.rmtree = die
Checkpoints(sys.argv[1], keep=1).save(Checkpoint(2, {"w": torch.zeros(3)}, {}))
"""


@pytest.mark.parametrize(("moment", "step"), [("tensors", 1), ("manifest", 1), ("rename", 1), ("prune", 2)])
def test_p106_killed_while_saving_leaves_a_loadable_checkpoint(tmp_path, moment, step):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(saved(1))
    done = subprocess.run([sys.executable, "-c", KILLED, str(tmp_path), moment], capture_output=True, text=True)
    assert done.returncode == -9, done.stderr
    assert checkpoints.load().step == step
    checkpoints.save(saved(3))
    assert [p.name.split("-", 1)[1] for p in checkpoints.list()] == ["step-3"]
    assert not list(tmp_path.glob(".*")), "leftovers are swept"


@pytest.mark.parametrize("when", ["tensors", "state", "rename"])
def test_a_full_disk_leaves_everything_as_it_was(tmp_path, monkeypatch, when):
    checkpoints = Checkpoints(tmp_path, keep=1)
    checkpoints.save(saved(1))
    before = files(tmp_path)

    def full(*_):
        raise OSError(errno.ENOSPC, "No space left on device")

    if when == "tensors":
        monkeypatch.setattr(module._Counting, "_sink", full)
    elif when == "state":
        monkeypatch.setattr(module, "_write_bytes", full)
    else:
        monkeypatch.setattr(module.os, "rename", full)
    with pytest.raises(UsageError, match=r"No space left on device; the newest one is still .*step-1"):
        checkpoints.save(saved(2))
    monkeypatch.undo()
    assert files(tmp_path) == before
    assert checkpoints.load().step == 1


def test_state_that_is_not_json_changes_nothing(tmp_path):
    checkpoints = Checkpoints(tmp_path)
    checkpoints.save(saved(1))
    before = files(tmp_path)
    for state in ({"x": float("nan")}, {"x": {1, 2}}):
        with pytest.raises((TypeError, ValueError)):
            checkpoints.save(Checkpoint(2, {}, state))
    assert files(tmp_path) == before


# -- refusals ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ["tensors.pt", "state.json"])
@pytest.mark.parametrize("harm", ["truncate", "flip", "remove"])
def test_p108_damage_is_named_and_never_read_as_empty(tmp_path, name, harm):
    checkpoints = Checkpoints(tmp_path, keep=2)
    first, second = checkpoints.save(saved(1)), checkpoints.save(saved(2))
    victim = second / name
    data = victim.read_bytes()
    if harm == "truncate":
        victim.write_bytes(data[: len(data) // 2])
    elif harm == "flip":
        victim.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    else:
        victim.unlink()
    with pytest.raises(UsageError, match=rf"damaged: {name} .*The one before it is {first}"):
        checkpoints.load()
    assert checkpoints.load(first).step == 1


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"schema": 1, "files": {}, "identity": {}, "step": 1}', "{"])
def test_a_damaged_manifest_is_named(tmp_path, text):
    checkpoints = Checkpoints(tmp_path)
    path = checkpoints.save(saved(1))
    (path / "manifest.json").write_text(text)
    with pytest.raises(UsageError, match=r"manifest\.json"):
        checkpoints.load()


def test_missing_checkpoints_are_named(tmp_path):
    with pytest.raises(UsageError, match="no complete checkpoint"):
        Checkpoints(tmp_path).load()
    with pytest.raises(UsageError, match=r"manifest\.json is missing"):
        Checkpoints(tmp_path).load(tmp_path / "nowhere")


def test_another_run_is_refused_with_the_differences(tmp_path):
    Checkpoints(tmp_path, {"world": "sorting", "config": {"lr": 0.1, "clip": 0.2}}).save(saved(1))
    other = Checkpoints(tmp_path, {"world": "calculator", "config": {"lr": 0.1, "extra": True}})
    with pytest.raises(UsageError) as caught:
        other.load()
    text = str(caught.value)
    assert "world is 'sorting' there and 'calculator' here" in text
    assert "config.clip is only in the checkpoint" in text
    assert "config.extra is only in this run" in text
    assert "config.lr" not in text


def test_another_format_is_refused(tmp_path):
    path = Checkpoints(tmp_path).save(saved(1))
    manifest = json.loads((path / "manifest.json").read_text())
    (path / "manifest.json").write_text(json.dumps({**manifest, "schema": 99}))
    with pytest.raises(UsageError, match="format 99"):
        Checkpoints(tmp_path).load()


# -- resuming a learner -----------------------------------------------------------------------------------------------


def batch(step):
    """Samples that differ from step to step, ragged."""
    made = []
    for member in range(4):
        random = rng("checkpoint", step, member)
        length, decisions = 8 + 2 * member, 3 + member
        made.append(
            Sample(
                ids=random.integers(0, VOCAB, length).astype(np.int32),
                at=np.sort(random.choice(np.arange(1, length), decisions, replace=False)).astype(np.int32),
                targets=random.integers(0, VOCAB, decisions).astype(np.int32),
                logprobs=np.full(decisions, -2.0, dtype=np.float32),
                weights=random.normal(size=decisions).astype(np.float32),
                tags=np.full(decisions, Tag.DECISION, dtype=np.uint8),
                versions=np.zeros(decisions, dtype=np.int32),
                turns=np.zeros(decisions, dtype=np.int32),
                legal=np.full(decisions, -1, dtype=np.int32),
                legal_sets=(),
                temperature=1.0,
                group=f"task-{member // 2}",
                member=member,
            )
        )
    return made


def learner(models):
    model = models.llama()
    reference = Reference(model, ReferenceSettings(kind="ema", decay=0.9))
    settings = LearnerSettings(
        lr=Warmup(steps=4, then=Linear(start=0.01, steps=20)),
        epochs=2, minibatches=2, weight_decay=0.01, divergence={"coefficient": 0.1},
    )  # fmt: skip
    return Learner(model, reference, settings, VOCAB, seed=5)


@pytest.mark.parametrize("broken_at", [1, 3, 5])
def test_p105_p107_resumed_anywhere_equals_the_unbroken_run(tmp_path, models, broken_at):
    whole = learner(models)
    expected = [whole.update(batch(step)) for step in range(6)]

    first = learner(models)
    for step in range(broken_at):
        first.update(batch(step))
    Checkpoints(tmp_path).save(Checkpoint(broken_at, first.state(), {}))
    del first

    second = learner(models)
    second.restore(Checkpoints(tmp_path).load().tensors)
    got = [second.update(batch(step)) for step in range(broken_at, 6)]
    for a, b in zip(expected[broken_at:], got, strict=True):
        assert a == b, "losses, gradient norms, learning rates and every metric, bit for bit"
    for (name, a), (_, b) in zip(whole.model.named_parameters(), second.model.named_parameters(), strict=True):
        assert torch.equal(a, b), name


def test_a_saved_state_does_not_move_with_the_learner(models):
    one = learner(models)
    one.update(batch(0))
    state = one.state()
    moment = state["optimizer"]["state"][0]["exp_avg"].clone()
    one.update(batch(1))
    assert torch.equal(state["optimizer"]["state"][0]["exp_avg"], moment)
