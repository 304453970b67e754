"""Faults B38, B49-B66 and pain P038 as far as the rollout can have them."""

import asyncio
import time

import numpy as np
import pytest

from peira.agents.engines.scripted import Scripted, replay
from peira.agents.rollout import RolloutSettings, collect
from peira.agents.types import Completion, End, FaultRecord, Finish, Tag
from peira.agents.view import View
from peira.envs.seeding import rng
from peira.envs.types import Step
from peira.tasks.task import Task
from peira.tools.errors import Fault, UsageError


def flaky(chance):
    """A world whose steps break by chance, the same way in every run."""
    count = [0]

    def act(env, action):
        count[0] += 1
        if rng("flaky", count[0]).random() < chance:
            raise ConnectionError("lost")
        return Step.win("Good.") if len(env.state) == 3 else Step.go_on("Go on.")

    return act


def test_b38_every_id_carries_the_version_of_the_weights_that_made_it(stage):
    _, task = stage.scene()
    engine = stage.engine(lambda prompt, request: "go")
    episode = stage.play(task, engine, watch=lambda turn: engine.load({}, engine.version + 1), max_turns=3)
    assert [set(turn.completion.versions.tolist()) for turn in episode.turns] == [{0}, {1}, {2}]


def test_p038_a_turn_cut_by_length_is_not_bad_format(stage):
    _, task = stage.scene(verbs=("press",))
    episode = stage.play(task, ["<press>A</press>"], max_tokens=8)
    assert (episode.end, episode.turns[0].valid, episode.turns[0].reward) == (End.CUT_OFF, True, 0.0)


def test_b49_broken_worlds_cost_their_episodes_and_groups_keep_their_size(stage):
    scene, task = stage.scene(flaky(0.2))
    groups = stage.gather([task, task], replay(["go"], stage.TEXT), group_size=8, retries=20)
    assert [len(group.episodes) for group in groups] == [8, 8]
    lost = sum(len(group.faults) for group in groups)
    assert lost > 0
    assert scene.opened == scene.closed == 16 + lost
    assert {fault.where for group in groups for fault in group.faults} == {"world"}


def test_b49_replacement_is_bounded(stage):
    def act(env, action):
        raise ConnectionError("lost")

    scene, bad = stage.scene(act)
    _, good = stage.scene()
    broken, whole = stage.gather([bad, good], replay(["done"], stage.TEXT), group_size=2, retries=3, concurrency=1)
    assert (len(broken.episodes), len(broken.faults), len(whole.episodes)) == (0, 8, 2)
    assert scene.opened == 8


def test_b50_an_engine_that_never_answers_surfaces_within_its_deadline(stage):
    _, task = stage.scene()
    start = time.monotonic()
    with pytest.raises(Fault, match="no completion within"):
        stage.gather([task], Scripted(lambda p, r: "done", stage.TEXT, delay=3600), engine_seconds=0.05, retries=0)
    assert time.monotonic() - start < 30


def test_b50_a_world_that_hangs_surfaces_within_its_deadline(stage):
    _, task = stage.scene(lambda env, action: time.sleep(30), blocking=True)
    made = stage.play(task, ["go"], world_seconds=0.05)
    assert (made.where, "0.1 s" in made.error) == ("timeout", True)


def test_b51_a_dead_engine_stops_the_collection(stage):
    calls = []

    def script(prompt, request):
        calls.append(1)
        raise ConnectionRefusedError("port 8000")

    _, task = stage.scene()
    with pytest.raises(Fault, match="ConnectionRefusedError: port 8000") as caught:
        stage.gather([task] * 4, Scripted(script, stage.TEXT), group_size=4, retries=5)
    assert caught.value.where == "engine"
    assert len(calls) < 2 * 16, "one attempt for each member says enough; those in flight may finish"


def test_b52_nothing_of_a_lost_attempt_is_in_its_replacement(stage):
    attempts = []

    def act(env, action):
        if len(env.state) == 2 and not attempts:
            attempts.append(list(env.state))
            raise ConnectionError("lost")
        return Step.win("Good.") if len(env.state) == 2 else Step.go_on("Go on.")

    _, task = stage.scene(act)
    engine = stage.engine(lambda prompt, request: f"try {request.seed}")
    (group,) = stage.gather([task], engine, group_size=1)
    (episode,) = group.episodes
    lost = set(attempts[0])
    assert len(lost) == 2
    assert lost.isdisjoint(turn.action for turn in episode.turns)
    prompt = stage.said(episode.turns[1].prompt)
    assert not any(action in prompt for action in lost)
    assert (group.faults[0].turns, len(episode.turns)) == (1, 2)


def test_b53_a_broken_trial_is_never_an_episode(stage):
    calls = []

    def act(env, action):
        calls.append(1)
        if len(calls) % 2:
            raise MemoryError
        return Step.win("Good.")

    _, task = stage.scene(act)
    (group,) = stage.gather([task], replay(["go"], stage.TEXT), group_size=4, concurrency=1, retries=9)
    assert [episode.score for episode in group.episodes] == [1.0] * 4
    assert len(group.faults) == len(calls) - 4 > 0
    assert all(isinstance(fault, FaultRecord) and not hasattr(fault, "score") for fault in group.faults)


def test_b54_worlds_are_stepped_once_per_turn_and_not_after_their_end(stage):
    def act(env, action):
        return Step.win("x") if len(env.state) > env.instance % 4 else Step.go_on("y")

    scene, task = stage.scene(act)
    tasks = [Task.of(task.world, seed, **dict(task.params)) for seed in range(8)]
    engine = replay(["go"], stage.TEXT, keep=True)
    groups = stage.gather(tasks, engine, group_size=2)
    turns = sum(len(episode.turns) for group in groups for episode in group.episodes)
    assert len(scene.actions) == len(engine.requests) == turns
    assert len({len(group.episodes[0].turns) for group in groups}) > 1


