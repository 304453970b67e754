"""Pains P002 and P063-P079 as far as the rollout can cause them."""

import threading
import time

import numpy as np
import pytest

from peira.agents.engines.scripted import replay
from peira.agents.text import ByteText
from peira.agents.types import Completion, End, Finish, Tag
from peira.agents.view import View
from peira.envs.types import Step


class Merging(ByteText):
    """Ids 300 and 301 decode to ``un`` and ``re``; ``unre`` encodes to 302."""

    vocab = 303

    def encode(self, text):
        return [302] if text == "unre" else super().encode(text)

    def decode(self, ids):
        pieces = {300: "un", 301: "re", 302: "unre"}
        return "".join(pieces.get(i) or super(Merging, self).decode([i]) for i in ids)


def test_p002_the_end_is_looked_at_after_the_action_was_carried_out(stage):
    def act(env, action):
        return Step.win("Score 3.", 3.0) if action == "submit" else Step.go_on("Found.")

    _, task = stage.scene(act)
    engine = replay(["search", "submit", "search"], stage.TEXT, keep=True)
    episode = stage.play(task, engine)
    assert len(engine.requests) == 2
    assert (episode.turns[-1].observation, episode.score) == ("Score 3.", 3.0)


def test_p063_ids_that_decode_to_a_word_with_another_encoding(stage):
    text = Merging()

    def script(prompt, request):
        ids = np.array([300, 301, 257], dtype=np.int32)
        return Completion(ids, np.array([-0.5, -0.7, -0.1], np.float32), np.zeros(3, np.int32), Finish.STOP)

    scene, task = stage.scene()
    first, second = stage.play(task, stage.engine(script), View(text), max_turns=2).turns
    assert scene.actions == ["unre", "unre"]
    assert first.completion.ids.tolist() == [300, 301, 257]
    assert first.completion.logprobs.tolist() == pytest.approx([-0.5, -0.7, -0.1])
    assert second.prompt[: len(first.prompt) + 3].tolist() == [*first.prompt.tolist(), 300, 301, 257]


def test_p064_exactly_the_returned_ids_are_decisions(stage):
    _, task = stage.scene()
    first, second = stage.play(task, ["look a", "done"]).turns
    assert int((first.tags == Tag.DECISION).sum()) == 7
    assert int((second.tags == Tag.DECISION).sum()) == 5
    between = second.prompt[len(first.prompt) + 7 :]
    assert stage.said(between) == "<|user|>You said look a.<|end|><|assistant|>"


def test_p065_reasoning_stays_in_an_appended_context_and_is_no_action(stage):
    scene, task = stage.scene()
    episode = stage.play(task, ["<think>abc</think>go east", "done"])
    assert scene.actions == ["go east", "done"]
    assert "<think>abc</think>go east" in stage.said(episode.turns[1].prompt)


def test_p066_the_first_end_id_ends_the_message(stage):
    class TwoEnds(ByteText):
        stop = (257, 256)

    def script(prompt, request):
        assert request.stop == (257, 256)
        ids = np.array([*b"hm", 256, 257, 257], dtype=np.int32)
        return Completion(ids, np.full(5, -1, np.float32), np.zeros(5, np.int32), Finish.STOP)

    _, task = stage.scene()
    turn = stage.play(task, stage.engine(script), View(TwoEnds()), max_turns=1).turns[0]
    assert turn.completion.ids.tolist() == [*b"hm", 256]
    assert turn.action == "hm"


def test_p069_an_end_the_loop_adds_is_no_decision_and_has_no_log_prob(stage):
    def stop_string(prompt, request):
        return Completion(np.array([*b"go"], np.int32), np.zeros(2, np.float32), np.zeros(2, np.int32), Finish.STOP)

    _, task = stage.scene()
    first, second = stage.play(task, stage.engine(stop_string), max_turns=2).turns
    assert len(first.completion.logprobs) == len(first.tags) == 2
    assert second.prompt[len(first.prompt) + 2] == 257


def test_p072_members_differ_reruns_agree_and_steps_differ(stage):
    def seeds(step):
        _, task = stage.scene()
        engine = replay(["go"], stage.TEXT, keep=True)
        stage.SCENES["p072"] = stage.Scene(stage.until_done)
        named = type(task).of(task.world, 0, scene="p072")
        stage.gather([named], engine, group_size=8, seed=step, max_turns=2)
        return {request.seed for request in engine.requests}

    first = seeds(7)
    assert len(first) == 16
    assert seeds(7) == first
    assert not seeds(8) & first


def test_p073_one_broken_episode_is_one_lost_episode(stage):
    broken = []

    def act(env, action):
        if len(env.state) == 2 and not broken:
            broken.append(env)
            raise RuntimeError("container died")
        return Step.win("Good.") if len(env.state) == 3 else Step.go_on("On.")

    scene, task = stage.scene(act)
    (group,) = stage.gather([task], replay(["go"], stage.TEXT), group_size=4, retries=0)
    assert (len(group.episodes), len(group.faults)) == (3, 1)
    assert "container died" in group.faults[0].error
    assert scene.opened == scene.closed == 4


