"""The household world against the description of the real engine's interface, in houses made by hand and drawn ones."""

from collections import Counter
from itertools import combinations, pairwise, permutations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from peira.envs.check import check
from peira.envs.household import Household, Instance, houses, native
from peira.envs.household import vocabulary as words
from peira.envs.seeding import rng
from peira.envs.spec import make
from peira.tools.errors import UsageError

TASKS = ("place", "light", "clean", "heat", "cool", "two")


def kitchen(task="heat", goal="put a hot apple in countertop", target="apple", place="countertop"):
    """Two stacked drawers; everything else by itself."""
    receptacles = ("countertop 1", "drawer 2", "drawer 1", "fridge 1", "microwave 1", "sinkbasin 1")
    objects = ("apple 2", "apple 1", "bowl 1", "knife 1", "mug 1", "spoon 1")
    return Instance(task, goal, target, place, receptacles, (0, 1, 1, 2, 3, 4), objects, (3, 0, 0, 0, 5, 2))


def bedroom(task="light", target="book", place="desklamp"):
    return Instance(
        task, "look at book under the desklamp", target, place, ("bed 1", "desk 1", "dresser 1"), (0, 1, 2),
        ("book 1", "desklamp 1", "pen 1"), (0, 1, 1),
    )  # fmt: skip


def started(instance, **params):
    env = make("household", **params)
    env.reset(seed=0, options={"instance": instance})
    return env


def said(env, *commands):
    return [env.step(command)[0] for command in commands]


# ---- sentences --------------------------------------------------------------------------------------------------


def test_first_observation_lists_every_receptacle_and_the_task():
    env = make("household")
    observation, info = env.reset(seed=0, options={"instance": kitchen()})
    assert observation == (
        "-= Welcome to TextWorld, ALFRED! =-\n\nYou are in the middle of a room. Looking quickly around you, you see "
        "a countertop 1, a drawer 2, a drawer 1, a fridge 1, a microwave 1, and a sinkbasin 1.\n\n"
        "Your task is to: put a hot apple in countertop."
    )
    assert info["legal"] == (
        "go to countertop 1", "go to drawer 1", "go to drawer 2", "go to fridge 1", "go to microwave 1",
        "go to sinkbasin 1", "help", "inventory", "look",
    )  # fmt: skip


def test_what_each_command_prints():
    env = started(kitchen())
    script = {
        "look": "You are in the middle of a room. Looking quickly around you, you see nothing.",
        "inventory": "You are not carrying anything.",
        "go to countertop 1": "You arrive at countertop 1. On the countertop 1, you see a apple 1, a bowl 1, and a "
        "knife 1.",
        "examine countertop 1": "On the countertop 1, you see a apple 1, a bowl 1, and a knife 1.",
        "take bowl 1 from countertop 1": "You pick up the bowl 1 from the countertop 1.",
        "examine bowl 1": "This is a normal bowl 1. In it, you see nothing.",
        "move bowl 1 to countertop 1": "You move the bowl 1 to the countertop 1.",
        "take apple 1 from countertop 1": "You pick up the apple 1 from the countertop 1.",
        "examine apple 1": "There's nothing special about apple 1.",
        "go to microwave 1": "You arrive at microwave 1. The microwave 1 is closed.",
        "heat apple 1 with microwave 1": "You heat the apple 1 using the microwave 1.",
        "open microwave 1": "You open the microwave 1. The microwave 1 is open. In it, you see nothing.",
        "close microwave 1": "You close the microwave 1.",
        "inventory ": "You are carrying: a apple 1.",
        "go to drawer 1": "You arrive at drawer 1. The drawer 1 is closed.",
        "open drawer 1": "You open the drawer 1. The drawer 1 is open. In it, you see a spoon 1.",
        "open drawer 2": "You open the drawer 2. The drawer 2 is open. In it, you see nothing.",
        " look": "You are facing the drawer 2, and drawer 1. Next to it, you see nothing.",
        "go to sinkbasin 1": "You arrive at sinkbasin 1. On the sinkbasin 1, you see a mug 1.",
    }
    assert said(env, *script) == list(script.values())


