"""Rollout: players, forks, replacement of lost members, and the entry for people."""

import asyncio
import time

import numpy as np
import pytest

import peira
from peira.agents.actions import ActionTable
from peira.agents.codec import same
from peira.agents.engines.scripted import Scripted, replay, table
from peira.agents.forking import Fork
from peira.agents.limits import RolloutSettings
from peira.agents.rollout import fork, gather_bounded
from peira.agents.types import End, Episode, FaultRecord, Finish, Tag
from peira.agents.view import View
from peira.envs.types import Step
from peira.tasks.task import Task
from peira.tools.errors import Fault, UsageError


def expanded(stage):
    # Five items, so that every letter is one of them whatever the seed.
    task = Task.of("sorting", 4, level=5, actions="expanded")
    actions = ActionTable.build("sorting", task.open().native(), stage.TEXT.encode, stage.TEXT.vocab)
    return task, actions, View(stage.TEXT, actions)


# ---- what stands in a turn -----------------------------------------------------------------------------------------


def test_the_records_of_two_turns(stage):
    _, task = stage.scene(
        lambda env, action: Step.win("Won.", 0.75, {"a": 0.5, "b": 0.25}) if action == "two" else Step.go_on("Next.")
    )
    episode = stage.play(task, ["one", "two"], seed=3)
    first, second = episode.turns
    assert stage.said(first.prompt) == "<|begin|><|user|>Begin.<|end|><|assistant|>"
    more = "one<|end|><|user|>Next.<|end|><|assistant|>"
    assert stage.said(second.prompt) == stage.said(first.prompt) + more
    assert stage.said(first.completion.ids) == "one<|end|>"
    assert first.completion.finish is Finish.STOP
    assert (first.state_key, second.state_key) == ("[]", "['one']")
    assert (second.reward, dict(second.reward_parts)) == (0.75, {"a": 0.5, "b": 0.25})
    assert (first.terminated, second.terminated, second.truncated) == (False, True, False)
    assert (episode.first_observation, episode.seed, episode.temperature) == ("Begin.", 3, 1.0)
    assert set(episode.fingerprints) == {"instance", "text", "template", "view"}


def test_a_native_episode_is_recorded_row_by_row(stage):
    task, actions, view = expanded(stage)
    rows = [[actions.id_of(name)] for name in ("compare", "A", "B")]
    episode = stage.play(task, [*rows, "done"], view)
    assert [turn.action for turn in episode.turns] == ["compare", "A", "B", "done"]
    assert [turn.completion.finish for turn in episode.turns] == [Finish.ACTION] * 3 + [Finish.STOP]
    assert [turn.legal.vocab for turn in episode.turns] == [True, False, False, True]
    assert episode.turns[1].legal.ids == tuple(actions.id_of(name) for name in "ABCDE")
    assert episode.turns[2].legal.ids == tuple(actions.id_of(name) for name in "BCDE")
    for earlier, later in zip(episode.turns, episode.turns[1:], strict=False):
        extended = np.concatenate([earlier.prompt, earlier.written])
        assert np.array_equal(later.prompt[: len(extended)], extended)


def test_every_turn_is_shown_to_the_watcher_as_it_is_made(stage):
    _, task = stage.scene()
    seen = []
    episode = stage.play(task, ["one", "done"], watch=seen.append)
    assert [a is b for a, b in zip(seen, episode.turns, strict=True)] == [True, True]


# ---- players -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("form", ["tags", "expanded"])
def test_demonstrations_are_tagged_and_spelt_as_a_model_would(stage, form):
    (episode,) = peira.rollout("sorting", "oracle", n=1, level=4, actions=form)
    assert (episode.end, episode.score) == (End.SUCCESS, 1.0)
    for turn in episode.turns:
        assert (turn.tags == Tag.EXPERT).all()
        assert not turn.completion.logprobs.any()
    heard = Task.of("sorting", 0, level=4, actions=form)
    assert episode.task.world == heard.world