def test_b55_members_that_start_apart_are_refused(stage):
    starts = iter(range(10))
    _, task = stage.scene(begin=lambda env: f"Room {next(starts)}.")
    with pytest.raises(UsageError, match="different starts"):
        stage.gather([task], replay(["done"], stage.TEXT), group_size=2)


def test_b58_every_trial_has_a_world_of_its_own(stage):
    _, task = stage.scene(lambda env, action: Step.win(str(env.state)) if len(env.state) == 2 else Step.go_on("."))
    (group,) = stage.gather([task], replay(["a", "b"], stage.TEXT), group_size=3, concurrency=1)
    assert [episode.turns[-1].observation for episode in group.episodes] == ["['a', 'b']"] * 3


def test_b59_world_text_template_and_view_are_recorded_with_every_episode(stage):
    _, task = stage.scene()
    view = View(stage.TEXT)
    prints = stage.play(task, ["done"], view).fingerprints
    assert prints["text"] == task.open().text_version()
    assert prints["template"] == stage.TEXT.fingerprint
    assert prints["view"] == view.fingerprint
    other = stage.play(task, ["done"], View(stage.TEXT, system="Hm.")).fingerprints
    assert other["view"] != prints["view"]


def test_b60_the_reset_observation_is_in_every_prompt(stage):
    _, task = stage.scene(first="You see a red door.")
    for view in (View(stage.TEXT), View(stage.TEXT, history="window", window=1)):
        episode = stage.play(task, ["a", "b", "c", "done"], view)
        assert all("You see a red door." in stage.said(turn.prompt) for turn in episode.turns)


def test_b61_the_prompt_holds_the_last_actions_valid_or_not(stage):
    def act(env, action):
        return Step.refuse("What?") if action.startswith("bad") else Step.go_on("Yes.")

    _, task = stage.scene(act)
    said = ["ok 0", "bad 1", "ok 2", "bad 3", "bad 4"]
    episode = stage.play(task, said, View(stage.TEXT, history="window", window=2), max_turns=5)
    for k, turn in enumerate(episode.turns):
        prompt = stage.said(turn.prompt)
        assert [action in prompt for action in said[:k]] == [i >= k - 2 for i in range(k)]


def test_b63_cancelled_work_stops_in_the_engine(stage):
    scene, task = stage.scene()
    engine = stage.engine(lambda prompt, request: "go", delay=3600)

    async def main():
        settings = RolloutSettings(concurrency=4)
        work = asyncio.ensure_future(collect([task], engine, View(stage.TEXT), settings, group_size=9, seed=0))
        while engine.running < 4:
            await asyncio.sleep(0)
        work.cancel()
        await asyncio.wait([work])

    asyncio.run(main())
    assert engine.running == 0
    assert scene.opened == scene.closed == 4
    assert sorted(engine.released) == sorted({request.session for request in engine.requests})


def test_b63_cancelling_gets_through_to_an_engine_that_never_waits(stage):
    _, task = stage.scene()

    async def main():
        work = asyncio.ensure_future(
            collect([task], replay(["done"], stage.TEXT), View(stage.TEXT), RolloutSettings(), group_size=10**5, seed=0)
        )
        await asyncio.sleep(0.05)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())


def test_b64_a_megabyte_of_observation_is_cut_and_the_episode_ends_cleanly(stage):
    _, task = stage.scene(lambda env, action: Step.go_on("m" * 1_000_000) if len(env.state) == 1 else Step.win("Good."))
    episode = stage.play(task, ["cat", "done"])
    assert episode.end is End.SUCCESS
    assert "[... 983616 characters left out ...]" in stage.said(episode.turns[1].prompt)
    assert len(episode.turns[0].observation) < 20_000
    assert all((turn.tags == Tag.DECISION).all() for turn in episode.turns)
    small = stage.play(task, replay(["cat", "done"], stage.TEXT, context=4_096))
    assert (small.end, len(small.turns), small.turns[0].truncated) == (End.CONTEXT_FULL, 1, True)


def test_b65_echoing_the_prompt_earns_nothing(stage):
    """The example of the format stands in the prompt; only the model's own words are read."""
    _, task = stage.scene(
        lambda env, action: Step.win("Right.") if action == "answer 42" else Step.lose("Wrong."),
        first="Answer as in <answer>42</answer>.",
        verbs=("answer",),
    )
    episode = stage.play(task, ["I do not know."])
    assert (episode.turns[0].action, episode.score) == ("I do not know.", 0.0)


def test_b66_every_world_is_closed_however_its_episode_went(stage):
    def act(env, action):
        fate = len(scene.actions) % 4
        if fate == 0:
            raise RuntimeError("broken")
        return [Step.win("w"), Step.lose("l"), Step.refuse("r")][fate - 1]

    def close(env):
        raise OSError("already gone")

    scene, task = stage.scene(act, close=close)
    groups = stage.gather([task] * 10, replay(["go"], stage.TEXT), group_size=10, max_turns=3)
    assert scene.opened == scene.closed >= 100
    ends = {episode.end for group in groups for episode in group.episodes}
    assert {End.SUCCESS, End.FAILURE} <= ends
    assert any(group.faults for group in groups)


def test_b53_nan_log_probs_are_a_fault_not_a_sample(stage):
    def script(prompt, request):
        ids = np.array([*b"ok", 257], dtype=np.int32)
        return Completion(ids, np.array([-1, np.nan, -1], np.float32), np.zeros(3, np.int32), Finish.STOP)

    _, task = stage.scene()
    made = stage.play(task, stage.engine(script))
    assert (made.where, "not finite" in made.error) == ("engine", True)
