"""Game files: what is exported is read back as the same game, and what is no such file is named."""

import json
from itertools import pairwise

import pytest

from peira.envs.household import Game
from peira.envs.household.export import game_text, problem, real_rules
from peira.envs.household.reader import read_game
from peira.envs.seeding import rng
from peira.envs.spec import make
from peira.tools.errors import UsageError

TASKS = ("place", "light", "clean", "heat", "cool", "two")
GRAMMAR = 'grammar :: """{"task": [{"rhs": "Your task is to: UNKNOWN GOAL."}]}""";'


def written(path, instance):
    path.write_text(game_text(instance, "(define (domain alfred))", GRAMMAR, ("look",)))
    return path


@pytest.mark.parametrize("number", range(18))
def test_an_exported_game_is_read_back_as_the_same_game(number, tmp_path):
    env = make("household", task=TASKS[number % 6], max_turns=1_000)
    env.reset(seed=number, options={"level": 1 + number % 5})
    twin = make("household", max_turns=1_000)
    game = read_game(written(tmp_path / "game.tw-pddl", env.instance))
    for field in ("task", "goal", "target", "place", "receptacles", "objects", "homes"):
        assert getattr(game, field) == getattr(env.instance, field)
    assert Game(game).regular
    first, info = twin.reset(seed=0, options={"instance": game})
    assert first == env.reset(seed=number, options={"level": 1 + number % 5})[0]
    chance = rng("files", number)
    for _ in range(60):
        legal = env.legal()
        assert info["legal"] == legal
        busy = [one for one in legal if one.split()[0] not in ("go", "look", "help", "inventory")] or legal
        command = busy[int(chance.integers(len(busy)))] if chance.random() < 0.6 else env.oracle()[0]
        ours, theirs = env.step(command), twin.step(command)
        assert ours[:4] == theirs[:4]
        info = theirs[4]
        if ours[2]:
            break
        assert len(env.oracle()) == len(twin.oracle())


def test_a_read_game_is_written_again_as_the_same_problem(tmp_path):
    env = make("household")
    for seed in range(6):
        instance = env.generate(seed, 1 + seed)
        again = read_game(written(tmp_path / f"{seed}.tw-pddl", instance))
        assert sorted(problem(again).split("\n")) == sorted(problem(instance).split("\n"))


def test_names_are_numbered_from_the_last_id_up(tmp_path):
    """ALFWorld numbers a class's ids in descending alphabetical order, and lists them in ascending order."""
    ids = (
        "cabinet_bar__minus_00_dot_33_bar__plus_01",
        "cabinet_bar__plus_00_dot_68_bar__plus_00",
        "sink_bar_x_bar_sinkbasin",
    )
    lines = [
        "(define (problem p) (:domain alfred) (:objects agent1 - agent",
        *(f"{one} - receptacle" for one in ids),
        "Mug_bar_1 - object loc_bar_1 loc_bar_2 loc_bar_3 loc_bar_4 - location",
        "CabinetType SinkBasinType - rtype MugType - otype) (:init (= (total-cost) 0) (atLocation agent1 loc_bar_4)",
        *(f"(receptacleAtLocation {one} loc_bar_{at})" for at, one in enumerate(ids, 1)),
        f"(receptacleType {ids[0]} CabinetType) (receptacleType {ids[1]} CabinetType)",
        f"(receptacleType {ids[2]} SinkBasinType) (objectType Mug_bar_1 MugType) ; a comment (",
        f"(inReceptacle Mug_bar_1 {ids[1]}) (objectAtLocation Mug_bar_1 loc_bar_2) (openable {ids[0]}))",
        "(:goal (and (exists (?r - receptacle) (exists (?o - object) (and (inReceptacle ?o ?r)",
        "(objectType ?o MugType) (receptacleType ?r SinkBasinType)))))))",
    ]
    path = tmp_path / "game.tw-pddl"
    path.write_text(json.dumps({"pddl_domain": "", "grammar": GRAMMAR, "pddl_problem": "\n".join(lines)}))
    game = read_game(path)
    assert game.receptacles == ("cabinet 2", "cabinet 1", "sinkbasin 1")
    assert (game.objects, game.homes) == (("mug 1",), (1,))
    env = make("household")
    env.reset(seed=0, options={"instance": game})
    assert env.step("go to cabinet 1")[0] == "You arrive at cabinet 1. On the cabinet 1, you see a mug 1."
    assert env.step("go to cabinet 2")[0] == "You arrive at cabinet 2. The cabinet 2 is closed."


