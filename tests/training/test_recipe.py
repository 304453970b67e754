"""Recipes, overrides and the errors of configuration."""

import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from peira.tools.errors import UsageError
from peira.training.control import Constant, Cosine
from peira.training.recipe import layers_of, names, paper_of, resolve, toml_value
from peira.training.toml_text import dumps

NAMED = {"world.id": "sorting", "policy.path": "policies/tiny"}


def settings(recipe, sets=()):
    data = resolve(recipe, sets, NAMED).data()
    del data["recipe"]
    return data


# What a method adds, turned off by hand: it must then *be* its base. Equal settings run equally, bit for bit.
NEUTRAL = {
    "rloo": (
        "rollout.group_size=8",
        "credit.baseline=mean",
        "credit.scale=std_group",
        "reward_kl.coefficient=0.0",
        "learner.aggregate.mode=seq-mean",
        "learner.policy.surrogate=clip",
        "learner.divergence={coefficient=0.001, estimator='k3'}",
    ),
    "dr_grpo": (
        "credit.scale=std_group",
        "learner.aggregate={mode='seq-mean', length='none'}",
        "learner.divergence={coefficient=0.001, estimator='k3'}",
    ),
    "dapo": (
        "rollout.group_size=8",
        "filters.drop_flat=false",
        "rewards.overlong=none",
        "learner.aggregate.mode=seq-mean",
        "learner.policy.clip_high=0.2",
        "learner.divergence={coefficient=0.001, estimator='k3'}",
    ),
    "lite_ppo": (
        "credit.scale=std_group",
        "learner.aggregate.mode=seq-mean",
        "learner.divergence={coefficient=0.001, estimator='k3'}",
    ),
    "maxrl": (
        "credit.scale=std_group",
        "learner.aggregate.mode=seq-mean",
        "learner.policy.surrogate=clip",
        "learner.divergence={coefficient=0.001, estimator='k3'}",
    ),
    "reinforce_pp": (
        "rollout.tasks=16",
        "rollout.group_size=8",
        "credit.baseline=mean",
        "credit.scale=std_group",
        "credit.returns=total",
        "reward_kl.coefficient=0.0",
        "learner.aggregate.mode=seq-mean",
        "learner.divergence={coefficient=0.001, estimator='k3'}",
    ),
    "earl": ("counterfactual=none", "world.params={actions='expanded'}"),
}


def test_there_is_a_neutral_setting_for_every_recipe():
    assert set(NEUTRAL) == set(names()) - {"grpo"}


@pytest.mark.parametrize("recipe", NEUTRAL)
def test_a_recipe_with_its_knobs_at_neutral_is_its_base(recipe):
    base = settings("grpo", ["world.params.actions=expanded"] if recipe == "earl" else [])
    assert settings(recipe) != base
    assert settings(recipe, NEUTRAL[recipe]) == base


@pytest.mark.parametrize(
    ("recipe", "key", "value"),
    [
        ("grpo", "credit.baseline", "mean"),
        ("grpo", "credit.scale", "std_group"),
        ("grpo", "learner.policy.clip_low", 0.2),
        ("grpo", "learner.policy.clip_high", 0.2),
        ("grpo", "learner.aggregate.mode", "seq-mean"),
        ("grpo", "learner.divergence.estimator", "k3"),
        ("grpo", "learner.lr", 1e-6),
        ("rloo", "credit.baseline", "leave_one_out"),
        ("rloo", "credit.scale", "none"),
        ("rloo", "learner.divergence", None),
        ("dr_grpo", "credit.scale", "none"),
        ("dr_grpo", "learner.aggregate.mode", "const"),
        ("dr_grpo", "learner.divergence", None),
        ("dapo", "learner.policy.clip_low", 0.2),
        ("dapo", "learner.policy.clip_high", 0.28),
        ("dapo", "learner.aggregate.mode", "tok"),
        ("dapo", "filters.drop_flat", True),
        ("dapo", "rewards.overlong", {"limit": 20480, "buffer": 4096}),
        ("dapo", "learner.divergence", None),
        ("lite_ppo", "credit.scale", "std_batch"),
        ("lite_ppo", "learner.aggregate.mode", "tok"),
        ("maxrl", "credit.scale", "mean"),
        ("maxrl", "credit.baseline", "mean"),
        ("maxrl", "credit.eps", 1e-6),
        ("reinforce_pp", "credit.scale", "whiten_batch"),
        ("reinforce_pp", "credit.returns", "to_go"),
        ("reinforce_pp", "reward_kl.estimator", "k1"),
        ("earl", "counterfactual", {"temperature": 10.0, "top_k": 10, "top_p": 0.9}),
        ("earl", "rollout.group_size", 8),
        ("earl", "learner.lr", 1e-6),
        ("earl", "learner.divergence", {"coefficient": 0.001, "estimator": "k3"}),
        ("earl", "learner.entropy", None),
        ("earl", "world.params", {"actions": "expanded"}),
    ],
)
def test_recipes_hold_their_papers_constants(recipe, key, value):
    found = settings(recipe)
    for part in key.split("."):
        found = found[part]
    assert found == value


