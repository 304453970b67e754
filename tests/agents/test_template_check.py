"""The conformance of chat templates: what each family's shape allows, and every planted fault is named."""

import json

import pytest

from peira.agents.template_check import TEMPLATE_CHECKS, check_template, check_tokenizer
from peira.tools.errors import UsageError

pytest.importorskip("transformers")

CHECKS = ("conversation", *TEMPLATE_CHECKS)

BOTH, WINDOW = ("append", "window"), ("window",)


@pytest.mark.parametrize(
    ("shape", "history", "facts"),
    [
        (
            "chatml",
            BOTH,
            {
                "start token": "none",
                "system message": "a role of its own",
                "reasoning": "kept",
                "tools": "not shown",
                "tool messages": "a role of their own, calls dropped",
                "two user messages in a row": "allowed",
                "end of a reply": "'<|im_end|>'",
            },
        ),
        (
            "qwen2.5",
            BOTH,
            {
                "reasoning": "kept",
                "tools": "listed",
                "tool messages": "inside a user message, calls shown",
                "before the first message": repr(
                    "<|im_start|>system\nYou are a helpful machine.<|im_end|>\n<|im_start|>user\n"
                ),
            },
        ),
        (
            "qwen3",
            WINDOW,
            {
                "reasoning": "stripped from earlier turns",
                "prefix property": "holds",
                "tool messages": "inside a user message, calls shown",
            },
        ),
        (
            "llama3",
            BOTH,
            {
                "start token": "written once",
                "end of a reply": "'<|eot_id|>'",
                "tool messages": "a role of their own, calls shown",
                "tools": "listed",
            },
        ),
        (
            "gemma",
            BOTH,
            {
                "start token": "written once",
                "system message": "refused; joined with the first user message",
                "two user messages in a row": "refused",
                "tool messages": "refused",
                "end of a reply": "'<end_of_turn>'",
            },
        ),
    ],
)
def test_what_each_shape_allows(templates, tmp_path, shape, history, facts):
    report = check_template(templates.folder(tmp_path / shape, shape))
    assert report.findings == ()
    assert report.passed == CHECKS
    assert report.history == history
    assert {name: report.facts[name] for name in facts} == facts
    assert report.ok
    assert json.loads(json.dumps(report.to_json(), allow_nan=False))["history"] == list(history)
    assert f"history: {', '.join(history)}" in str(report)


def test_b03_p065_where_reasoning_is_taken_out_the_report_says_where(templates):
    report = check_tokenizer(templates.tokenizer("qwen3"), "qwen3")
    broken = report.facts["prefix property with reasoning"]
    assert broken.startswith("broken at character ")
    assert "<think>" in broken
    assert "own sample" in report.why


def _planted(templates):
    chatml = templates.CHATML
    return {
        "separators": chatml.replace("{{ m.role }}", "{{ m.role }} {{ loop.index }}"),
        "one start token": "{{ bos_token }}{{ bos_token }}" + chatml,
        "end of a reply": "{% for m in messages %}{{ m.role }}: {{ m.content }}\n{% endfor %}assistant: ",
        "special tokens": chatml.replace("{{ m.content }}", "{{ m.content }} {{ m.content }}"),
        "the same every day": "{{ strftime_now('%d %B %Y') }}\n" + chatml,
        "conversation": "{% if messages | length > 1 %}{{ raise_exception('one message') }}{% endif %}" + chatml,
    }


@pytest.mark.parametrize("check", [name for name in CHECKS if name != "text comes back"])
def test_every_planted_fault_is_named(templates, check):
    report = check_tokenizer(templates.tokenizer(template=_planted(templates)[check]), check)
    assert check in [finding.check for finding in report.findings]
    assert check not in report.passed
    assert not report.ok
    assert all(finding.cause and finding.remedy for finding in report.findings)


@pytest.mark.parametrize("check", ["separators", "one start token", "end of a reply", "special tokens", "conversation"])
def test_a_template_that_breaks_what_is_needed_allows_no_history(templates, check):
    report = check_tokenizer(templates.tokenizer(template=_planted(templates)[check]), check)
    assert report.history == ()
    assert report.why