def test_a_demonstration_read_by_an_engine_is_the_same_episode(stage):
    """What a player's actions were spelt into, sampled by an engine, leads to the same actions and observations."""
    task, _, view = expanded(stage)
    shown = stage.play(task, None, view, player="oracle")
    again = stage.play(task, [turn.completion.ids for turn in shown.turns], view)
    for a, b in zip(shown.turns, again.turns, strict=True):
        assert (a.action, a.observation, a.completion.finish) == (b.action, b.observation, b.completion.finish)
        assert np.array_equal(a.prompt, b.prompt)


def test_players_by_name_and_by_function():
    assert peira.rollout("sorting", "naive", n=2, level=3)[0].success
    chosen = peira.rollout("sorting", lambda env, rng: "done", n=2, level=3)
    assert [len(episode.turns) for episode in chosen] == [1, 1]
    first = peira.rollout("sorting", "random", n=3, level=3, seed=1)
    again = peira.rollout("sorting", "random", n=3, level=3, seed=1)
    other = peira.rollout("sorting", "random", n=3, level=3, seed=2)
    assert all(map(same, first, again))
    assert not any(map(same, first, other))
    with pytest.raises(UsageError, match="Did you mean 'oracle'"):
        peira.rollout("sorting", "oracel")


def test_a_player_that_breaks_is_a_fault(stage):
    _, task = stage.scene()

    def player(env, rng):
        raise KeyError("no plan")

    assert stage.play(task, None, player=player).where == "world"


def test_a_person_reads_and_types(stage):
    from peira.agents.baselines import Human

    _, task = stage.scene(legal=lambda env: (("look", "done"), True))
    typed, told = iter(["", "?", "look", "done"]), []
    episode = stage.play(task, None, player=Human(lambda prompt: next(typed), told.append))
    assert told == ["Begin.", "look, done", "You said look.", "Good."]
    assert [turn.action for turn in episode.turns] == ["look", "done"]


# ---- forks ---------------------------------------------------------------------------------------------------------


def test_a_fork_replays_then_forces_then_goes_on_policy(stage):
    task, actions, view = expanded(stage)
    row = {name: actions.id_of(name) for name in actions.names}
    old = stage.play(task, ["hm", *[[row[name]] for name in ("compare", "A", "B")], "done"], view)
    assert [turn.action for turn in old.turns] == ["hm"]
    engine = replay([[row["A"]], [row["B"]], "done"], stage.TEXT, keep=True, logprob=-0.25)
    new = stage.play(task, engine, view, seed=9, fork=Fork(old, 0, 1, force=row["compare"]))
    assert [turn.action for turn in new.turns] == ["compare", "A", "B", "done"]
    first = new.turns[0]
    assert first.completion.ids.tolist() == [ord("h"), row["compare"]]
    assert first.completion.logprobs.tolist() == [-1.0, 0.0]
    assert first.tags.tolist() == [Tag.DECISION, Tag.FORCED]
    assert first.completion.finish is Finish.ACTION
    assert stage.said(first.written) == "hcompare"
    assert len(engine.requests) == 3
    assert (new.origin.kind, new.origin.turn, new.origin.position) == ("counterfactual", 0, 1)
    assert new.origin.score == old.score
    assert all((turn.tags == Tag.DECISION).all() for turn in new.turns[1:])


def test_a_fork_in_the_middle_of_a_later_turn_keeps_what_was_sampled(stage):
    _, task = stage.scene()
    old = stage.play(task, ["one", "twist", "three", "done"], max_tokens=20)
    engine = replay([" end"], stage.TEXT, keep=True, logprob=-0.5)
    new = stage.play(task, engine, fork=Fork(old, 2, 3, force=ord("X")), max_turns=3, max_tokens=20)
    assert [turn.action for turn in new.turns] == ["one", "twist", "thrX end"]
    for k in range(2):
        assert new.turns[k].completion is old.turns[k].completion
    third = new.turns[2]
    assert third.completion.logprobs.tolist() == [-1.0, -1.0, -1.0, 0.0] + [-0.5] * 5
    assert third.tags.tolist() == [0, 0, 0, Tag.FORCED] + [0] * 5
    assert np.array_equal(engine.requests[0].prompt, np.concatenate([third.prompt, third.completion.ids[:4]]))
    assert engine.requests[0].max_tokens == 16


