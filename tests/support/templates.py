"""Small chat templates that behave as those of well-known families, and a tokenizer to go with them."""

from pathlib import Path
from typing import Any

CHATML = (
    "{% for m in messages %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endfor %}"
    "{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
_TOOLS = (
    "{% if tools %}\nTools:{% for t in tools %}\n{{ t | tojson }}{% endfor %}\n"
    'Answer with <tool_call>{"name": ..., "arguments": ...}</tool_call>.{% endif %}'
)
_CALLS = (
    "{% for c in m.tool_calls or [] %}<tool_call>\n"
    '{"name": "{{ c.function.name }}", "arguments": {{ c.function.arguments | tojson }}}\n</tool_call>{% endfor %}'
)
_QWEN = (
    "<|im_start|>system\n{% if messages[0].role == 'system' %}{{ messages[0].content }}"
    "{% else %}You are a helpful machine.{% endif %}" + _TOOLS + "<|im_end|>\n"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}<|im_start|>user\n<tool_response>\n{{ m.content }}\n</tool_response><|im_end|>\n"
    "{% elif m.role == 'assistant' %}<|im_start|>assistant\n%ASSISTANT%" + _CALLS + "<|im_end|>\n"
    "{% elif not (loop.first and m.role == 'system') %}<|im_start|>{{ m.role }}\n{{ m.content }}<|im_end|>\n{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}"
)
QWEN25 = _QWEN.replace("%ASSISTANT%", "{{ m.content }}")
"""A default system message; calls as JSON in tags; results inside user messages."""
QWEN3 = (
    "{% set ns = namespace(last=0) %}{% for m in messages %}{% if m.role == 'user' %}{% set ns.last = loop.index0 %}"
)
QWEN3 += "{% endif %}{% endfor %}" + _QWEN.replace(
    "%ASSISTANT%",
    "{% if loop.index0 > ns.last %}{% if '</think>' not in m.content %}<think>\n\n</think>\n\n{% endif %}"
    "{{ m.content }}"
    "{% else %}{{ m.content.split('</think>')[-1].lstrip('\n') }}{% endif %}",
)
"""Reasoning is taken out of every reply before the last user message; the last one gets an empty block."""
LLAMA3 = (
    "{{ bos_token }}{% if tools %}<|start_header_id|>system<|end_header_id|>\n\n{% for t in tools %}{{ t | tojson }}\n"
    "{% endfor %}<|eot_id|>{% endif %}"
    "{% for m in messages %}"
    "{% if m.role == 'tool' %}<|start_header_id|>ipython<|end_header_id|>\n\n{{ m.content | tojson }}<|eot_id|>"
    "{% elif m.tool_calls %}<|start_header_id|>assistant<|end_header_id|>\n\n"
    '{"name": "{{ m.tool_calls[0].function.name }}", "parameters": {{ m.tool_calls[0].function.arguments | tojson }}}'
    "<|eot_id|>"
    "{% else %}<|start_header_id|>{{ m.role }}<|end_header_id|>\n\n{{ m.content | trim }}<|eot_id|>{% endif %}"
    "{% endfor %}{% if add_generation_prompt %}<|start_header_id|>assistant<|end_header_id|>\n\n{% endif %}"
)
"""A printed start token, trimmed contents, results in a role of their own."""
GEMMA = (
    "{{ bos_token }}{% if messages[0].role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{% for m in messages %}{% if (m.role == 'user') != (loop.index0 % 2 == 0) %}"
    "{{ raise_exception('roles must alternate user/assistant/user') }}{% endif %}"
    "<start_of_turn>{{ 'model' if m.role == 'assistant' else m.role }}\n{{ m.content | trim }}<end_of_turn>\n"
    "{% endfor %}{% if add_generation_prompt %}<start_of_turn>model\n{% endif %}"
)
"""No system role, alternation demanded, a printed start token."""

SHAPES = {"chatml": CHATML, "qwen2.5": QWEN25, "qwen3": QWEN3, "llama3": LLAMA3, "gemma": GEMMA}

_TOKENS = {
    "llama3": ("<|begin_of_text|>", "<|end_of_text|>", ["<|start_header_id|>", "<|end_header_id|>", "<|eot_id|>"]),
    "gemma": ("<bos>", "<eos>", ["<start_of_turn>", "<end_of_turn>"]),
}


def tokenizer(shape: str = "chatml", template: str | None = None) -> Any:
    """Return a byte-level tokenizer with a few merges, a shape's control tokens, and a template."""
    import transformers
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    merges = [("h", "e"), ("l", "l"), ("p", "e"), ("i", "r"), ("pe", "ir"), ("peir", "a"), ("Ċ", "Ċ"), ("<", "|")]
    words = [*alphabet, *(a + b for a, b in merges)]
    raw = Tokenizer(models.BPE(vocab={word: i for i, word in enumerate(words)}, merges=merges))
    raw.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    raw.decoder = decoders.ByteLevel()
    bos, eos, more = _TOKENS.get(shape, ("<s>", "<|endoftext|>", ["<|im_start|>", "<|im_end|>"]))
    made = transformers.PreTrainedTokenizerFast(
        tokenizer_object=raw, bos_token=bos, eos_token=eos, additional_special_tokens=more
    )
    if shape.startswith("qwen"):
        made.add_tokens(["<tool_call>", "</tool_call>", "<think>", "</think>"])
    made.chat_template = SHAPES[shape] if template is None else template
    return made


def folder(path: Path, shape: str = "chatml", template: str | None = None) -> Path:
    """Save a tokenizer as a model's folder holds it."""
    tokenizer(shape, template).save_pretrained(str(path))
    return path