def test_a_tokenizer_that_changes_text_is_named(templates):
    from tokenizers import normalizers

    lower = templates.tokenizer()
    lower.backend_tokenizer.normalizer = normalizers.Strip()
    report = check_tokenizer(lower, "strips")
    assert "text comes back" in [finding.check for finding in report.findings]


def test_b02_a_dropped_line_break_between_turns_is_seen(templates, monkeypatch):
    """The fault is planted in the text that grows prompts, not in the template."""
    from peira.agents.text import HFText

    whole = HFText.follow
    monkeypatch.setattr(
        HFText, "follow", lambda self, closed, m: [i for n, i in enumerate(whole(self, closed, m)) if n]
    )
    report = check_tokenizer(templates.tokenizer(), "chatml")
    assert "separators" in [finding.check for finding in report.findings]


def test_a_template_that_drops_the_system_message_gets_it_in_the_users(templates):
    drops = templates.CHATML.replace("{% for m in messages %}", "{% for m in messages if m.role != 'system' %}")
    report = check_tokenizer(templates.tokenizer(template=drops), "drops")
    assert report.facts["system message"] == "dropped by the template; joined with the first user message"
    assert report.ok


def test_ids_where_prompt_and_reply_meet_are_told_apart_from_the_templates_own(templates):
    """Two line breaks before a reply are one token alone and two beside a word: no fault of the template."""
    doubled = templates.CHATML.replace("assistant\n", "assistant\n\n").replace("{{ m.role }}\n", "{{ m.role }}\n\n")
    report = check_tokenizer(templates.tokenizer(template=doubled), "doubled")
    assert report.facts["ids at the seams"].startswith("differ from id ")
    assert (report.history, report.findings) == (BOTH, ())
    assert check_tokenizer(templates.tokenizer(), "x").facts["ids at the seams"] == "as when tokenized at once"


def test_a_prompt_that_opens_the_block_breaks_the_prefix_and_says_so(templates):
    opens = templates.CHATML.replace(
        "{% if add_generation_prompt %}<|im_start|>assistant\n",
        "{% if add_generation_prompt %}<|im_start|>assistant\n<think>\n",
    )
    report = check_tokenizer(templates.tokenizer(template=opens), "opens")
    assert report.history == WINDOW
    assert "opens the block" in report.facts["reasoning"]
    assert report.facts["prefix property"].startswith("broken at character ")


def test_p067_a_start_token_that_the_tokenizer_adds_by_itself_is_not_doubled(templates):
    from tokenizers import processors

    made = templates.tokenizer("llama3")
    made.backend_tokenizer.post_processor = processors.TemplateProcessing(
        single="<|begin_of_text|> $A", special_tokens=[("<|begin_of_text|>", made.bos_token_id)]
    )
    assert made("a")["input_ids"][0] == made.bos_token_id
    assert check_tokenizer(made, "llama3").passed == CHECKS


def test_folders_without_a_tokenizer_are_the_persons_error(tmp_path):
    with pytest.raises(UsageError, match="does not exist"):
        check_template(tmp_path / "none")
    with pytest.raises(UsageError, match="cannot be read"):
        check_template(tmp_path)


@pytest.mark.parametrize(("shape", "code"), [("qwen3", 0), ("broken", 1)])
def test_peira_check_template_says_the_verdict(templates, tmp_path, capsys, shape, code):
    from peira.training.cli import main

    if shape == "broken":
        folder = templates.folder(tmp_path / shape, template=_planted(templates)["separators"])
    else:
        folder = templates.folder(tmp_path / shape, shape)
    assert main(["check", "--template", str(folder)]) == code
    shown = capsys.readouterr().out
    assert ("history: window" in shown) == (code == 0)
    assert ("FAILED   separators" in shown) == (code == 1)
    assert main(["check", "--template", str(folder), "--json"]) == code
    report = json.loads(capsys.readouterr().out)
    assert report["ok"] == (code == 0)
    assert report["history"] == ([] if code else ["window"])