def test_a_fork_at_the_start_is_a_retry_and_behind_the_end_a_continuation(stage):
    _, task = stage.scene()
    old = stage.play(task, ["one", "two"], max_turns=2)
    again = stage.play(task, ["other", "done"], fork=Fork(old))
    assert ([t.action for t in again.turns], again.origin.kind) == (["other", "done"], "retry")
    longer = stage.play(task, ["done"], fork=Fork(old, 2))
    assert ([t.action for t in longer.turns], longer.origin.kind) == (["one", "two", "done"], "continuation")
    assert [turn.truncated for turn in longer.turns] == [False, False, False]
    assert longer.success


def test_a_fork_of_an_unparsed_turn_does_not_step_the_world(stage):
    scene, task = stage.scene(lambda env, action: Step.go_on(f"{action}!"), verbs=("press",))
    old = stage.play(task, ["<press>A", "<press>B</press>"], max_turns=3)
    scene.actions.clear()
    stage.play(task, ["<press>C</press>"], fork=Fork(old, 2), max_turns=3)
    assert scene.actions == ["press B", "press C"]


def test_a_world_that_answers_otherwise_when_replayed_is_a_fault(stage):
    calls = []
    _, task = stage.scene(lambda env, action: calls.append(1) or Step.go_on(str(len(calls))))
    old = stage.play(task, ["a", "b"], max_turns=2)
    made = stage.play(task, ["c"], fork=Fork(old, 1), max_turns=2)
    assert isinstance(made, FaultRecord)
    assert made.where == "world"
    assert "turn 0" in made.error


@pytest.mark.parametrize(
    ("turn", "position", "force", "message"),
    [(5, 0, None, "turn 5"), (0, 9, None, "position 9"), (-1, 0, None, "turn -1"), (2, 0, None, "has ended")],
)
def test_places_that_do_not_exist_are_refused(stage, turn, position, force, message):
    _, task = stage.scene()
    old = stage.play(task, ["one", "done"])
    with pytest.raises(UsageError, match=message):
        Fork(old, turn, position, force)


def test_an_illegal_forced_id_and_another_view_are_refused(stage):
    task, actions, view = expanded(stage)
    old = stage.play(task, ["hm"], view)
    with pytest.raises(UsageError, match="not legal"):
        stage.play(task, ["x"], view, fork=Fork(old, 0, 0, force=actions.id_of("A")))
    _, plain = stage.scene()
    old = stage.play(plain, ["a", "b"], max_turns=2)
    with pytest.raises(UsageError, match="another view"):
        stage.play(plain, ["c"], View(stage.TEXT, system="Other."), fork=Fork(old, 1))


def test_forks_differ_from_the_original_and_from_each_other(stage):
    _, task = stage.scene()
    old = stage.play(task, ["one", "done"])
    engine = stage.engine(lambda prompt, request: "done")
    made = asyncio.run(fork(old, 0, 0, engine=engine, view=View(stage.TEXT), settings=RolloutSettings(), n=4, seed=1))
    seeds = [request.seed for request in engine.requests]
    assert len(set(seeds)) == 4
    assert all(isinstance(episode, Episode) for episode in made)
    assert len({episode.seed for episode in made} | {old.seed}) == 5


# ---- collections ---------------------------------------------------------------------------------------------------


def test_progress_counts_members(stage):
    _, task = stage.scene()
    seen = []
    stage.gather([task, task], replay(["done"], stage.TEXT), group_size=3, progress=lambda *told: seen.append(told[1:]))
    assert seen == [(i, 6) for i in range(1, 7)]


def test_groups_of_equal_temperature_zero_members_are_warned_of(stage):
    _, task = stage.scene()
    with pytest.warns(UserWarning, match="temperature 0"):
        stage.gather([task], replay(["done"], stage.TEXT), group_size=2, temperature=0.0)