def test_temperature_cleanliness_and_slices_in_all_combinations():
    env = started(kitchen(task="place", target="apple", place="sinkbasin"))
    said(env, "go to countertop 1", "take knife 1 from countertop 1")
    assert said(env, "slice apple 1 with knife 1") == ["You sliced the apple 1 with the knife 1."]
    assert said(env, "slice apple 1 with knife 1") == ["You sliced the apple 1 with the knife 1."]
    said(env, "move knife 1 to countertop 1", "take apple 1 from countertop 1")
    assert said(env, "examine apple 1") == ["This is a sliced apple 1."]
    said(env, "go to fridge 1", "cool apple 1 with fridge 1")
    assert said(env, "examine apple 1") == ["This is a cool sliced apple 1."]
    said(env, "go to sinkbasin 1", "clean apple 1 with sinkbasin 1")
    assert said(env, "examine apple 1") == ["This is a cool and clean sliced apple 1."]
    said(env, "go to microwave 1", "heat apple 1 with microwave 1")
    assert said(env, "examine apple 1") == ["This is a hot and clean sliced apple 1."]
    whole = started(kitchen(task="place", target="apple", place="sinkbasin"))
    said(whole, "go to countertop 1", "take apple 1 from countertop 1", "go to fridge 1", "cool apple 1 with fridge 1")
    assert said(whole, "examine apple 1") == ["This is a cold apple 1."]
    said(whole, "go to microwave 1", "heat apple 1 with microwave 1")
    assert said(whole, "examine apple 1") == ["This is a hot apple 1."]
    said(whole, "go to sinkbasin 1", "clean apple 1 with sinkbasin 1")
    assert said(whole, "examine apple 1") == ["This is a hot and clean apple 1."]


def test_lamps_say_they_turn_on_every_time_unless_sane():
    for wording, second in (("real", "You turn on the desklamp 1."), ("sane", "The desklamp 1 is already on.")):
        env = started(bedroom(), wording=wording)
        assert said(env, "go to desk 1", "use desklamp 1", "use desklamp 1")[1:] == [
            "You turn on the desklamp 1.",
            second,
        ]


def test_sane_wording_remembers_the_room_and_shows_what_containers_hide():
    env = started(kitchen(task="place", target="spoon"), wording="sane")
    assert "you see a countertop 1, a drawer 2," in said(env, "look")[0]
    said(env, "go to sinkbasin 1", "take mug 1 from sinkbasin 1", "clean mug 1 with sinkbasin 1")
    assert said(env, "examine mug 1") == ["This is a clean mug 1."]
    assert said(started(kitchen()), "look") == [
        "You are in the middle of a room. Looking quickly around you, you see nothing."
    ]


def test_moved_between_neighbours_it_lies_next_to_them_for_the_real_engine():
    env = started(kitchen())
    said(env, "go to drawer 1", "open drawer 1", "open drawer 2", "take spoon 1 from drawer 1")
    said(env, "move spoon 1 to drawer 2")
    assert said(env, "look") == ["You are facing the drawer 2, and drawer 1. Next to it, you see a spoon 1."]


# ---- what is admissible -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "command",
    [
        "go to countertop 1",  # already there
        "Go to fridge 1",
        "go to fridge",
        "go to fridge 2",
        "go to the fridge 1",
        "take apple 2 from fridge 1",  # not here
        "take apple 2 from countertop 1",  # not in it
        "open countertop 1",
        "open fridge 1",
        "close fridge 1",
        "examine apple 1",  # not in hand
        "examine apple 2",
        "heat apple 1 with microwave 1",
        "put apple 1 in/on countertop 1",
        "move apple 1 to countertop 1",  # not in hand
        "slice apple 1 with knife 1",
        "use apple 1",
        "go to fridge 1 then look",
        "take apple 1 from countertop 1.",
        "",
        "examine",
    ],
)
def test_inadmissible_commands_do_nothing_and_say_so(command):
    env = started(kitchen())
    env.step("go to countertop 1")
    before, key = env.state, env.state_key()
    observation, reward, terminated, _, info = env.step(command)
    assert (observation, reward, terminated, info["valid"]) == ("Nothing happens.", 0.0, False, False)
    assert (env.state, env.state_key()) == (before, key)
    assert command not in info["legal"]


