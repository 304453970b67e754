"""Whole runs: what is resumed equals what never stopped, weights provably arrive, rewriting does what EARL says."""

import asyncio
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import peira
from peira.agents import codec
from peira.agents.edits import Gains, counterfactual, insertable, nucleus
from peira.agents.policy import Policy
from peira.agents.policy.corpus import world_texts
from peira.agents.policy.new import new_policy
from peira.agents.types import Episode, Group, Tag
from peira.tools.errors import Fault, UsageError
from peira.training.credit import credit
from peira.training.delivery import deliver, probe_of
from peira.training.linearize import linearize_all
from peira.training.loop import train, trainer_of
from peira.training.recipe import Resolved, resolve
from peira.training.runs import steps_of
from peira.training.trainer import Trainer, TrainerState
from peira.training.warmstart import WarmStart, warm_start

SETTINGS: dict[str, Any] = {
    "world.id": "sorting",
    "world.levels": {"2": 1.0},
    "rollout.tasks": 4,
    "rollout.group_size": 4,
    "rollout.max_tokens": 6,
    "rollout.context": 192,
    "learner.lr": 1e-3,
    "learner.divergence": "none",
    "save_every": 1,
    "keep_episodes": 1,
}


@pytest.fixture(scope="module")
def policy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A nano policy that has seen enough demonstrations to end its episodes."""
    path = tmp_path_factory.mktemp("policy") / "nano"
    env = peira.make("sorting", actions="expanded")
    new_policy(path, size="nano", texts=world_texts(env), world="sorting", native=env.native())
    warm_start(path, "sorting", {}, WarmStart(player="naive", episodes=64, passes=12, levels={2: 1.0}, lr=4e-3))
    return path


def settings(policy: Path, **changes: Any) -> Resolved:
    return resolve("earl", [], {**SETTINGS, "policy.path": str(policy), **changes})


def trainer(policy: Path, **changes: Any) -> Trainer:
    return trainer_of(settings(policy, **changes).config, Policy.load(policy))


def tensors(folder: Path) -> Mapping[str, torch.Tensor]:
    return dict(Policy.load(folder / "policy").model().state_dict())


@pytest.mark.parametrize("stop", [1, 2])
def test_p105_a_resumed_run_is_the_unbroken_run(policy: Path, tmp_path: Path, stop: int) -> None:
    whole = train(settings(policy, steps=3), tmp_path / "whole")
    train(settings(policy, steps=stop), tmp_path / "broken")
    again = train(settings(policy, steps=3), tmp_path / "broken", resume=True)
    assert again.tokens == whole.tokens
    mine, theirs = tensors(whole.path), tensors(again.path)
    assert all(torch.equal(mine[name], theirs[name]) for name in mine)
    first, second = (steps_of(run.path / "metrics.jsonl", "train") for run in (whole, again))
    assert first == second
    for step in (1, 2, 3):
        name = f"episodes/{step:06d}.jsonl.zst"
        pairs = zip(codec.read(whole.path / name), codec.read(again.path / name), strict=True)
        assert all(codec.same(a, b) for a, b in pairs)


def test_a_checkpoint_of_another_run_is_refused(policy: Path, tmp_path: Path) -> None:
    train(settings(policy, steps=1), tmp_path / "run")
    with pytest.raises(UsageError, match="another run"):
        train(settings(policy, steps=2, **{"world.levels": {"3": 1.0}}), tmp_path / "run", resume=True)


def test_training_on_a_held_out_split_is_refused(policy: Path) -> None:
    with pytest.raises(UsageError, match="train"):
        trainer(policy, **{"world.split": "test", "evaluate.split": "train"})


def test_a_policy_of_another_world_is_refused(policy: Path) -> None:
    with pytest.raises(UsageError, match="calculator"):
        trainer(policy, **{"world.id": "calculator", "world.levels": {"0": 1.0}})


def samples_of(made: Trainer) -> list[Any]:
    groups, _, _ = asyncio.run(made._collect(TrainerState(), None))
    return linearize_all(credit(groups, made.crediting)[0])


def test_p098_b41_a_delivery_that_changes_nothing_is_an_error(policy: Path) -> None:
    made = trainer(policy)
    probe = probe_of(samples_of(made), made.learner.vocab)
    with pytest.raises(Fault, match="changed nothing"):
        asyncio.run(deliver(made.engine, made.learner, probe))


def test_p098_weights_that_do_not_arrive_are_noticed(policy: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = trainer(policy)
    samples = samples_of(made)
    assert made.learner.update(samples).skipped is None
    monkeypatch.setattr(made.engine, "load", lambda weights, version: None)
    with pytest.raises(Fault, match="did not arrive"):
        asyncio.run(deliver(made.engine, made.learner, probe_of(samples, made.learner.vocab)))


def test_b44_what_arrived_is_what_the_learner_says(policy: Path) -> None:
    made = trainer(policy)
    samples = samples_of(made)
    made.learner.update(samples)
    told = asyncio.run(deliver(made.engine, made.learner, probe_of(samples, made.learner.vocab)))
    assert told["delivery_moved"] > 0
    assert told["delivery_gap"] < 1e-4
    assert made.engine.version == made.learner.version


# ---- EARL's rewriting -----------------------------------------------------------------------------------------------


def collected(made: Trainer, scores: float | None) -> list[Group]:
    """Collect groups without rewriting; with ``scores`` every episode is given that score."""
    plain = replace(made, rewriting=None)
    groups, _, _ = asyncio.run(plain._collect(TrainerState(), None))
    if scores is None:
        return groups

    def judged(episode: Episode) -> Episode:
        *before, last = episode.turns
        silent = tuple(replace(turn, reward=0.0) for turn in before)
        return replace(episode, score=scores, turns=(*silent, replace(last, reward=scores)))

    return [replace(group, episodes=tuple(judged(e) for e in group.episodes)) for group in groups]


def rewritten(made: Trainer, groups: list[Group]) -> tuple[list[Group], Gains, dict[str, float]]:
    work = counterfactual(groups, made.engine, made.view, made.collecting.rollout(), Gains(), seed=5)
    return asyncio.run(work)


def test_earl_d_a_group_with_a_success_is_untouched(policy: Path) -> None:
    made = trainer(policy)
    groups = collected(made, 0.5)
    after, gains, told = rewritten(made, groups)
    assert all(a.episodes is b.episodes or a.episodes == b.episodes for a, b in zip(after, groups, strict=True))
    assert told["rewritten"] == 0
    assert gains == Gains()


def test_earl_d_e_a_failed_group_is_rewritten_with_one_forced_decision_each(policy: Path) -> None:
    made = trainer(policy)
    groups = collected(made, 0.0)
    after, gains, told = rewritten(made, groups)
    assert told["rewritten"] == sum(len(group.episodes) for group in groups)
    routing = {i for i, r in zip(made.view.actions.ids, made.view.actions.routing, strict=True) if r}
    credited, _ = credit(after, made.crediting)
    for group, weighed in zip(after, credited, strict=True):
        for episode, weights in zip(group.episodes, weighed.weights, strict=True):
            assert episode.origin is not None
            assert episode.origin.kind == "counterfactual"
            tags = np.concatenate([turn.tags for turn in episode.turns])
            ids = np.concatenate([turn.completion.ids for turn in episode.turns])
            (forced,) = np.flatnonzero(tags == Tag.FORCED)
            assert int(ids[forced]) in routing
            flat = np.concatenate(weights)
            assert flat[forced] == 0
            expected = episode.score - episode.origin.score
            np.testing.assert_allclose(flat[tags == Tag.DECISION], expected)
    assert set(gains.values) <= {"compare", "swap"}


def test_earl_gains_follow_what_forcing_brought() -> None:
    gains = Gains()
    np.testing.assert_allclose(gains.weights(["a", "b"]), [0.5, 0.5])
    gains = gains.told("a", 1.0)
    assert gains.values["a"] == pytest.approx(0.9 * 0.001 + 0.1 * 1.0)
    np.testing.assert_allclose(gains.weights(["a", "b"]), np.array([0.1009, 0.001]) / 0.1019)
    lost = Gains({"a": -1.0, "b": -2.0})
    np.testing.assert_allclose(lost.weights(["a", "b"]), [0.5, 0.5])


def test_earl_places_are_drawn_from_the_best_ten_and_their_nucleus() -> None:
    scores = -np.arange(20.0)
    chances = nucleus(scores, temperature=10.0, top_k=10, top_p=0.9)
    assert chances.sum() == pytest.approx(1.0)
    assert not chances[10:].any()
    weights = np.exp(-np.arange(10) / 10.0)
    weights /= weights.sum()
    kept = int(np.searchsorted(np.cumsum(weights), 0.9)) + 1
    np.testing.assert_allclose(chances[:kept], weights[:kept] / weights[:kept].sum())
    assert not chances[kept:].any()


def test_earl_only_plain_words_in_language_mode_can_be_replaced(policy: Path) -> None:
    made = trainer(policy)
    vocab = made.learner.vocab
    for group in collected(made, None):
        for episode in group.episodes:
            for turn, position in insertable(episode, vocab):
                assert episode.turns[turn].legal.vocab
                assert episode.turns[turn].completion.ids[position] < vocab
