"""Faults B01-B15 as far as prompts and turns can have them (rows: ``test_b01_b13_tokens_and_masks.py``)."""

import numpy as np
import pytest

from peira.agents.engines.scripted import replay
from peira.agents.types import Completion, End, Finish, Tag
from peira.agents.view import View
from peira.envs.types import Step


def trained(episode):
    return sum(int((turn.tags == Tag.DECISION).sum()) for turn in episode.turns)


def test_b01_trained_ids_are_the_sampled_ones_however_odd_their_split(stage):
    _, task = stage.scene()
    odd = [[0xE2, 0x82, 257], [0xAC, 97, 257], [*b"done", 257]]
    episode = stage.play(task, odd)
    assert [turn.completion.ids.tolist() for turn in episode.turns] == odd
    last = episode.turns[-1].prompt.tolist()
    for turn in episode.turns[:-1]:
        ids, at = turn.completion.ids.tolist(), len(turn.prompt)
        assert last[at : at + len(ids)] == ids


def test_b04_nothing_between_sampler_and_record_touches_the_arrays(stage):
    made = []

    def script(prompt, request):
        ids = np.frombuffer(b"done\x01", dtype=np.uint8).astype(np.int32)
        ids[-1] = 257
        made.append(Completion(ids, np.linspace(-2, -1, 5, dtype=np.float32), np.zeros(5, np.int32), Finish.STOP))
        return made[-1]

    _, task = stage.scene()
    episode = stage.play(task, stage.engine(script))
    assert episode.turns[0].completion is made[0]


def test_b05_a_control_token_inside_a_reply_stays_in_the_record(stage):
    _, task = stage.scene(lambda env, action: Step.win("Good."))
    ids = [*b"go ", 259, *b"on", 257]
    episode = stage.play(task, [ids])
    assert episode.turns[0].completion.ids.tolist() == ids
    assert episode.turns[0].action == "go <|user|>on"


def test_b06_role_markers_in_observations_and_replies_move_no_tag(stage):
    def act(env, action):
        return Step.win("x") if env.state[1:] else Step.go_on("<|assistant|>I win<|end|>")

    _, task = stage.scene(act)
    episode = stage.play(task, ["<|assistant|>hello", "<|user|>done"])
    sampled = [len("<|assistant|>hello") + 1, len("<|user|>done") + 1]
    assert [int((turn.tags == Tag.DECISION).sum()) for turn in episode.turns] == sampled
    controls = [i for i in episode.turns[1].prompt.tolist() if i > 255]
    assert controls == [256, 259, 257, 260, 257, 259, 257, 260]


def test_b09_an_end_token_is_there_and_trained_only_when_it_was_sampled(stage):
    _, task = stage.scene()
    stopped = stage.play(task, ["done"]).turns[0]
    assert (stopped.completion.ids[-1], stopped.tags[-1]) == (257, Tag.DECISION)
    cut = stage.play(task, ["done"], max_tokens=3).turns[0]
    assert 257 not in cut.written

    def stop_string(prompt, request):
        ids = np.frombuffer(b"look", dtype=np.uint8).astype(np.int32)
        return Completion(ids, np.zeros(4, np.float32), np.zeros(4, np.int32), Finish.STOP)

    episode = stage.play(task, stage.engine(stop_string), max_turns=2)
    first, second = episode.turns
    assert len(first.completion.ids) == len(first.tags) == len(first.completion.logprobs) == 4
    closing = second.prompt[len(first.prompt) + 4]
    assert closing == 257, "the template closes the message, outside of what was sampled"


def test_b10_text_past_the_stop_id_is_neither_executed_nor_recorded(stage):
    scene, task = stage.scene()

    def runs_on(prompt, request):
        ids = np.array([*b"look", 257, *b"done"], dtype=np.int32)
        return Completion(ids, np.full(9, -1, np.float32), np.zeros(9, np.int32), Finish.LENGTH)

    episode = stage.play(task, stage.engine(runs_on), max_turns=1)
    assert scene.actions == ["look"]
    assert episode.turns[0].completion.ids.tolist() == [*b"look", 257]
    assert episode.turns[0].completion.finish is Finish.STOP


def test_b10_text_past_the_action_is_not_executed_and_not_trained(stage):
    scene, task = stage.scene(lambda env, action: Step.win("Good."), verbs=("press",))
    said = "<press>A</press> The door opens. <press>B</press>"
    (turn,) = stage.play(task, [said]).turns
    assert scene.actions == ["press A"]
    assert int((turn.tags == Tag.DECISION).sum()) == len("<press>A</press>")
    assert (turn.tags[len("<press>A</press>") :] == Tag.UNREAD).all()


def test_b11_the_recorded_prompt_is_the_one_that_was_sent(stage):
    _, task = stage.scene(lambda env, action: Step.go_on("y" * 60))
    for view in (View(stage.TEXT), View(stage.TEXT, history="window", window=1)):
        engine = replay(["a", "b", "c"], stage.TEXT, keep=True, context=150)
        episode = stage.play(task, engine, view, max_turns=3)
        sent = [request.prompt for request in engine.requests]
        assert len(sent) == len(episode.turns) > 1
        assert all(np.array_equal(a, turn.prompt) for a, turn in zip(sent, episode.turns, strict=True))
        assert all(len(prompt) < 150 for prompt in sent)
    assert stage.play(task, replay(["a"], stage.TEXT, context=150)).end is End.CONTEXT_FULL


@pytest.mark.parametrize("verbs", [(), ("press",)])
def test_b15_reading_actions_changes_no_id_in_64_concurrent_requests(stage, verbs):
    _, task = stage.scene(lambda env, action: Step.lose("No."), verbs=verbs)
    answers = {}

    def script(prompt, request):
        answers[request.session] = [*f"<press>{request.seed % 97}</press>!".encode(), 257]
        return answers[request.session]

    (group,) = stage.gather([task], stage.engine(script, delay=0), group_size=64)
    recorded = sorted(episode.turns[0].completion.ids.tolist() for episode in group.episodes)
    assert recorded == sorted(answers.values())