def test_admissible_are_exactly_the_commands_that_do_something():
    """Every command that could be said of the names in the house, tried one by one."""
    env = started(kitchen())
    chance = rng("all commands")
    rooms, things = env.instance.receptacles, env.instance.objects
    everything = ["look", "inventory", "help"]
    everything += [f"{verb} {room}" for verb in ("go to", "open", "close", "examine") for room in rooms]
    everything += [f"{verb} {thing}" for verb in ("examine", "use") for thing in things]
    everything += [f"take {thing} from {room}" for thing in things for room in rooms]
    everything += [f"move {thing} to {room}" for thing in things for room in rooms]
    everything += [
        f"{verb} {thing} with {room}" for verb in ("heat", "cool", "clean") for thing in things for room in rooms
    ]
    everything += [f"slice {one} with {two}" for one in things for two in things]
    for _ in range(60):
        does = {command for command in everything if env.fork().step(command)[4]["valid"]}
        assert set(env.legal()) == does
        assert list(env.legal()) == sorted(does)
        safe = [one for one in sorted(does) if not env.fork().step(one)[2]]
        busy = [one for one in safe if one.split()[0] in ("take", "move", "open")] if chance.random() < 0.6 else safe
        env.limit = 1_000
        env.step((busy or safe)[int(chance.integers(len(busy or safe)))])


def test_heating_and_cooling_work_through_closed_doors_and_exclude_each_other():
    env = started(kitchen(task="place", target="apple", place="sinkbasin"))
    said(env, "go to countertop 1", "take apple 1 from countertop 1", "go to microwave 1")
    assert "heat apple 1 with microwave 1" in env.legal()
    env.step("heat apple 1 with microwave 1")
    env.step("go to fridge 1")
    env.step("cool apple 1 with fridge 1")
    assert (env.state.hot, env.state.cool) == (0, 1 << env.instance.objects.index("apple 1"))


@pytest.mark.parametrize("actions", ["tags", "expanded"])
@pytest.mark.parametrize("task", TASKS)
def test_each_task_ends_when_its_goal_holds_and_not_before(task, actions):
    env = make("household", task=task, actions=actions)
    for seed in range(12):
        env.reset(seed=seed, options={"level": 1 + seed % 6})
        plan = env.oracle()
        rows = [env.step(action) for action in plan]
        assert [row[1:3] for row in rows] == [(0.0, False)] * (len(plan) - 1) + [(1.0, True)]
        assert rows[-1][4]["success"] is True


def test_two_must_be_in_the_same_receptacle():
    instance = Instance(
        "two", "put two pen in drawer", "pen", "drawer", ("desk 1", "drawer 2", "drawer 1"), (0, 1, 2),
        ("pen 2", "pen 1"), (0, 0),
    )  # fmt: skip
    env = started(instance)
    said(env, "go to desk 1", "take pen 1 from desk 1", "go to drawer 1", "open drawer 1", "move pen 1 to drawer 1")
    said(env, "go to desk 1", "take pen 2 from desk 1", "go to drawer 2", "open drawer 2")
    assert env.step("move pen 2 to drawer 2")[2] is False
    assert env.oracle() == ("take pen 2 from drawer 2", "go to drawer 1", "move pen 2 to drawer 1")
    assert [env.step(command)[1] for command in env.oracle()] == [0.0, 0.0, 1.0]


def test_light_may_be_switched_on_before_or_after_the_taking():
    for first in (("go to desk 1", "use desklamp 1", "go to bed 1", "take book 1 from bed 1", "go to desk 1"),
                  ("go to bed 1", "take book 1 from bed 1", "go to desk 1", "use desklamp 1")):  # fmt: skip
        env = started(bedroom())
        assert [env.step(command)[2] for command in first] == [False] * (len(first) - 1) + [True]