def test_bounded_gathering_keeps_order_and_width():
    running, most = 0, 0

    async def job(index):
        nonlocal running, most
        running += 1
        most = max(most, running)
        await asyncio.sleep(0.001 * (5 - index))
        running -= 1
        return index

    assert asyncio.run(gather_bounded([job(i) for i in range(5)], 2)) == [0, 1, 2, 3, 4]
    assert most == 2
    assert asyncio.run(gather_bounded([], 2)) == []


def test_the_first_error_of_a_gathering_stops_the_rest():
    stopped = []

    async def job(index):
        if index == 1:
            raise Fault("broken")
        try:
            await asyncio.sleep(3600)
        finally:
            stopped.append(index)

    with pytest.raises(Fault, match="broken"):
        asyncio.run(gather_bounded([job(i) for i in range(4)], 2))
    assert stopped == [0]


def test_a_blocking_world_holds_nobody_up(stage):
    def act(env, action):
        time.sleep(0.05)
        return Step.win("Done.")

    _, task = stage.scene(act, blocking=True)
    (group,) = stage.gather([task], replay(["go"], stage.TEXT), group_size=16)
    assert all(episode.success for episode in group.episodes)


# ---- the entry for people ------------------------------------------------------------------------------------------


def test_rollout_takes_an_engine_and_a_view(stage):
    pair = (table({"Sort": "done"}, stage.TEXT), View(stage.TEXT))
    episodes = peira.rollout("sorting", pair, n=3, level=2)
    assert [episode.turns[0].action for episode in episodes] == ["done"] * 3
    assert len({episode.task.key for episode in episodes}) == 3


def test_rollout_works_where_a_loop_is_running():
    async def notebook():
        return peira.rollout("sorting", "oracle", level=2)

    (episode,) = asyncio.run(notebook())
    assert episode.success


def test_rollout_says_what_was_wrong():
    with pytest.raises(UsageError, match="Did you mean 'sorting'"):
        peira.rollout("sortin", "oracle")
    with pytest.raises(UsageError, match="at least 1"):
        peira.rollout("sorting", "oracle", n=0)
    with pytest.raises(UsageError, match="no policy folder"):
        peira.rollout("sorting", "policies/none")
    with pytest.raises(UsageError, match="not int"):
        peira.rollout("sorting", 3)


def test_rollout_warns_of_lost_episodes_and_raises_when_all_are_lost(stage):
    scene, task = stage.scene(lambda env, action: 1 / 0 if env.instance % 2 else Step.win("Good."))
    with pytest.warns(UserWarning, match="episodes were lost; the first"):
        kept = peira.rollout(task.world, lambda env, rng: "go", n=12, **dict(task.params))
    assert 0 < len(kept) < 12
    scene.act = lambda env, action: 1 / 0
    with pytest.raises(Fault, match="ZeroDivisionError"):
        peira.rollout(task.world, lambda env, rng: "go", n=4, **dict(task.params))
    assert scene.opened == scene.closed


@pytest.mark.parametrize(
    "wrong",
    [{"max_tokens": 0}, {"concurrency": 0}, {"engine_seconds": 0}, {"temperature": float("nan")}, {"retries": -1}],
)
def test_limits_are_checked(wrong):
    with pytest.raises(UsageError, match=next(iter(wrong))):
        RolloutSettings(**wrong)


def test_scripted_engines_check_what_every_engine_checks(stage):
    engine = Scripted(lambda prompt, request: "x", stage.TEXT, context=4)
    _, task = stage.scene()
    with pytest.raises(Fault, match="no answer"):
        stage.gather([task], table({"nowhere": "x"}, stage.TEXT), group_size=1, retries=0)
    engine.load({}, 7)
    assert engine.version == 7
    asyncio.run(engine.close())
    assert stage.play(task, engine).end is End.CONTEXT_FULL
    assert stage.play(task, Scripted(lambda p, r: "x", stage.TEXT)).end is End.TURN_LIMIT