@pytest.mark.parametrize("recipe", names())
def test_every_recipe_names_its_paper_and_repeats_nothing_of_its_base(recipe):
    paper = paper_of(recipe)
    assert paper.title
    assert paper.arxiv.count(".") == 1
    assert paper.section
    assert paper.idea
    chain = layers_of(recipe)

    def leaves(data, path=""):
        for key, value in data.items():
            if isinstance(value, dict):
                yield from leaves(value, f"{path}{key}.")
            else:
                yield f"{path}{key}", value

    base = dict(leaves(chain[-2].data)) if len(chain) > 1 else {}
    assert [key for key, value in leaves(chain[-1].data) if base.get(key) == value] == []


# ---- layers ----------------------------------------------------------------------


def write(folder: Path, name: str, text: str) -> str:
    (folder / name).write_text(text)
    return str(folder / name)


def test_sources_say_where_each_value_comes_from(tmp_path):
    mine = write(tmp_path, "mine.toml", 'extends = "dapo"\n[learner]\nlr = 3e-4\n')
    resolved = resolve(mine, ["learner.clip_norm=0.5"], {**NAMED, "learner.lr": 1e-3})
    assert resolved.config.recipe == "mine"
    assert resolved.config.learner.lr == Constant(value=1e-3)
    assert resolved.sources["learner.lr"] == "command line"
    assert resolved.sources["learner.clip_norm"] == "--set learner.clip_norm"
    assert resolved.sources["learner.policy.clip_high"] == "recipe dapo"
    assert resolved.sources["learner.policy.clip_low"] == "recipe grpo"
    assert "steps" not in resolved.sources
    text = resolved.toml()
    assert "lr = 0.001  # command line" in text
    assert "clip_high = 0.28  # recipe dapo" in text
    assert "steps = 100  # default" in text


@pytest.mark.parametrize("recipe", names())
def test_the_saved_configuration_repeats_the_run(recipe, tmp_path):
    first = resolve(recipe, ["world.levels={2=1, 4=0.5}", "view.system='say \"hi\"\\n'"], NAMED)
    again = resolve(write(tmp_path, "config.toml", first.toml()))
    assert again.config == first.config


def test_set_wins_over_dials_and_the_last_set_over_the_first():
    resolved = resolve("grpo", ["seed=5", "seed=7"], {**NAMED, "seed": 3})
    assert resolved.config.seed == 7


def test_another_world_or_kind_or_set_of_levels_replaces_the_old_table(tmp_path):
    base = write(tmp_path, "base.toml", 'extends = "earl"\n[world]\nid = "sorting"\nlevels = {2 = 1, 3 = 1}\n')
    assert resolve(base, ["world.levels={4=1}"], {"policy.path": "p"}).config.world.levels == {4: 1.0}
    assert resolve(base, ["world.levels.4=1"], {"policy.path": "p"}).config.world.levels == {2: 1.0, 3: 1.0, 4: 1.0}
    other = resolve(base, [], {"policy.path": "p", "world.id": "calculator"}).config
    assert other.world.params == {}
    assert other.world.levels == {}


def test_a_number_becomes_a_schedule_and_one_schedule_replaces_another(tmp_path):
    base = write(tmp_path, "base.toml", 'extends = "grpo"\n[learner.lr]\nkind = "linear"\nstart = 1.0\nsteps = 4\n')
    cosine = resolve(base, ["learner.lr={kind='cosine', start=2.0, steps=8}"], NAMED)
    assert cosine.config.learner.lr == Cosine(start=2.0, steps=8)
    assert "steps = 8  # --set learner.lr" in cosine.toml()
    assert resolve(base, ["learner.lr=0.5"], NAMED).config.learner.lr == Constant(value=0.5)
    assert resolve(base, ["learner.lr.steps=2"], NAMED).config.learner.lr.at(1) == 0.5


def test_none_turns_an_optional_setting_off_and_a_table_turns_it_on():
    assert resolve("grpo", ["learner.divergence=none"], NAMED).config.learner.divergence is None
    on = resolve("dapo", ["learner.divergence.coefficient=0.01"], NAMED).config.learner.divergence
    assert on is not None
    assert on.coefficient == 0.01


# ---- errors ----------------------------------------------------------------------


def refused(recipe="grpo", sets=(), dials=NAMED):
    with pytest.raises(UsageError) as caught:
        resolve(recipe, sets, dials)
    return str(caught.value)


