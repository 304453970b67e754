"""Policy folders: deterministic, whole or absent, and rows that start as copies."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from peira.agents.policy import Policy
from peira.agents.policy.corpus import world_texts
from peira.agents.policy.expand import expand
from peira.agents.policy.folder import SIDECAR, writing
from peira.agents.policy.new import SIZES, new_policy
from peira.envs.spec import make
from peira.tools.errors import UsageError
from peira.tools.native import NativeAction


def contents(folder: Path) -> dict[str, bytes]:
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir())}


@pytest.fixture(scope="module")
def plain(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    policy: Policy = models.policy(tmp_path_factory.mktemp("policies") / "plain", native=())
    return policy


@pytest.fixture(scope="module")
def expanded(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    policy: Policy = models.policy(tmp_path_factory.mktemp("policies") / "expanded")
    return policy


# ---- new ------------------------------------------------------------------------------------------------------------


def test_equal_arguments_make_equal_bytes_in_another_process(models: ModuleType, tmp_path: Path) -> None:
    models.policy(tmp_path / "a", seed=3)
    code = (
        "import sys; sys.path.insert(0, sys.argv[1]); import torch; torch.manual_seed(99)\n"
        "import pathlib, models; models.policy(pathlib.Path(sys.argv[2]), seed=3)"
    )
    support = Path(models.__file__ or "").parent
    command = [sys.executable, "-c", code, str(support), str(tmp_path / "b")]
    subprocess.run(command, check=True, env={**os.environ, "PYTHONHASHSEED": "5"})
    assert contents(tmp_path / "a") == contents(tmp_path / "b")
    models.policy(tmp_path / "c", seed=4)
    differ = [n for n, data in contents(tmp_path / "c").items() if data != contents(tmp_path / "a")[n]]
    assert differ == ["model.safetensors"]


def test_making_a_policy_touches_no_global_generator(models: ModuleType, tmp_path: Path) -> None:
    before, np_before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    models.policy(tmp_path / "a")
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == np_before  # noqa: NPY002


def test_it_is_an_ordinary_folder(expanded: Policy) -> None:
    tokenizer = AutoTokenizer.from_pretrained(expanded.path)
    model = AutoModelForCausalLM.from_pretrained(expanded.path)
    assert model.config.model_type == "qwen3"
    assert model.config.vocab_size == len(tokenizer) == expanded.vocab + 4
    assert len(tokenizer) <= 512
    assert model.config.head_dim == 32
    chat = [{"role": "user", "content": "compare A B"}, {"role": "assistant", "content": "A < B"}]
    assert tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True) == (
        "<|user|>compare A B<|end|><|assistant|>A < B<|end|><|assistant|>"
    )
    for text in ("compare A B\n", "naïve 漢字 \t \x00", "  12345 + 6"):
        assert tokenizer.decode(tokenizer(text)["input_ids"]) == text


def test_sizes_are_what_they_say(models: ModuleType, tmp_path: Path) -> None:
    counts = {}
    for size in SIZES:
        model = models.policy(tmp_path / size, size=size, native=()).model()
        counts[size] = sum(p.numel() for p in model.parameters()) / 1e6
    assert 0.08 < counts["nano"] < 0.16
    assert 0.2 < counts["tiny"] < 0.4
    assert 0.45 < counts["small"] < 0.75
    assert 1.7 < counts["base"] < 2.4


@pytest.mark.parametrize("actions", ["tags", "expanded"])
def test_a_letter_of_the_sorting_world_is_one_token(tmp_path: Path, actions: str) -> None:
    env = make("sorting", actions=actions)
    native = env.native()
    world = "sorting" if native else None
    policy = new_policy(tmp_path / "p", size="nano", texts=world_texts(env), world=world, native=native)
    for letter in "ABCDE":
        assert len(policy.text.encode(f" {letter}")) == 1
        assert len(policy.text.encode(letter)) == 1
    if policy.actions is not None:
        # Choosing a letter writes exactly the token that the observation shows it with.
        observation, _ = env.reset(seed=1, options={"level": 5})
        shown = set(policy.text.encode(observation))
        for letter in "ABCDE":
            assert set(policy.actions.written_of(policy.actions.id_of(letter)).tolist()) <= shown
        policy.require("sorting", native)


def test_digits_stay_single(plain: Policy) -> None:
    assert len(plain.text.encode("90210")) == 5


def test_bad_arguments_are_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match=r"unknown policy size 'tinny'. Did you mean 'tiny'"):
        new_policy(tmp_path / "p", size="tinny", texts=["a"])
    with pytest.raises(UsageError, match="texts"):
        new_policy(tmp_path / "p", texts=[])
    with pytest.raises(UsageError, match="name it"):
        new_policy(tmp_path / "p", texts=["a"], native=(NativeAction("a", "a"),))
    assert list(tmp_path.iterdir()) == []


# ---- expand ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("tied", [False, True])
@pytest.mark.parametrize("padding", [0, 2, 64])
def test_earl_b_a_fresh_row_scores_as_its_first_token(
    models: ModuleType, tmp_path: Path, tied: bool, padding: int
) -> None:
    start = models.policy(tmp_path / "plain", native=(), tied=tied)
    base = len(start.tokenizer)
    model = start.model()
    if padding:
        with torch.random.fork_rng(devices=[]):
            model.resize_token_embeddings(base + padding, mean_resizing=False)
        model.save_pretrained(start.path)
    grown = expand(start.path, tmp_path / "grown", "toy", models.NATIVE)
    assert grown.vocab == base
    assert grown.actions is not None
    assert grown.actions.ids == tuple(range(base, base + 4))
    after = grown.model()
    assert after.get_output_embeddings().weight.shape[0] == max(base + 4, base + padding)
    assert (after.get_output_embeddings().weight is after.get_input_embeddings().weight) == tied
    sources = [int(grown.actions.written_of(row)[0]) for row in grown.actions.ids]
    head = after.get_output_embeddings().weight
    assert torch.equal(head[list(grown.actions.ids)], head[sources])
    ids = torch.arange(base)[None]
    with torch.no_grad():
        logits, before = after(ids).logits[0], model(ids).logits[0]
    torch.testing.assert_close(logits[:, list(grown.actions.ids)], logits[:, sources], rtol=0, atol=1e-6)
    torch.testing.assert_close(logits[:, :base], before[:, :base], rtol=0, atol=1e-6)


def test_a_three_token_text_is_written_whole(models: ModuleType, expanded: Policy) -> None:
    assert expanded.actions is not None
    swap = expanded.actions.written_of(expanded.actions.id_of("swap"))
    assert len(swap) > 1
    assert expanded.text.decode(swap) == "swap the"


def test_native_tokens_cannot_be_spelt(expanded: Policy) -> None:
    assert expanded.tokenizer.convert_ids_to_tokens(expanded.vocab) == "<|toy:compare|>"
    assert max(expanded.text.encode("say <|toy:compare|> and <|end|>")) < expanded.vocab
    assert expanded.text.stop[0] not in expanded.text.encode("say <|toy:compare|> and <|end|>")


def test_expanding_at_once_and_later_give_the_same(models: ModuleType, tmp_path: Path, expanded: Policy) -> None:
    plain = models.policy(tmp_path / "plain", native=())
    later = expand(plain.path, tmp_path / "later", "toy", models.NATIVE)
    assert later.actions == expanded.actions
    for a, b in zip(later.model().parameters(), expanded.model().parameters(), strict=True):
        assert torch.equal(a, b)


def test_an_expanded_policy_is_not_expanded_again(models: ModuleType, expanded: Policy, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="already has the native actions of world 'toy'"):
        expand(expanded.path, tmp_path / "again", "toy", models.NATIVE)


def test_require_checks_world_and_actions(models: ModuleType, plain: Policy, expanded: Policy) -> None:
    assert expanded.require("toy", models.NATIVE) is expanded.actions
    with pytest.raises(UsageError, match="expanded for world 'toy', not 'sorting'"):
        expanded.require("sorting")
    with pytest.raises(UsageError, match="lists other native actions"):
        expanded.require("toy", models.NATIVE[:3])
    with pytest.raises(UsageError, match="has no native actions"):
        plain.require("toy")


# ---- whole or absent ------------------------------------------------------------------------------------------------


def test_a_folder_that_holds_something_is_left_alone(models: ModuleType, tmp_path: Path) -> None:
    target = tmp_path / "p"
    target.mkdir()
    (target / "notes.txt").write_text("mine")
    with pytest.raises(UsageError, match="not empty"):
        models.policy(target)
    assert contents(target) == {"notes.txt": b"mine"}
    models.policy(target, overwrite=True)
    assert "notes.txt" not in contents(target)
    assert [p.name for p in tmp_path.iterdir()] == ["p"]
    (tmp_path / "file").write_text("x")
    with pytest.raises(UsageError, match="is a file"):
        models.policy(tmp_path / "file", overwrite=True)


def test_a_write_that_fails_leaves_what_was_there(tmp_path: Path) -> None:
    target = tmp_path / "p"
    target.mkdir()
    (target / "old").write_text("old")

    def fill(error: BaseException) -> None:
        with writing(target, overwrite=True) as folder:
            (folder / "half").write_text("half")
            raise error

    with pytest.raises(UsageError, match=r"cannot write .* No space left on device"):
        fill(OSError(28, "No space left on device"))
    with pytest.raises(KeyboardInterrupt):
        fill(KeyboardInterrupt())
    assert contents(target) == {"old": b"old"}
    assert [p.name for p in tmp_path.iterdir()] == ["p"]


@pytest.mark.parametrize("name", ["config.json", "tokenizer.json", "tokenizer_config.json", "model.safetensors"])
def test_a_missing_file_is_named(expanded: Policy, tmp_path: Path, name: str) -> None:
    shutil.copytree(expanded.path, tmp_path / "p")
    (tmp_path / "p" / name).unlink()
    with pytest.raises(UsageError, match=name):
        Policy.load(tmp_path / "p")


@pytest.mark.parametrize("name", ["config.json", SIDECAR, "tokenizer.json"])
def test_a_damaged_file_is_named(expanded: Policy, tmp_path: Path, name: str) -> None:
    shutil.copytree(expanded.path, tmp_path / "p")
    (tmp_path / "p" / name).write_text('{"half": ')
    with pytest.raises(UsageError, match=rf"{name} is not JSON"):
        Policy.load(tmp_path / "p")


def test_damaged_weights_are_told_when_they_are_read(expanded: Policy, tmp_path: Path) -> None:
    shutil.copytree(expanded.path, tmp_path / "p")
    (tmp_path / "p" / "model.safetensors").write_bytes(b"\0" * 100)
    with pytest.raises(UsageError, match="cannot be loaded"):
        Policy.load(tmp_path / "p").model()
    with pytest.raises(UsageError, match="not a torch dtype"):
        expanded.model(dtype="float31")


def test_no_folder_at_all(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="does not exist; `peira policy new"):
        Policy.load(tmp_path / "nowhere")


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"schema": 99}, "schema 99"),
        ({"actions": [{"name": "compare"}]}, "lacks or garbles"),
        ({"actions": "compare"}, "lacks or garbles"),
        ({"world": 3}, "does not say its world"),
        ({"fingerprint": "0" * 16}, "does not fit the tokenizer"),
        ({"base": 17}, "does not fit the tokenizer"),
    ],
)
def test_a_sidecar_that_does_not_fit_is_refused(
    expanded: Policy, tmp_path: Path, change: dict[str, object], says: str
) -> None:
    shutil.copytree(expanded.path, tmp_path / "p")
    record = json.loads((tmp_path / "p" / SIDECAR).read_text())
    (tmp_path / "p" / SIDECAR).write_text(json.dumps({**record, **change}))
    with pytest.raises(UsageError, match=says):
        Policy.load(tmp_path / "p")


def test_the_fingerprint_is_of_what_is_read_and_written(models: ModuleType, expanded: Policy, tmp_path: Path) -> None:
    other_weights = models.policy(tmp_path / "seed", seed=9)
    assert other_weights.fingerprint == expanded.fingerprint
    assert models.policy(tmp_path / "plain", native=()).fingerprint != expanded.fingerprint