# ---- options ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("command", ["put apple 1 in/on countertop 1", "put apple 1 in countertop 1",
                                     "put apple 1 on countertop 1"])  # fmt: skip
def test_put_is_an_alias_when_switched_on(command):
    for put, answer in ((True, "You move the apple 1 to the countertop 1."), (False, "Nothing happens.")):
        env = started(kitchen(), put=put)
        said(env, "go to countertop 1", "take apple 1 from countertop 1")
        assert said(env, command) == [answer]


@pytest.mark.parametrize("decorated", ["> go to fridge 1", "Action: go to fridge 1.", "`go to fridge 1`",
                                       "GO TO FRIDGE 1", "1. go to fridge 1", "\n- go to fridge 1 \n"])  # fmt: skip
def test_p027_prompt_decoration_is_understood_when_reading_leniently(decorated):
    assert said(started(kitchen(), reading="lenient"), decorated) == ["You arrive at fridge 1. The fridge 1 is closed."]
    assert said(started(kitchen()), decorated) == ["Nothing happens."]


def test_p026_a_chained_command_is_one_clear_refusal():
    env = started(kitchen())
    before = env.state
    observation, _, _, _, info = env.step("open fridge 1 then go to sinkbasin 1")
    assert (observation, info["valid"], env.state) == ("Nothing happens.", False, before)


def test_listed_shows_the_admissible_commands_but_help():
    env = started(kitchen(), listed=True)
    observation = env.step("go to fridge 1")[0]
    shown = observation.partition("\nPossible actions: ")[2].split(", ")
    assert shown == [command for command in env.legal() if command != "help"]
    assert env.step("nonsense")[0].startswith("Nothing happens.\nPossible actions: close") is False


def test_formats_name_the_same_instances():
    prints = {
        make("household", **params).fingerprint(make("household", **params).generate(5, 3))
        for params in ({}, {"actions": "expanded"}, {"listed": True}, {"put": True}, {"wording": "sane"},
                       {"reading": "lenient"})
    }  # fmt: skip
    assert len(prints) == 1


def test_bad_parameters_name_the_nearest():
    for params, near in (({"task": "lights"}, "light"), ({"actions": "tag"}, "tags"), ({"wording": "reel"}, "real"),
                         ({"reading": "exactly"}, "exact"), ({"games": "nowhere/x"}, "does not exist")):  # fmt: skip
        with pytest.raises(UsageError, match=near):
            make("household", **params)


# ---- the expanded format ----------------------------------------------------------------------------------------


def test_expanded_walk_writes_the_words_between():
    env = started(kitchen(), actions="expanded")
    assert env.legal() == ("go to", "help", "inventory", "look")
    context = ""
    for action in ("go to", "countertop", "1", "take", "apple", "1", "countertop", "1"):
        assert action in env.legal()
        text = next(one.text for one in native.NATIVE if one.name == action)
        context += text + env.step(action)[0]
    assert context == (
        "go to countertop 1\nYou arrive at countertop 1. On the countertop 1, you see a apple 1, a bowl 1, and a "
        "knife 1.\ntake apple 1 from countertop 1\nYou pick up the apple 1 from the countertop 1.\n"
    )


def test_expanded_decisions_spell_exactly_the_admissible_commands():
    env = started(kitchen(), actions="expanded")
    env.step("go to")
    env.step("countertop")
    env.step("1")

    def spelt(env):
        done = set()
        for action in env.legal():
            twin = env.fork()
            twin.step(action)
            done |= {(action, *rest) for rest in spelt(twin)} if twin.state.pending else {(action,)}
        return done

    plain = started(kitchen())
    plain.step("go to countertop 1")
    assert spelt(env) == {native.split(command) for command in plain.legal()}


