"""The command line: every command from a person's side, with its exit codes and what it says."""

import io
import json
import os
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

from peira.agents.codec import read
from peira.agents.policy.corpus import world_texts
from peira.agents.policy.new import new_policy
from peira.envs.spec import make
from peira.training.cli import COMMANDS, main, module_of

SURFACE = {
    "quickstart": {"--out", "--seed", "--steps"},
    "list": {"--json"},
    "show": {"world", "-p", "--level", "--seed", "--json"},
    "check": {"world", "-p", "--template", "--engine", "--policy", "--server", "--model", "--key-env", "--json"},
    "play": {
        "world", "-p", "--actions", "--agent", "--level", "--split", "--seed", "--go", "--temperature", "--max-turns",
        "--max-tokens",
    },
    "rollout": {
        "world", "-p", "--agent", "--level", "--split", "-n", "--seed", "--temperature", "--max-turns", "--max-tokens",
        "-o", "--json",
    },
    "eval": {
        "world", "-p", "--agent", "--server", "--model", "--api", "--tokenizer", "--key-env", "--beside", "--suite",
        "--seeds", "--level", "--split", "-n", "--seed", "--temperature", "--max-turns", "--max-tokens", "--json",
    },
    "train": {
        "recipe", "--world", "-p", "--policy", "--run", "--steps", "--seed", "--lr", "--set", "--resume", "--dry-run",
        "--json",
    },
    "recipes": {"recipe", "--resolved", "--json"},
    "policy": {"kind"},
}  # fmt: skip
"""The ratchet: an option comes or goes here and in the change log, never by accident."""


def test_the_surface_is_what_was_decided():
    assert set(SURFACE) == set(COMMANDS)
    for command, expected in SURFACE.items():
        actions = import_module(module_of(command)).parser()._actions
        assert {(a.option_strings or [a.dest])[0] for a in actions} - {"-h"} == expected, command


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_with_an_example(command, capsys):
    assert main([command, "--help"]) == 0
    shown = capsys.readouterr().out
    assert "examples:" in shown
    assert f"  peira {command}" in shown


@pytest.mark.parametrize("command", COMMANDS)
def test_the_examples_parse(command):
    module = import_module(module_of(command))
    for line in module.parser().epilog.splitlines()[1:]:
        words = line.split()
        assert words[:2] == ["peira", command]
        module.parser().parse_args(words[2:])


def run(capsys, *arguments):
    code = main(arguments)
    shown = capsys.readouterr()
    return code, shown.out, shown.err