# ---- playing files ----------------------------------------------------------------------------------------------


@pytest.fixture
def folder(tmp_path):
    """ALFWorld's own layout: a folder for each game, below one for each split."""
    env = make("household")
    for at, name in enumerate(("train", "train", "train", "valid_seen", "valid_unseen")):
        place = tmp_path / "json" / name / f"game {at}"
        place.mkdir(parents=True)
        written(place / "game.tw-pddl", env.generate(at, 2))
    return tmp_path / "json"


def test_a_folder_of_games_is_played_by_split(folder):
    env = make("household", games=str(folder))
    found = {split: {env.fingerprint(env.generate(seed, split=split)) for seed in range(24)}
             for split in ("train", "test", "plans")}  # fmt: skip
    assert [len(prints) for prints in found.values()] == [3, 1, 1]
    assert all(not a & b for a, b in pairwise([*found.values(), found["train"]]))
    for seed in range(8):
        env.reset(seed=seed, options={"split": "train"})
        assert [env.step(command)[2] for command in env.oracle()][-1] is True
    with pytest.raises(UsageError, match=r"none of the 5 games in .* is of split 'large'"):
        env.reset(seed=1, options={"split": "large"})


def test_one_file_is_a_world_of_one_game(folder):
    path = folder / "valid_seen" / "game 3" / "game.tw-pddl"
    env = make("household", games=str(path), actions="expanded")
    env.reset(seed=9, options={"split": "test"})
    twin = env.fork()
    assert [env.step(word)[2] for word in env.oracle()][-1] is True
    assert [twin.step(word)[2] for word in twin.oracle()][-1] is True


# ---- what is no game file ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        ("", "not a game of ALFWorld's"),
        ("{", "not a game of ALFWorld's"),
        ("[]", "not a game of ALFWorld's"),
        ('{"grammar": ""}', "pddl_problem"),
        ({"pddl_problem": "(define (problem x) (:objects a - b)"}, "cut off"),
        ({"pddl_problem": "(define (problem x)))"}, "never opened"),
        ({"pddl_problem": "(define (problem x) (:objects) (:init))"}, r"no section \(:goal"),
        ({"pddl_problem": "(define (problem x) (:objects) (:init) (:goal (issliced ?o)))"}, "none of the six tasks"),
        ({"grammar": "{}"}, "Your task is to"),
        ({"drop": "(receptacleAtLocation countertop"}, "stands nowhere"),
        ({"swap": ("_bar_", "x")}, "has no '_bar_' in it"),
    ],
)  # fmt: skip
def test_a_malformed_or_foreign_file_is_named_with_its_fault(content, cause, tmp_path):
    path = tmp_path / "game.tw-pddl"
    env = make("household", task="heat")
    text = game_text(env.generate(1, 1), "", GRAMMAR)
    if isinstance(content, dict):
        data = json.loads(text)
        lines = data["pddl_problem"].split("\n")
        data["pddl_problem"] = "\n".join(one for one in lines if not one.startswith(content.get("drop", "?")))
        old, new = content.get("swap", ("?", "?"))
        data["pddl_problem"] = data["pddl_problem"].replace(old, new)
        content = json.dumps({**data, **content})
    path.write_text(content)
    with pytest.raises(UsageError, match=cause) as error:
        read_game(path)
    assert str(path) in str(error.value)


def test_no_file_and_no_games_are_named(tmp_path):
    with pytest.raises(UsageError, match="cannot be read"):
        read_game(tmp_path / "nothing")
    with pytest.raises(UsageError, match="does not exist"):
        make("household", games=str(tmp_path / "nothing"))
    with pytest.raises(UsageError, match=r"no \*.tw-pddl file"):
        make("household", games=str(tmp_path)).reset(seed=1)


def test_without_the_package_the_rules_are_asked_for_by_name(monkeypatch):
    monkeypatch.setattr("peira.envs.household.export.find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install 'peira\[alfworld\]'"):
        real_rules()
