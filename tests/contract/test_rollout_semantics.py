"""What an episode is, locked in one numbered place: for each way to end, the turns, tags, reward, end and success."""

import asyncio

import pytest

from peira.agents.engines.scripted import Scripted, replay
from peira.agents.episode import run_episode
from peira.agents.limits import RolloutSettings
from peira.agents.rollout import collect
from peira.agents.types import End, Episode, FaultRecord, Finish, Tag
from peira.agents.view import View
from peira.envs.types import Step
from peira.tools.errors import Fault, ToolRefusal, UsageError


def decisions(episode):
    return [(turn.tags == Tag.DECISION).all() for turn in episode.turns]


def test_01_a_prompt_longer_than_the_context_ends_the_episode_without_a_call(stage):
    scene, task = stage.scene(first="x" * 200)
    engine = stage.engine(lambda prompt, request: "done", context=100)
    episode = stage.play(task, engine)
    assert (episode.end, episode.turns, episode.success, episode.score) == (End.CONTEXT_FULL, (), False, 0.0)
    assert engine.requests == []
    assert scene.closed == 1


def test_02_a_turn_cut_by_length_takes_no_action_and_is_not_bad_format(stage):
    scene, task = stage.scene()
    episode = stage.play(task, ["look around", "done and more"], max_tokens=12)
    assert episode.end is End.CUT_OFF
    assert scene.actions == ["look around"]
    last = episode.turns[-1]
    assert (last.completion.finish, len(last.completion.ids)) == (Finish.LENGTH, 12)
    assert (last.action, last.observation, last.reward) == ("", "", 0.0)
    assert last.valid
    assert last.truncated
    assert not last.terminated
    assert stage.END not in last.completion.ids
    assert all(decisions(episode))


def test_03_at_the_turn_limit_the_last_action_is_carried_out(stage):
    scene, task = stage.scene()
    engine = replay(["one", "two", "three"], stage.TEXT, keep=True)
    episode = stage.play(task, engine, max_turns=2)
    assert scene.actions == ["one", "two"]
    assert len(engine.requests) == 2
    assert episode.end is End.TURN_LIMIT
    assert [turn.truncated for turn in episode.turns] == [False, True]
    assert episode.turns[-1].observation == "You said two."
    assert not episode.success
    solved = stage.play(task, ["one", "done"], max_turns=2)
    assert (solved.end, solved.success, solved.turns[-1].truncated) == (End.SUCCESS, True, False)


def test_04_an_unparsable_turn_is_answered_and_the_episode_goes_on(stage):
    scene, task = stage.scene(lambda env, action: Step.win("Yes."), verbs=("press",))
    episode = stage.play(task, ["<press>A", "<press>A</press>"])
    assert scene.actions == ["press A"]
    assert episode.end is End.SUCCESS
    first = episode.turns[0]
    assert (first.action, first.reward, first.valid, first.truncated) == ("", 0.0, False, False)
    assert "<press>" in first.observation
    assert stage.said(episode.turns[1].prompt).endswith(f"<|user|>{first.observation}<|end|><|assistant|>")
    assert all(decisions(episode))
    hopeless = stage.play(task, ["<press>A"], invalid_limit=3)
    assert (hopeless.end, len(hopeless.turns), hopeless.turns[-1].truncated) == (End.INVALID, 3, True)


def test_05_a_tool_refusal_is_an_observation(stage):
    def act(env, action):
        if action == "fetch":
            raise ToolRefusal("There is nothing to fetch; say look.")
        return Step.win("Seen.")

    _, task = stage.scene(act)
    episode = stage.play(task, ["fetch", "look"])
    assert [turn.observation for turn in episode.turns] == ["There is nothing to fetch; say look.", "Seen."]
    assert [turn.valid for turn in episode.turns] == [False, True]
    assert (episode.end, episode.score) == (End.SUCCESS, 1.0)


def test_06_a_world_that_dies_gives_a_fault_and_no_reward(stage):
    def act(env, action):
        if action == "break":
            raise RuntimeError("pipe lost")
        return Step.go_on("ok", 0.5)

    scene, task = stage.scene(act)
    made = stage.play(task, ["go", "break"])
    assert isinstance(made, FaultRecord)
    assert (made.where, made.turns) == ("world", 1)
    assert "RuntimeError: pipe lost" in made.error
    assert "/" not in made.error
    assert (scene.opened, scene.closed) == (1, 1)