def test_overview_and_version(capsys):
    code, out, _ = run(capsys, "--help")
    assert code == 0
    assert all(f"  {name} " in out for name in COMMANDS)
    assert run(capsys, "--version")[1].startswith("peira ")


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["tarin"], "Did you mean 'train'?"),
        (["show", "srting"], "Did you mean 'sorting'?"),
        (["show", "sorting", "-p", "task=srot"], "Did you mean 'sort'?"),
        (["show", "sorting", "-p", "task"], "-p takes key=value"),
        (["rollout", "sorting", "--agent", "orcale"], "Did you mean 'oracle'?"),
        (["rollout", "sorting", "--agent", "policies/none"], "no policy folder 'policies/none'"),
        (["rollout", "sorting", "--level", "9"], "level"),
        (["eval", "sorting", "--suite", "sort44"], "Did you mean 'sort4'?"),
        (["check"], "nothing was given"),
        (["check", "sorting", "--template", "policies/none"], "world and template was given"),
        (["check", "--template", "policies/none"], "does not exist"),
        (["check", "--template", ".", "-p", "task=sort"], "template has none"),
        (["check", "--engine", "locale", "--policy", "policies/none"], "Did you mean 'local'?"),
        (["check", "--engine", "local"], "give --policy DIR"),
        (["check", "--engine", "local", "--policy", "policies/none"], "does not exist"),
        (["check", "--engine", "peira.no:where", "--policy", "policies/none"], "does not exist"),
        (["check", "sorting", "--policy", "policies/none"], "belong to --engine"),
        (["recipes", "gpro"], "Did you mean 'grpo'?"),
        (["recipes", "--resolved"], "name it"),
        (["train"], "name a recipe"),
        (["train", "grpo"], "--policy"),
        (["train", "--resume", "runs/none"], "no run to resume"),
        (["train", "grpo", "--world", "sorting", "--policy", "p", "--set", "lr 1"], "--set takes key=value"),
        (["train", "grpo", "--world", "sorting", "--policy", "no/such"], "no/such"),
        (["policy", "show", "no/such"], "no/such"),
    ],
)
def test_what_a_person_can_put_right_is_one_paragraph_and_exit_code_2(arguments, said, capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, err = run(capsys, *arguments)
    assert code == 2
    assert said in err
    assert err.startswith("peira: ")
    assert "Traceback" not in err
    assert out == ""
    assert list(tmp_path.iterdir()) == []


def test_argparse_mistakes_are_exit_code_2_too(capsys):
    assert run(capsys, "show", "sorting", "--lebel", "3")[0] == 2


def test_p113_a_training_option_that_does_not_exist_loads_nothing():
    """``--train.lrr 1e-6``: non-zero before any model loads."""
    script = (
        "import sys; from peira.training.cli import main; "
        "code = main(['train', 'grpo', '--train.lrr', '1e-6']); "
        "print(code, 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["2", "False"]


def test_list_and_show(capsys):
    worlds = json.loads(run(capsys, "list", "--json")[1])
    assert {"sorting", "calculator"} <= {world["world"] for world in worlds}
    assert "sorting" in run(capsys, "list")[1]
    shown = json.loads(run(capsys, "show", "sorting", "-p", "actions=expanded", "--level", "3", "--json")[1])
    assert shown["params"]["actions"] == "expanded"
    assert shown["native"][:2] == ["compare", "swap"]
    assert shown["legal"] == ["compare", "swap"]
    assert shown["observation"] in run(capsys, "show", "sorting", "-p", "actions=expanded", "--level", "3")[1]


def test_list_survives_a_world_that_cannot_be_imported(capsys, monkeypatch):
    module = import_module(module_of("list"))
    monkeypatch.setattr(module, "names", lambda: ("sorting", "peira.nowhere:WORLD"))
    worlds = json.loads(run(capsys, "list", "--json")[1])
    assert "cannot be found" in worlds[1]["broken"]


def test_rollout_keeps_its_episodes(capsys, tmp_path):
    file = tmp_path / "episodes.jsonl.zst"
    code, out, _ = run(capsys, "rollout", "sorting", "--agent", "network", "--level", "4", "-n", "3", "-o", str(file))
    assert code == 0
    assert "3 of 3 solved" in out
    assert [episode.success for episode in read(file)] == [True] * 3
    lines = run(capsys, "rollout", "sorting", "--agent", "network", "--level", "4", "-n", "3", "--json")[1].splitlines()
    assert [json.loads(line)["task"] for line in lines] == [episode.task.key for episode in read(file)]


def test_eval_prints_a_table_or_json(capsys):
    arguments = ("eval", "sorting", "--agent", "naive", "--level", "3", "-n", "8", "--seeds", "2")
    report = json.loads(run(capsys, *arguments, "--json")[1])
    assert [agent["agent"] for agent in report["agents"]] == ["naive", "oracle", "random"]
    assert report["agents"][1]["success"]["mean"] == 1.0
    assert "success" in run(capsys, *arguments)[1]


def test_recipes(capsys):
    listed = {r["recipe"]: r for r in json.loads(run(capsys, "recipes", "--json")[1])}
    assert listed["dapo"]["arxiv"] == "2503.14476"
    assert listed["dapo"]["extends"] == "grpo"
    assert "clip_high = 0.28" in run(capsys, "recipes", "dapo")[1]
    assert "clip_low = 0.2  # recipe grpo" in run(capsys, "recipes", "dapo", "--resolved")[1]


def test_a_dry_run_prints_the_settings_with_their_sources(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, out, _ = run(capsys, "train", "earl", "--world", "sorting", "--policy", "p", "--lr", "0.001", "--dry-run")
    assert code == 0
    assert 'id = "sorting"  # command line' in out
    assert 'actions = "expanded"  # recipe earl' in out
    assert list(tmp_path.iterdir()) == []


# ---- play -------------------------------------------------------------------------------------------------------


def typed(monkeypatch, *lines):
    monkeypatch.setattr(sys, "stdin", io.StringIO("".join(f"{line}\n" for line in lines)))


def test_a_person_plays_asks_for_a_hint_and_takes_a_step_back(capsys, monkeypatch):
    env = make("sorting")
    env.reset(seed=0, options={"level": 3, "split": "test"})
    plan = env.oracle()
    typed(monkeypatch, ":undo", "?", ":hint", "1", ":undo", *plan)
    code, out, _ = run(capsys, "play", "sorting", "--level", "3")
    assert code == 0
    assert "nothing to take back" in out
    assert f"the oracle would: {plan[0]}" in out
    assert "taken back" in out
    assert f"score 1, {len(plan)} turns" in out


def test_numbers_choose_and_an_action_that_is_a_number_is_that_action(capsys, monkeypatch):
    env = make("calculator", actions="expanded")
    env.reset(seed=0, options={"split": "test"})
    route = env.legal()[0]
    env.step(route)
    assert "2" in env.legal()
    typed(monkeypatch, "1", "2", ":quit")
    out = run(capsys, "play", "calculator", "--actions", "expanded")[1]
    assert out.count(f"  {route}\n") == 1
    assert f"  {env.legal()[1]}\n" not in out.split(route)[-1]


def test_leaving_early_is_no_error(capsys, monkeypatch):
    typed(monkeypatch)
    assert run(capsys, "play", "sorting")[0] == 0


def test_watching_a_player(capsys):
    code, out, _ = run(capsys, "play", "sorting", "--agent", "network", "--actions", "expanded", "--level", "4")
    assert code == 0
    assert out.count("'compare'") == 5
    assert "[success, score 1" in out


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> Path:
    env = make("sorting", actions="expanded")
    folder = tmp_path_factory.mktemp("policies") / "nano"
    new_policy(folder, size="nano", texts=world_texts(env, episodes=8), world="sorting", native=env.native())
    return folder


def test_watching_a_policy_shows_how_sure_it_was(tiny, capsys):
    code, out, _ = run(capsys, "play", "sorting", "--policy", str(tiny), "--max-turns", "4", "--max-tokens", "4")
    assert code == 0
    assert "(p " in out


def test_policy_new_show_and_a_folder_in_the_way(tmp_path, capsys):
    arguments = ("policy", "new", str(tmp_path / "p"), "--world", "sorting", "-p", "actions=expanded", "--size", "nano")
    warm = ("--demonstrator", "naive", "--episodes", "4", "--passes", "1")
    code, out, err = run(capsys, *arguments, *warm)
    assert code == 0
    assert "peira play sorting" in out
    assert "warm start 1/1" in err
    shown = json.loads(run(capsys, "policy", "show", str(tmp_path / "p"), "--json")[1])
    assert shown["actions"] == ["compare", "swap", "A", "B", "C", "D", "E"]
    before = {file.name: file.read_bytes() for file in (tmp_path / "p").iterdir()}
    code, _, err = run(capsys, *arguments)
    assert code == 2
    assert "not empty" in err
    assert {file.name: file.read_bytes() for file in (tmp_path / "p").iterdir()} == before


def test_policy_new_with_an_unknown_demonstrator_makes_nothing(tmp_path, capsys):
    code, _, err = run(capsys, "policy", "new", str(tmp_path / "p"), "--world", "sorting", "--demonstrator", "nave")
    assert code == 2
    assert "Did you mean 'naive'?" in err
    assert not (tmp_path / "p").exists()


def test_an_expanded_policy_of_another_world_is_told_apart(tiny, capsys):
    code, _, err = run(capsys, "rollout", "calculator", "--agent", str(tiny), "-p", "actions=expanded")
    assert code == 2
    assert "'sorting'" in err or "none" in err


def test_training_resumes_and_keeps_what_decides_its_course(tiny, tmp_path, capsys):
    small = ("rollout.tasks=2", "rollout.group_size=2", "rollout.max_tokens=4", "rollout.max_turns=3", "save_every=1")
    sets = [part for text in small for part in ("--set", text)]
    start = ("train", "earl", "--world", "sorting", "--policy", str(tiny), "--lr", "1e-3", "--steps", "1")
    run_folder = str(tmp_path / "run")
    code, out, _ = run(capsys, *start, "--run", run_folder, *sets)
    assert code == 0
    assert f"peira play sorting --policy {run_folder}/policy" in out
    code, out, _ = run(capsys, "train", "--resume", run_folder, "--steps", "2", "--json")
    assert code == 0
    assert json.loads(out)["steps"] == 2
    before = {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()}
    for arguments, said in (
        (("train", "--resume", run_folder, "--seed", "5"), "seed would change"),
        ((*start, "--run", run_folder), "not empty"),
    ):
        code, _, err = run(capsys, *arguments)
        assert code == 2
        assert said in err
    assert {file: file.read_bytes() for file in (tmp_path / "run").rglob("*") if file.is_file()} == before


# ---- exit codes of everything else -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("raised", "code", "said"),
    [
        ("KeyboardInterrupt()", 130, "stopped"),
        ("Fault('the cable is out', where='engine')", 1, "engine failed: the cable is out"),
        ("OSError(28, 'No space left on device', 'runs/x')", 2, "cannot write runs/x: No space left on device"),
    ],
)
def test_exit_codes(raised, code, said, capsys, monkeypatch):
    from peira.tools.errors import Fault

    def fail(_):
        raise eval(raised, {"Fault": Fault})

    monkeypatch.setattr(import_module(module_of("list")), "run", fail)
    assert main(["list"]) == code
    assert said in capsys.readouterr().err


def test_a_bug_keeps_its_traceback(monkeypatch):
    def fail(_):
        raise ZeroDivisionError

    monkeypatch.setattr(import_module(module_of("list")), "run", fail)
    with pytest.raises(ZeroDivisionError):
        main(["list"])


def test_a_reader_that_has_enough_gets_no_traceback():
    script = "from peira.training.cli import main; import sys; sys.exit(main(['show', 'sorting']))"
    reading, writing = os.pipe()
    os.close(reading)
    done = subprocess.run([sys.executable, "-u", "-c", script], stdout=writing, stderr=subprocess.PIPE, check=False)
    os.close(writing)
    assert done.returncode == 1
    assert b"Traceback" not in done.stderr


def test_python_dash_m_peira_is_the_command():
    done = subprocess.run([sys.executable, "-m", "peira", "list"], capture_output=True, text=True, check=False)
    assert done.returncode == 0
    assert "sorting" in done.stdout
    wrong = subprocess.run([sys.executable, "-m", "peira", "lisst"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "list" in wrong.stderr
