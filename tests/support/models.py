"""Small models for tests, and the log-probs that a plain forward pass gives."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from peira.agents.engines.base import Request
from peira.agents.policy import Policy
from peira.agents.policy.new import new_policy
from peira.agents.types import Completion, Legal
from peira.tools.native import NativeAction

TEXTS = [f"Sort ascending: {a} B C. compare {a} B swap B {a} {a} < B\n" for a in "ABCDE"] * 20
NATIVE = (
    NativeAction("compare", "compare", routing=True),
    NativeAction("swap", "swap the", routing=True),
    NativeAction("A", " A"),
    NativeAction("B", " B"),
)


def policy(folder: Path, *, native: Sequence[NativeAction] = NATIVE, **given: Any) -> Policy:
    """Return a nano policy with the native actions of a world called ``toy``."""
    return new_policy(
        folder, **{"size": "nano", "texts": TEXTS, "world": "toy" if native else None, "native": native, **given}
    )


def _filled(model: Any, seed: int) -> Any:
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim > 1:
                parameter.normal_(0.0, 0.4, generator=generator)
    return model.float().eval()


_SHAPE = {
    "vocab_size": 50,
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
}


def llama(seed: int = 0, **given: Any) -> Any:
    """Return a random Llama: 50 ids, two layers, four heads over two key heads."""
    config = LlamaConfig(
        **{**_SHAPE, "num_key_value_heads": 2, "max_position_embeddings": 256, "tie_word_embeddings": False, **given}
    )
    with torch.random.fork_rng(devices=[]):
        return _filled(LlamaForCausalLM(config), seed)


def sliding(seed: int = 0) -> Any:
    """Return a random Qwen3 whose second layer sees the last four positions only."""
    config = Qwen3Config(
        **_SHAPE,
        num_key_value_heads=1,
        head_dim=16,
        max_position_embeddings=256,
        use_sliding_window=True,
        sliding_window=4,
        layer_types=["full_attention", "sliding_attention"],
        tie_word_embeddings=False,
    )
    with torch.random.fork_rng(devices=[]):
        return _filled(Qwen3ForCausalLM(config), seed)


def bigram(table: NDArray[np.float64]) -> Any:
    """Return a model whose logits after id ``i`` are row ``i`` of a table: no layers, one-hot embeddings."""
    vocab = len(table)
    model = llama(
        vocab_size=vocab, hidden_size=vocab, num_hidden_layers=0, num_attention_heads=1, num_key_value_heads=1,
        head_dim=2, rms_norm_eps=1e-12,
    )  # fmt: skip
    with torch.no_grad():
        model.model.embed_tokens.weight.copy_(torch.eye(vocab))
        model.lm_head.weight.copy_(torch.from_numpy(table.T) / vocab**0.5)  # the norm scales a one-hot by sqrt(vocab)
    return model


def teacher_forced(model: Any, request: Request, completion: Completion, vocab: int) -> NDArray[np.float32]:
    """Return the log-prob of each sampled id by one plain forward pass, no cache, no engine."""
    rows = model.get_output_embeddings().weight.shape[0]
    ids = np.concatenate([request.prompt, completion.ids]).astype(np.int64)
    context = torch.from_numpy(ids[:-1])[None]  # a native action can only be the last id, which is never an input
    with torch.no_grad():
        logits = model(input_ids=context, use_cache=False).logits[0, len(request.prompt) - 1 :].float()
    allowed = torch.zeros(rows, dtype=torch.bool)
    legal = request.legal or Legal(True, ())
    allowed[:vocab] = legal.vocab
    allowed[list(legal.ids)] = True
    logits = logits.masked_fill(~allowed, -torch.inf) / (request.temperature or 1.0)
    chosen: NDArray[np.float32] = (
        logits.log_softmax(-1).gather(1, torch.from_numpy(ids[len(request.prompt) :])[:, None])[:, 0].numpy()
    )
    return chosen