def test_07_cancelling_stops_every_task_and_closes_every_world(stage):
    scene, task = stage.scene()
    engine = stage.engine(lambda prompt, request: "go", delay=3600)

    async def main():
        before = asyncio.all_tasks()
        work = asyncio.ensure_future(collect([task], engine, View(stage.TEXT), RolloutSettings(), group_size=8, seed=0))
        while engine.running < 8:
            await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work
        assert asyncio.all_tasks() == before
        assert engine.running == 0

    asyncio.run(main())
    assert (scene.opened, scene.closed) == (8, 8)


def test_08_a_group_of_equals_is_a_group(stage):
    _, task = stage.scene(lambda env, action: Step.lose("No."))
    (group,) = stage.gather([task], replay(["guess"], stage.TEXT), group_size=4)
    assert [(e.score, e.end, e.success) for e in group.episodes] == [(0.0, End.FAILURE, False)] * 4
    assert len({e.seed for e in group.episodes}) == 4
    assert group.faults == ()


def test_09_a_token_budget_shortens_the_last_turn_then_ends_the_episode(stage):
    _, task = stage.scene()
    engine = replay(["abcd"], stage.TEXT, keep=True)
    episode = stage.play(task, engine, budget=12)
    assert [request.max_tokens for request in engine.requests] == [12, 7, 2]
    assert [len(turn.completion.ids) for turn in episode.turns] == [5, 5, 2]
    assert episode.end is End.CUT_OFF
    exact = stage.play(task, ["abcd"], budget=10)
    assert (exact.end, len(exact.turns), exact.turns[-1].truncated) == (End.TOKEN_LIMIT, 2, True)


def test_10_an_error_of_the_person_is_raised_not_recorded(stage):
    def script(prompt, request):
        raise UsageError("no such model")

    scene, task = stage.scene()
    with pytest.raises(UsageError, match="no such model"):
        stage.gather([task], Scripted(script, stage.TEXT), group_size=4)
    assert scene.opened == scene.closed


def test_11_an_engine_that_breaks_gives_a_fault(stage):
    def script(prompt, request):
        raise Fault("out of memory", where="engine")

    scene, task = stage.scene()
    made = stage.play(task, Scripted(script, stage.TEXT))
    assert (made.where, made.error, made.turns) == ("engine", "out of memory", 0)
    assert scene.closed == 1


def test_12_a_deadline_gives_a_fault(stage):
    scene, task = stage.scene()
    slow = Scripted(lambda prompt, request: "done", stage.TEXT, delay=3600)
    made = stage.play(task, slow, engine_seconds=0.02)
    assert (made.where, made.turns) == ("timeout", 0)
    assert slow.running == 0
    assert scene.closed == 1
    again = stage.play(task, slow, episode_seconds=0.02)
    assert again.where == "timeout"


def test_13_success_is_what_the_world_says(stage):
    _, task = stage.scene(lambda env, action: Step.lose("Wrong.", 0.7))
    episode = stage.play(task, ["guess"])
    assert (episode.score, episode.success, episode.end) == (0.7, False, End.FAILURE)
    _, dear = stage.scene(lambda env, action: Step.win("Right.", -0.5))
    episode = stage.play(dear, ["guess"])
    assert (episode.score, episode.success, episode.end) == (-0.5, True, End.SUCCESS)


def test_14_a_deadline_does_not_swallow_a_cancellation(stage):
    _, task = stage.scene()
    slow = Scripted(lambda prompt, request: "done", stage.TEXT, delay=3600)

    async def main():
        work = asyncio.ensure_future(run_episode(task, slow, View(stage.TEXT), RolloutSettings(), seed=0))
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        work.cancel()
        with pytest.raises(asyncio.CancelledError):
            await work

    asyncio.run(main())


def test_15_the_same_arguments_give_the_same_episodes_whatever_the_concurrency(stage):
    from peira.agents.codec import same

    def script(prompt, request):
        return ["one", "two", "done"][request.seed % 3]

    _, task = stage.scene()
    runs = [
        stage.gather([task, task], stage.engine(script, delay=delay), group_size=6, seed=5, concurrency=width)
        for width, delay in ((1, None), (4, 0), (64, 0))
    ]
    for other in runs[1:]:
        assert all(same(a, b) for a, b in zip(runs[0], other, strict=True))
    assert {len(e.turns) for e in runs[0][0].episodes} != {1}
    assert [e.seed for e in runs[0][0].episodes] != [e.seed for e in runs[0][1].episodes]
    assert isinstance(runs[0][0].episodes[0], Episode)
