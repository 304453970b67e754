"""Rows P012-P016 of users' troubles with registration, on Gymnasium's registry."""

import json
import subprocess
import sys
import warnings

import gymnasium
import pytest
from gymnasium.utils.env_checker import check_env
from gymnasium.wrappers import TimeLimit

from peira.envs import gymnasium_names
from peira.tools.errors import UsageError

ID = "peira/sorting-v0"


def layers(env):
    while isinstance(env, gymnasium.Wrapper):
        yield env
        env = env.env


def steps_until_truncated(env):
    env.reset(seed=1)
    for turn in range(1, 500):
        _, _, terminated, truncated, info = env.step("compare A B")
        assert not terminated
        if truncated:
            return turn, info
    raise AssertionError("never truncated")


def test_the_id_with_its_module_registers_and_makes():
    code = (
        "import gymnasium, sys\n"
        f"env = gymnasium.make('peira.envs.gymnasium_names:{ID}', actions='expanded')\n"
        "print(env.reset(seed=1)[0], env.unwrapped.params['actions'], 'torch' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.startswith("Sort ")
    assert done.stdout.split()[-2:] == ["expanded", "False"]
    assert not done.stderr


def test_registering_imports_no_world():
    code = (
        "import sys, peira.envs.gymnasium_names, gymnasium\n"
        f"print({ID!r} in gymnasium.registry, 'peira.envs.sorting' in sys.modules)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["True", "False"]


def test_check_env_without_a_warning():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        check_env(gymnasium.make(ID).unwrapped, skip_render_check=True)


@pytest.mark.parametrize("limit", [12, 100])
def test_p012_a_limit_given_to_make_replaces_the_worlds_own(limit):
    env = gymnasium.make(ID, max_episode_steps=limit)
    turns, info = steps_until_truncated(env)
    assert turns == limit
    assert (info["end"], info["success"]) == ("turn_limit", False)
    assert sum(isinstance(layer, TimeLimit) for layer in layers(env)) == 1
    assert env.spec.max_episode_steps == limit


def test_p012_without_a_limit_nothing_wraps_the_worlds_own():
    env = gymnasium.make(ID)
    assert steps_until_truncated(env)[0] == 48
    assert not any(isinstance(layer, TimeLimit) for layer in layers(env))
    assert steps_until_truncated(gymnasium.make(ID, max_turns=7))[0] == 7


SPAWNED = """
import json
import gymnasium

def main():
    def make():
        return gymnasium.make("peira.envs.gymnasium_names:peira/sorting-v0")

    env = gymnasium.vector.AsyncVectorEnv([make] * 2, context="spawn", shared_memory=False)
    observations, _ = env.reset(seed=[1, 2])
    print(json.dumps(list(observations)))
    env.close()

if __name__ == "__main__":
    main()
"""


def test_p013_the_id_works_in_spawned_workers(tmp_path):
    script = tmp_path / "spawned.py"
    script.write_text(SPAWNED)
    done = subprocess.run([sys.executable, str(script)], capture_output=True, text=True, check=False, timeout=120)
    assert done.returncode == 0, done.stderr
    env = gymnasium.make(ID)
    assert json.loads(done.stdout) == [env.reset(seed=1)[0], env.reset(seed=2)[0]]


def test_p014_objects_share_no_parameters():
    one, two = gymnasium.make(ID, task="order"), gymnasium.make(ID)
    assert (one.unwrapped.params["task"], two.unwrapped.params["task"]) == ("order", "sort")
    assert gymnasium.registry[ID].kwargs == {"peira_world": "sorting"}
    with pytest.raises(TypeError):
        two.unwrapped.params["task"] = "order"


def test_p015_a_world_made_from_a_spec_keeps_its_settings():
    env = gymnasium.make(ID, task="order", actions="expanded", max_episode_steps=9)
    again = gymnasium.make(env.spec)
    assert again.unwrapped.params == env.unwrapped.params
    assert again.unwrapped.params["task"] == "order"
    assert steps_until_truncated_by_refusals(again) == 9


def steps_until_truncated_by_refusals(env):
    env.reset(seed=1)
    for turn in range(1, 100):
        if env.step("compare")[3]:
            return turn
    raise AssertionError("never truncated")


def test_p016_registering_again_is_silent_and_a_clash_is_named():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        assert ID in gymnasium_names.register()
    ours = gymnasium.registry.pop(ID)
    try:
        gymnasium.register(ID, entry_point="elsewhere:World")
        with pytest.raises(UsageError, match="elsewhere:World"):
            gymnasium_names.register()
    finally:
        gymnasium.registry[ID] = ours