def test_p113_a_misspelt_key_stops_with_key_section_line_and_nearest(tmp_path):
    mine = write(tmp_path, "mine.toml", 'extends = "grpo"\n\n[learner]\nlearnig_rate = 1e-6\n')
    text = refused(mine)
    assert "'learnig_rate'" in text
    assert "section [learner]" in text
    assert "mine.toml, line 4" in text
    assert "'learner.lr'" in text


@pytest.mark.parametrize(
    ("key", "hint"),
    [
        ("learnig_rate", "Did you mean 'learner.lr'?"),
        ("learner.lrr", "Did you mean 'learner.lr'?"),
        ("learner.policy.clip_hihg", "Did you mean 'learner.policy.clip_high'?"),
        ("counterfactual.topk", "Did you mean 'counterfactual.top_k'?"),
        ("credit.lr", "belongs elsewhere: 'learner.lr'"),
        ("rollout.clip_norm", "belongs elsewhere: 'learner.clip_norm'"),
        ("max_grad_norm", "Did you mean 'learner.clip_norm'?"),
        ("num_generations", "Did you mean 'rollout.group_size'?"),
    ],
)
def test_p113_at_any_depth_and_in_the_wrong_section(key, hint):
    text = refused(sets=[f"{key}=1"])
    assert hint in text
    assert f"--set {key}" in text


@pytest.mark.parametrize("text", ["learner.lr 1e-6", "learner.lr", "=3", "a..b=3"])
def test_p114_an_override_without_key_or_value_starts_nothing(text):
    assert repr(text) in refused(sets=[text])


def test_p115_numbers_are_numbers_and_ambiguous_words_say_so():
    assert resolve("grpo", ["learner.lr=1e-6"], NAMED).data()["learner"]["lr"] == 0.000001
    assert toml_value("on", "name") == "on"
    assert toml_value("'010'", "id") == "010"
    with pytest.raises(UsageError, match=r"--set id: '010' is not a TOML value .* text goes in quotes"):
        toml_value("010", "id")


@pytest.mark.parametrize(
    ("override", "said"),
    [
        ("learner.lr=-1", "'learner.lr' runs from -1 to -1"),
        ("rollout.group_size=0", "rollout.group_size = 0 (--set rollout.group_size): input should be greater than"),
        ("credit.scale=std", "credit.scale = 'std'"),
        ("learner.lr=true", "not a switch"),
        ("learner.aggregate.mode=const", "'length' belongs to mode 'const'"),
        ("evaluate.split=train", "which is trained on"),
    ],
)
def test_values_out_of_range_name_the_key_and_its_place(override, said):
    assert said in refused(sets=[override])


def test_counterfactual_rewriting_needs_the_expanded_format():
    assert 'world.params.actions = "expanded"' in refused("earl", ["world.params.actions=tags"])
    assert "reward_kl.coefficient = 0" in refused("earl", ["reward_kl.coefficient=0.1"])


def test_what_is_missing_is_named_with_its_option():
    text = refused(dials={})
    assert "world.id is missing" in text
    assert "--world" in text
    assert "--policy" in text


def test_unknown_recipes_and_files():
    assert "Did you mean 'grpo'?" in refused("gpro")
    assert "there is no recipe file './nowhere.toml'" in refused("./nowhere.toml")


def test_a_file_that_is_not_toml_is_named(tmp_path):
    assert "broken.toml is not TOML" in refused(write(tmp_path, "broken.toml", "lr = on\n"))


def test_recipes_in_a_ring_are_refused(tmp_path):
    write(tmp_path, "a.toml", 'extends = "./b.toml"\n')
    assert "ring: b extends a extends b" in refused(write(tmp_path, "b.toml", 'extends = "./a.toml"\n'))


def test_the_paper_table_is_checked_too(tmp_path):
    assert "Did you mean 'arxiv'?" in refused(write(tmp_path, "a.toml", '[paper]\narxve = "1"\n'))
    assert "paper.arxiv is text" in refused(write(tmp_path, "b.toml", "[paper]\narxiv = 2402.03300\n"))


# ---- TOML ----------------------------------------------------------------------

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)
SCALAR = st.one_of(st.booleans(), st.integers(-(2**60), 2**60), st.floats(allow_nan=False, allow_infinity=False), TEXT)
NESTED = st.recursive(
    st.one_of(SCALAR, st.lists(SCALAR, max_size=3)),
    lambda inner: st.dictionaries(TEXT, inner, max_size=3),
    max_leaves=12,
)


@given(st.dictionaries(TEXT, NESTED, max_size=5))
def test_toml_text_reads_back_equal(data):
    assert tomllib.loads(dumps(data)) == data