def test_p073_an_interrupt_is_not_swallowed(stage):
    def act(env, action):
        raise KeyboardInterrupt

    scene, task = stage.scene(act)
    with pytest.raises(KeyboardInterrupt):
        stage.play(task, ["go"])
    assert scene.opened == scene.closed == 1


def test_p074_the_allowance_is_what_the_context_has_left(stage):
    _, task = stage.scene(first="b" * 86, act=lambda env, action: Step.go_on("zz"))
    engine = replay(["abc"], stage.TEXT, keep=True, context=100)
    episode = stage.play(task, engine, max_tokens=50)
    # 90 and the answer's 4 and the observation's message of 5 are 99: one id is left.
    assert [(len(request.prompt), request.max_tokens) for request in engine.requests] == [(90, 10), (99, 1)]
    assert [len(turn.completion.ids) for turn in episode.turns] == [4, 1]
    assert episode.end is End.CUT_OFF
    _, task = stage.scene(first="b" * 86, act=lambda env, action: Step.go_on("zzz"))
    engine = replay(["abc"], stage.TEXT, keep=True, context=100)
    episode = stage.play(task, engine, max_tokens=50)
    assert (episode.end, len(engine.requests), episode.turns[-1].truncated) == (End.CONTEXT_FULL, 1, True)


def test_p074_a_finished_episode_is_not_checked_again(stage):
    _, task = stage.scene(first="b" * 90, act=lambda env, action: Step.win("z" * 500))
    episode = stage.play(task, replay(["ab"], stage.TEXT, context=100))
    assert episode.end is End.SUCCESS


def test_p075_an_answer_that_comes_late_is_dropped(stage):
    release, late = threading.Event(), []

    def act(env, action):
        if not late:
            late.append(env)
            release.wait(20)
            return Step.win("Late.", 5.0)
        return Step.win("In time.", 1.0)

    scene, task = stage.scene(act, blocking=True)
    (group,) = stage.gather([task], replay(["go"], stage.TEXT), group_size=1, world_seconds=0.1)
    release.set()
    assert [episode.score for episode in group.episodes] == [1.0]
    assert [fault.where for fault in group.faults] == ["timeout"]
    assert scene.opened == scene.closed == 2


def test_p076_records_of_a_group_share_nothing_that_can_change(stage):
    _, task = stage.scene()
    (group,) = stage.gather([task], replay(["one", "done"], stage.TEXT), group_size=4)
    first = group.episodes[0]
    with pytest.raises(ValueError, match="read-only"):
        first.turns[0].prompt[0] = 1
    assert isinstance(first.turns, tuple)
    before = [turn.prompt.tolist() for turn in group.episodes[1].turns]
    assert before == [turn.prompt.tolist() for turn in first.turns]
    assert not np.shares_memory(first.turns[0].prompt, group.episodes[1].turns[0].prompt)


def test_p077_every_id_carries_the_version_that_made_it(stage):
    _, task = stage.scene()
    engine = stage.engine(lambda prompt, request: "go")

    def publish(turn):
        engine.load({}, engine.version + 1)

    engine.load({}, 3)
    episode = stage.play(task, engine, watch=publish, max_turns=3)
    assert [set(turn.completion.versions.tolist()) for turn in episode.turns] == [{3}, {4}, {5}]
    assert min(int(turn.completion.versions.min()) for turn in episode.turns) == 3


def test_p078_a_collection_returns_at_the_deadline_of_its_slowest_episode(stage):
    stuck, release = [], threading.Event()

    def act(env, action):
        if not stuck:
            stuck.append(env)
            release.wait(60)
        return Step.win("Good.")

    _, task = stage.scene(act, blocking=True)
    start = time.monotonic()
    (group,) = stage.gather([task], replay(["go"], stage.TEXT), group_size=16, episode_seconds=0.3, retries=0)
    release.set()
    assert time.monotonic() - start < 30
    assert (len(group.episodes), [fault.where for fault in group.faults]) == (15, ["timeout"])


def test_p079_answers_come_back_in_the_order_of_their_tasks(stage):
    tasks = [stage.scene(first=f"Query {i}.")[1] for i in range(6)]

    def script(prompt, request):
        return "done" if "Query 3" not in stage.said(prompt) else [97]

    groups = stage.gather(tasks, stage.engine(script, delay=0), group_size=2, max_turns=2)
    assert [group.episodes[0].first_observation for group in groups] == [f"Query {i}." for i in range(6)]
    assert [group.episodes[0].end for group in groups] == [End.CUT_OFF if i == 3 else End.SUCCESS for i in range(6)]
