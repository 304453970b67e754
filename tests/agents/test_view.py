"""View: prompts that grow by ids, windows, actions read and spelt, observations cut to size."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.agents.actions import ActionTable
from peira.agents.text import ByteText
from peira.agents.types import Completion, Finish, Tag
from peira.agents.view import View, clip
from peira.tasks.task import Task
from peira.tools.errors import Fault, UsageError

TEXT = ByteText()
FREE = {"legal": (), "free_text": True}


class World:
    """As much of a world as a view looks at."""

    name = "world"

    def __init__(self, verbs=(), native=()):
        self.verbs, self._native = verbs, native

    def native(self):
        return self._native


def completion(said, finish=Finish.STOP):
    ids = [*TEXT.encode(said), *(TEXT.stop if finish is Finish.STOP else ())] if isinstance(said, str) else said
    ids = np.array(ids, dtype=np.int32)
    return Completion(ids, np.zeros(len(ids), np.float32), np.zeros(len(ids), np.int32), finish)


def shown(ids):
    return TEXT.decode(ids.tolist())


def sorting():
    # Five items, so that every letter is one of them whatever the seed.
    task = Task.of("sorting", 0, level=5, actions="expanded")
    env = task.open()
    observation, info = task.start(env)
    table = ActionTable.build("sorting", env.native(), TEXT.encode, TEXT.vocab)
    return env, observation, info, table


def test_a_prompt_extends_the_last_one_and_the_old_one_stays():
    context = View(TEXT).open(World(), "Begin.", FREE)
    first = context.prompt(10_000)
    copy = first.copy()
    for index in range(300):
        done = completion(f"step {index}")
        before = context.prompt(1 << 20)
        context.take_in(context.read(done), f"answer {index}", FREE)
        after = context.prompt(1 << 20)
        assert np.array_equal(after[: len(before) + len(done.ids)], np.concatenate([before, done.ids]))
        assert not after.flags.writeable
    assert np.array_equal(first, copy)


def test_prompts_of_an_episode_share_their_memory():
    context = View(TEXT).open(World(), "x" * 1_000, FREE)
    first = context.prompt(10_000)
    context.take_in(context.read(completion("a")), "b", FREE)
    assert np.shares_memory(first, context.prompt(10_000))


def test_b01_b04_odd_splits_stand_in_the_next_prompt_as_sampled():
    view = View(TEXT, system="S")
    context = view.open(World(), "Begin.", FREE)
    odd = completion([0xC3, 0xA9, 0xFF, 258, 97, 257])
    before = context.prompt(1_000)
    reading = context.read(odd)
    assert np.array_equal(reading.written, odd.ids)
    context.take_in(reading, "ok", FREE)
    assert np.array_equal(context.prompt(1_000)[len(before) : len(before) + 6], odd.ids)


@pytest.mark.parametrize("said", ["<press>A</press>", "  <press> A </press>\n", "I press. <press>A</press>"])
def test_tags_are_actions(said):
    context = View(TEXT).open(World(("press", "pull")), "Begin. <press>", FREE)
    assert context.read(completion(said)).action == "press A"
    assert (context.read(completion(said)).tags == Tag.DECISION).all()


def test_b10_what_stands_behind_the_action_is_neither_carried_out_nor_trained():
    context = View(TEXT).open(World(("press",)), "<press>", FREE)
    said = "<press>A</press> It opens! <press>B</press>"
    reading = context.read(completion(said))
    assert reading.action == "press A"
    read = len("<press>A</press>")
    assert (reading.tags[:read] == Tag.DECISION).all()
    assert (reading.tags[read:] == Tag.UNREAD).all()
    assert len(reading.tags) == len(said) + 1
    assert len(reading.written) == len(said) + 1


def test_without_verbs_the_whole_text_is_the_action():
    context = View(TEXT).open(World(), "Begin.", FREE)
    assert context.read(completion("<press>A</press>")).action == "<press>A</press>"


@pytest.mark.parametrize("said", ["", "  \n", "<press>A"])
def test_a_turn_without_an_action_says_what_was_wrong(said):
    context = View(TEXT).open(World(("press",)), "Begin. <press>", FREE)
    reading = context.read(completion(said))
    assert reading.action is None
    assert reading.problem


def test_p038_a_cut_off_turn_has_neither_action_nor_problem():
    context = View(TEXT).open(World(("press",)), "<press>", FREE)
    reading = context.read(completion("<press>A</press>", Finish.LENGTH))
    assert (reading.action, reading.problem) == (None, None)


def test_verbs_that_the_world_does_not_explain_are_told_once():
    told = shown(View(TEXT).open(World(("press", "pull")), "Use <pull>X</pull>.", FREE).prompt(1_000))
    assert told.count("<press>...</press>") == 1
    assert "<pull>...</pull>" not in told
    assert "<|system|>" not in shown(View(TEXT).open(World(("pull",)), "Use <pull>X</pull>.", FREE).prompt(1_000))


def test_b60_the_first_observation_and_the_system_message_stand_in_the_prompt():
    context = View(TEXT, system="Play well.").open(World(), "A door.", FREE)
    assert shown(context.prompt(1_000)) == "<|begin|><|system|>Play well.<|end|><|user|>A door.<|end|><|assistant|>"


def played(view, count, env=None):
    context = view.open(env or World(("go",)), "Task: find it. <go>", FREE)
    for index in range(count):
        said = f"<go>{index}</go>" if index % 2 else f"<go>{index}"
        context.take_in(context.read(completion(said)), f"place {index}.", FREE)
    return context


@pytest.mark.parametrize("count", [0, 1, 2, 3, 7])
def test_b61_a_window_holds_the_task_and_the_last_actions_valid_or_not(count):
    prompt = shown(played(View(TEXT, history="window", window=2), count).prompt(10_000))
    assert prompt.startswith("<|begin|><|user|>Task: find it.")
    assert [f"place {i}." in prompt for i in range(count)] == [i >= count - 2 for i in range(count)]
    assert [f"<go>{i}" in prompt for i in range(count)] == [i >= count - 2 for i in range(count)]
    assert ("[Earlier turns left out: " in prompt) == (count > 2)


def test_p071_a_history_over_the_room_loses_its_oldest_turns_and_keeps_the_task():
    context = played(View(TEXT, history="window", window=5), 5)
    full = context.prompt(10_000)
    assert np.array_equal(context.prompt(len(full)), full)
    less = shown(context.prompt(len(full) - 1))
    assert "Task: find it." in less
    assert ["place 0." in less, "place 4." in less] == [False, True]
    bare = shown(context.prompt(85))
    assert "Task: find it." in bare
    assert ["place 3." in bare, "place 4." in bare] == [False, True]
    assert context.prompt(40) is None  # the newest observation does not fit: better no turn than a blind one
    appended = played(View(TEXT), 5)
    assert appended.prompt(len(appended.prompt(10_000)) - 1) is None


def test_native_actions_are_written_as_their_text_inside_one_message():
    env, observation, info, table = sorting()
    context = View(TEXT, table).open(env, observation, info)
    before = context.prompt(1_000)
    ids = [*TEXT.encode("Hm "), table.id_of("compare")]
    reading = context.read(completion(ids, Finish.ACTION))
    assert (reading.action, reading.native) == ("compare", True)
    assert reading.written.tolist() == TEXT.encode("Hm compare")
    assert reading.at.tolist() == [0, 1, 2, 3]
    answer, _, _, _, info = env.step("compare")
    context.take_in(reading, answer, info)
    assert shown(context.prompt(1_000)) == shown(before) + "Hm compare"
    assert context.legal.vocab is False
    assert context.legal.ids == tuple(table.id_of(name) for name in "ABCDE")


def test_native_actions_end_with_the_observation_in_the_same_message():
    env, observation, info, table = sorting()
    context = View(TEXT, table).open(env, observation, info)
    for name in ("compare", "A", "B"):
        ids, finish = context.spell(name)
        reading = context.read(completion(ids, finish))
        answer, _, _, _, info = env.step(reading.action)
        context.take_in(reading, answer, info)
    assert shown(context.prompt(1_000)).endswith(f"<|assistant|>compare A B{answer}")
    assert context.legal.vocab
    context.take_in(context.read(completion("compare A B please")), "No.", info)
    assert shown(context.prompt(1_000)).endswith("compare A B please<|end|><|user|>No.<|end|><|assistant|>")


def test_a_native_window_never_cuts_an_operation_in_two():
    env, observation, info, table = sorting()
    context = View(TEXT, table, history="window", window=1).open(env, observation, info)
    for name in ("compare", "A", "B", "compare", "A"):
        ids, finish = context.spell(name)
        reading = context.read(completion(ids, finish))
        answer, _, _, _, info = env.step(reading.action)
        context.take_in(reading, answer, info)
    prompt = shown(context.prompt(1_000))
    assert prompt.endswith("<|assistant|>compare A")
    assert prompt.count("compare A") == 1
    assert context.prompt(30) is None


def test_an_illegal_native_action_is_the_engines_fault():
    env, observation, info, table = sorting()
    context = View(TEXT, table).open(env, observation, info)
    with pytest.raises(Fault, match="no legal native action"):
        context.read(completion([table.id_of("A")], Finish.ACTION))
    reading = context.read(completion([table.id_of("compare")], Finish.ACTION))
    context.take_in(reading, "", env.step("compare")[4])
    with pytest.raises(UsageError, match="only these actions"):
        context.spell("done")


def test_a_view_without_the_worlds_actions_is_refused():
    env, observation, info, table = sorting()
    with pytest.raises(UsageError, match="peira policy expand"):
        View(TEXT).open(env, observation, info)
    plain = Task.of("sorting", 0, level=3)
    tags = plain.open()
    assert View(TEXT, table).open(tags, *plain.start(tags)).legal is None


words = st.text(st.characters(codec="ascii", exclude_characters="<>", categories=("L", "N", "P", "Zs")), min_size=1)


@given(words.map(str.strip).filter(bool), st.sampled_from(["press", "pull", ""]))
def test_what_is_spelt_is_read_back(arguments, verb):
    context = View(TEXT).open(World(("press", "pull")), "Begin.", FREE)
    action = f"{verb} {arguments}".strip()
    ids, finish = context.spell(action)
    assert context.read(completion(ids, finish)).action == action


def test_a_verb_without_arguments_is_spelt_and_read():
    context = View(TEXT).open(World(("press", "pull")), "Begin.", FREE)
    ids, finish = context.spell("pull")
    assert shown(ids) == "<pull></pull><|end|>"
    assert context.read(completion(ids, finish)).action == "pull"


def test_b64_a_megabyte_is_cut_with_a_marker():
    context = View(TEXT, observation_limit=1_000).open(World(), "Begin.", FREE)
    context.take_in(context.read(completion("cat big")), "a" * 500_000 + "z" * 500_000, FREE)
    prompt = shown(context.prompt(10_000))
    assert "[... 999000 characters left out ...]" in prompt
    assert context.observation.startswith("a" * 750)
    assert context.observation.endswith("z" * 250)


@given(st.text(), st.integers(16, 50))
def test_clip_keeps_short_texts_and_bounds_long_ones(text, limit):
    cut = clip(text, limit)
    assert cut == text if len(text) <= limit else len(cut) < limit + 50


def test_settings_of_a_view_are_checked_and_part_of_its_fingerprint():
    with pytest.raises(UsageError, match="Did you mean 'window'"):
        View(TEXT, history="windows")
    with pytest.raises(UsageError, match="at least 1"):
        View(TEXT, window=0)
    views = [View(TEXT), View(TEXT, history="window"), View(TEXT, history="window", window=3), View(TEXT, system="a")]
    assert len({view.fingerprint for view in views}) == 4
    assert View(TEXT).fingerprint == View(TEXT, window=9).fingerprint
