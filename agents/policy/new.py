"""Tiny policies: an ordinary Hugging Face folder made from a seed and the texts of the worlds it will play in."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from peira.agents.policy.expand import add_actions
from peira.agents.policy.folder import Policy, libraries, silent, write_actions, writing
from peira.envs.seeding import seed_of
from peira.tools.errors import UsageError, unknown
from peira.tools.native import NativeAction

__all__ = ["SIZES", "Size", "new_policy"]

_VOCAB = 512
"""Most ids of a tiny policy, native rows included: on a CPU the head is a large part of its work."""
_CONTEXT = 2_048
_HEAD = 32
"""Width of an attention head: the smallest that serving engines have kernels for."""
_SPECIALS = ("<|pad|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>", "<|tool|>")
_TEMPLATE = (
    "{%- for message in messages -%}{{ '<|' + message['role'] + '|>' + message['content'] + '<|end|>' }}{%- endfor -%}"
    "{%- if add_generation_prompt -%}<|assistant|>{%- endif -%}"
)
"""ChatML's shape with one id for who speaks and one for the end, and nothing in between."""


@dataclass(frozen=True, slots=True)
class Size:
    """Shape of a Qwen3 decoder (heads are 32 wide)."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    mlp: int


SIZES: dict[str, Size] = {
    "nano": Size(layers=2, hidden=64, heads=2, kv_heads=1, mlp=128),
    "micro": Size(layers=3, hidden=64, heads=2, kv_heads=1, mlp=128),
    "tiny": Size(layers=4, hidden=96, heads=3, kv_heads=1, mlp=128),
    "small": Size(layers=4, hidden=128, heads=4, kv_heads=1, mlp=256),
    "base": Size(layers=6, hidden=192, heads=6, kv_heads=2, mlp=384),
}
"""About 0.1, 0.16, 0.3, 0.6 and 2 million parameters."""


def new_policy(
    path: str | Path,
    *,
    size: str = "tiny",
    seed: int = 0,
    texts: Iterable[str],
    world: str | None = None,
    native: Sequence[NativeAction] = (),
    tied: bool = False,
    overwrite: bool = False,
) -> Policy:
    """Make a policy folder; equal arguments make equal bytes, and no global random state is touched.

    Args:
        path: where to; it must not hold anything unless ``overwrite``.
        size: one of ``SIZES``.
        seed: seed of the weights.
        texts: what the tokenizer is trained on, see ``corpus.world_texts``.
        world: world whose native actions get rows.
        native: those actions.
        tied: whether the output head shares the input embedding.
        overwrite: replace a folder that is there.

    Raises:
        UsageError: an unknown size, no texts, native actions without a world, or a folder in the way.
    """
    if size not in SIZES:
        raise unknown("policy size", size, SIZES)
    if native and world is None:
        raise UsageError("native actions belong to a world; name it")
    with writing(Path(path), overwrite=overwrite) as folder, silent():
        tokenizer = _tokenizer(texts, _VOCAB - len(native))
        model = _model(SIZES[size], tokenizer, seed, tied)
        if world is not None and native:
            write_actions(folder, add_actions(model, tokenizer, world, native), native)
        tokenizer.save_pretrained(folder)
        model.save_pretrained(folder)
    return Policy.load(path)


def _tokenizer(texts: Iterable[str], vocab: int) -> Any:
    """Train a byte-level BPE; digits stay single, so that numbers are read and written alike everywhere."""
    _, transformers = libraries()
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    lines = list(texts)
    if not any(lines):
        raise UsageError("a tokenizer is trained on texts, but none were given; pass corpus.world_texts(env)")
    core = Tokenizer(models.BPE())
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    core.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=vocab,
        min_frequency=2,
        special_tokens=list(_SPECIALS),
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(lines, trainer)
    pad, end, *roles = _SPECIALS
    return transformers.PreTrainedTokenizerFast(
        tokenizer_object=core,
        pad_token=pad,
        eos_token=end,
        additional_special_tokens=roles,
        chat_template=_TEMPLATE,
        model_max_length=_CONTEXT,
        clean_up_tokenization_spaces=False,
    )


def _model(size: Size, tokenizer: Any, seed: int, tied: bool) -> Any:
    """Build a Qwen3 whose weights come from one generator per tensor, named by the seed and the tensor."""
    torch, transformers = libraries()
    config = transformers.Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=size.hidden,
        intermediate_size=size.mlp,
        num_hidden_layers=size.layers,
        num_attention_heads=size.heads,
        num_key_value_heads=size.kv_heads,
        head_dim=_HEAD,
        max_position_embeddings=_CONTEXT,
        tie_word_embeddings=tied,
        pad_token_id=tokenizer.pad_token_id,
        eos_token_id=tokenizer.eos_token_id,
        bos_token_id=None,
        use_cache=True,
    )
    with torch.random.fork_rng(devices=[]):  # the library's own initialisation draws from the global generator
        model = transformers.Qwen3ForCausalLM(config)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if parameter.ndim == 1:
                parameter.fill_(1.0)  # norms
                continue
            generator = torch.Generator().manual_seed(seed_of("policy", seed, name))
            parameter.normal_(0.0, _spread(name, parameter.shape[-1], size.layers), generator=generator)
    return model.float().eval()


def _spread(name: str, fan_in: int, layers: int) -> float:
    """Standard deviation of a fresh matrix: variance-preserving, with quiet residual branches and a flat head."""
    spread = float(fan_in**-0.5)
    if name.endswith(("o_proj.weight", "down_proj.weight")):
        return spread * float((2 * layers) ** -0.5)
    if "lm_head" in name or "embed_tokens" in name:
        return 0.5 * spread
    return spread