def test_expanded_refuses_what_is_not_possible_and_takes_whole_commands_outside():
    env = started(kitchen(), actions="expanded")
    assert env.step("go to fridge 1")[0] == "You arrive at fridge 1. The fridge 1 is closed."
    env.step("open")
    for wrong in ("countertop", "look", "", "open fridge 1"):
        observation, _, _, _, info = env.step(wrong)
        assert info["valid"] is False
        assert "fridge" in observation
    assert not env.free_text()


def test_native_actions_name_every_class_and_number_of_every_house():
    names = {action.name for action in native.NATIVE}
    assert len(names) == len(native.NATIVE)
    env = make("household")
    for seed in range(20):
        instance = env.generate(seed, 6, "large" if seed % 2 else "train")
        assert {word for name in (*instance.receptacles, *instance.objects) for word in name.split()} <= names


# ---- generated houses -------------------------------------------------------------------------------------------


@pytest.mark.parametrize("split", houses.SPLITS)
def test_generated_houses_keep_the_tables_and_start_unsolved(split):
    env = make("household")
    for seed in range(36):
        level = 1 + seed % 6
        instance = env.generate(seed, level, split)
        kinds = [name.rpartition(" ")[0] for name in instance.receptacles]
        assert set(kinds) <= set(words.RECEPTACLES)
        assert list(instance.receptacles) == sorted(instance.receptacles, key=words.order_of)
        assert list(instance.objects) == sorted(instance.objects, key=words.order_of)
        for name, home in zip(instance.objects, instance.homes, strict=True):
            kind = name.rpartition(" ")[0]
            assert kind in words.LAMPS or kind in words.ACCEPTS[kinds[home]]
            assert kind != instance.target or instance.task == "light" or kinds[home] != instance.place
        assert sum(name.startswith(f"{instance.target} ") for name in instance.objects) >= 1 + (instance.task == "two")
        low, high = houses.LEVELS[level - 1].receptacles
        if split == "large":
            assert len(kinds) > houses.LARGEST
        else:
            assert low <= len(kinds) <= high


def test_splits_leave_out_what_they_say():
    env = make("household")
    seen, pairs = {split: set() for split in houses.SPLITS}, {split: set() for split in houses.SPLITS}
    for split in houses.SPLITS:
        for seed in range(150):
            instance = env.generate(seed, 1 + seed % 3, split)
            kinds = Counter(name.rpartition(" ")[0] for name in instance.receptacles)
            shared = sorted(
                (a.rpartition(" ")[0], b.rpartition(" ")[0])
                for (a, x), (b, y) in combinations(zip(instance.receptacles, instance.spots, strict=True), 2)
                if x == y
            )
            seen[split].add((tuple(sorted(kinds.items())), tuple(shared)))
            pairs[split].add((instance.target, instance.place))
    assert not seen["plans"] & (seen["train"] | seen["test"] | seen["pairs"])
    assert not pairs["pairs"] & (pairs["train"] | pairs["test"] | pairs["plans"])
    assert not seen["large"] & seen["train"]


def test_levels_scale_receptacles_objects_and_steps():
    env = make("household")
    sizes = []
    for level in env.levels:
        steps = receptacles = objects = 0
        for seed in range(60):
            env.reset(seed=seed, options={"level": level})
            steps += len(env.oracle())
            receptacles += len(env.instance.receptacles)
            objects += len(env.instance.objects)
        sizes.append((receptacles, objects, steps))
    assert all(a[0] < b[0] and a[1] < b[1] for a, b in pairwise(sizes))
    assert sizes[0][2] < sizes[2][2] < sizes[5][2]


def test_the_first_observation_names_no_object_but_the_wanted_one():
    env = make("household")
    for seed in range(60):
        observation = env.reset(seed=seed, options={"level": 1 + seed % 6})[0]
        room = observation.partition("Your task")[0]
        assert not [name for name in env.instance.objects if f" {name}," in room or f" {name}." in room]


def test_an_impossible_level_is_named():
    with pytest.raises(UsageError, match=r"level 7 is outside 1\.\.6"):
        make("household").reset(seed=1, options={"level": 7})


# ---- keys, snapshots --------------------------------------------------------------------------------------------


def test_independent_actions_in_any_order_lead_to_one_key():
    keys, observations = set(), set()
    visits = (
        ("go to fridge 1", "open fridge 1"),
        ("go to drawer 1", "open drawer 1"),
        ("go to countertop 1", "take apple 1 from countertop 1", "go to sinkbasin 1", "move apple 1 to sinkbasin 1"),
    )
    for order in permutations(visits):
        env = started(kitchen())
        for commands in order:
            assert all(env.step(command)[4]["valid"] for command in commands)
        env.step("go to microwave 1")
        keys.add(env.state_key())
        observations.add(env.step("look")[0])
    assert len(keys) == len(observations) == 1


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 5), st.integers(0, 10_000))
def test_keys_are_equal_exactly_when_what_is_where_is_equal(seed, walk):
    """What is where is written down anew, from the commands and their effects alone."""
    env, chance = make("household", max_turns=1_000), rng("keys", walk)
    env.reset(seed=seed, options={"level": 1})
    place = dict(zip(env.instance.objects, (env.instance.receptacles[h] for h in env.instance.homes), strict=True))
    world = {"at": "", "open": frozenset(), "hot": frozenset(), "cool": frozenset(), "clean": frozenset(),
             "sliced": frozenset(), "on": frozenset(), "left": frozenset()}  # fmt: skip
    spot = dict(zip(env.instance.receptacles, env.instance.spots, strict=True))
    neighbours = {room for room in spot if list(spot.values()).count(spot[room]) > 1}
    known: dict[object, str] = {}
    for _ in range(40):
        legal = [one for one in env.legal() if not one.startswith(("go to", "help")) or chance.random() < 0.3]
        command = (legal or env.legal())[int(chance.integers(len(legal or env.legal())))]
        _, _, over, _, info = env.step(command)
        if over:
            break
        verb, _, rest = command.partition(" ")
        first, _, second = rest.replace(" from ", "|").replace(" to ", "|").replace(" with ", "|").partition("|")
        if verb == "go":
            world["at"] = spot[rest.removeprefix("to ")]
        elif verb in ("open", "close"):
            world["open"] ^= {rest}
        elif verb in ("take", "move"):
            place[first] = "hand" if verb == "take" else second
            if verb == "take" and second in neighbours:
                world["left"] |= {(first, second)}
            elif verb == "move":
                world["left"] -= {(first, second)}
        elif verb in ("heat", "cool"):
            world["hot"] = (world["hot"] - {first}) | ({first} if verb == "heat" else set())
            world["cool"] = (world["cool"] - {first}) | ({first} if verb == "cool" else set())
        elif verb in ("clean", "slice", "use"):
            world[{"clean": "clean", "slice": "sliced", "use": "on"}[verb]] |= {first}
        state = (tuple(sorted(place.items())), tuple(sorted((k, v) for k, v in world.items())))
        assert known.setdefault(state, info["state_key"]) == info["state_key"]
    assert len(set(known.values())) == len(known)


def test_different_games_never_share_a_key():
    env = make("household")
    keys = [env.reset(seed=seed, options={"level": 1 + seed % 3})[1]["state_key"] for seed in range(60)]
    prints = [env.fingerprint(env.generate(seed, 1 + seed % 3)) for seed in range(60)]
    assert len(set(keys)) == len(set(prints))


@pytest.mark.parametrize("params", [{"listed": True, "wording": "sane"}, {"actions": "expanded"}])
def test_conformance(params):
    report = check("household", **params)
    assert report.ok, str(report)
    assert not report.skipped


@pytest.mark.parametrize("name", ["searcher", "careless"])
def test_players_solve_without_knowing(name):
    env = make("household", max_turns=400)
    won = 0
    for seed in range(24):
        chance = rng("player", name, seed)
        env.reset(seed=seed, options={"level": 1 + seed % 4})
        over = False
        while not over:
            _, _, terminated, truncated, info = env.step(Household.players[name](env, chance))
            assert info["valid"]
            over = terminated or truncated
        won += info["success"] is True
    assert won >= 22
