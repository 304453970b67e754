"""Does a chat template keep what exact-token training needs? ``check_template("policies/tiny")`` says so, by trying it.

A prompt grows by ids alone: what was sampled is never rendered again. That works as far as the template would have put
the same ids there, and this is what is tried: the beginning, what stands between two turns, what becomes of reasoning,
and whether text of a world can turn into a control token. The verdict names the history modes of a view that fit.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from peira.agents.policy.folder import read_tokenizer
from peira.agents.text import HFText, Message
from peira.envs.checks.lab import Finding
from peira.tools.errors import UsageError

__all__ = ["TEMPLATE_CHECKS", "TemplateReport", "check_template", "check_tokenizer"]

_SAID = ("peira-one", "peira-two", "peira-three")
_WORD = "peira-word"
_REASONED = f"<think>\n{_WORD}\n</think>\n\npeira-answer"
_TEXTS = ("a b", " a", "a\n\nb\n", "é 🚪 中", "1 234.5", "<b>{x}</b>", "\tx  y")
_TOOL = {
    "type": "function",
    "function": {
        "name": "peira_tool",
        "description": "Look.",
        "parameters": {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]},
    },
}
_CALL = {"id": "call00000", "type": "function", "function": {"name": "peira_tool", "arguments": {"q": _WORD}}}


@dataclass(frozen=True, slots=True)
class TemplateReport:
    """What was found about a template."""

    name: str
    history: tuple[str, ...]
    """History modes of a view that the template allows: ``append``, ``window``, both, or none."""
    why: str
    """The verdict in words."""
    facts: Mapping[str, str]
    """What kind of template it is."""
    passed: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def to_json(self) -> dict[str, Any]:
        """Return the report as plain JSON data."""
        return {**asdict(self), "ok": self.ok}

    def __str__(self) -> str:
        lines = [self.name]
        lines += [f"  passed   {name}" for name in self.passed]
        lines += [f"  FAILED   {str(finding).replace(chr(10), chr(10) + '  ')}" for finding in self.findings]
        lines += [f"  {name}: {fact}" for name, fact in self.facts.items()]
        lines.append(f"  history: {', '.join(self.history) or 'none'} ({self.why})")
        return "\n".join(lines)


class _Bench:
    """A tokenizer with its template, and the ids that it renders."""

    def __init__(self, tokenizer: Any) -> None:
        self.tokenizer = tokenizer
        self.text = HFText(tokenizer)
        self.controls = set(tokenizer.get_added_vocab().values()) | set(tokenizer.all_special_ids)

    def shown(self, messages: Sequence[Mapping[str, Any]], *, prompt: bool = True, **given: Any) -> str:
        """Render a conversation as the template would, all at once."""
        return str(
            self.tokenizer.apply_chat_template(
                [dict(message) for message in messages], tokenize=False, add_generation_prompt=prompt, **given
            )
        )

    def ids(self, text: str) -> list[int]:
        """Tokenize rendered text: its control literals are control tokens."""
        return list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    def grown(self, replies: Sequence[str]) -> list[int]:
        """Return the prompt after these replies as a rollout grows it: nothing is rendered twice.

        A reply is what a model samples: a mark of reasoning in it may be a control token.
        """
        messages = _chat(replies)
        ids = self.text.start(messages[:1])
        for index, reply in enumerate(replies):
            ids += [*self.ids(reply), self.text.stop[0]]
            ids += self.text.follow(True, messages[2 * index + 2 : 2 * index + 3])
        return ids


def _chat(replies: Sequence[str]) -> list[Message]:
    messages: list[Message] = [{"role": "user", "content": "peira-begin"}]
    for index, reply in enumerate(replies):
        messages += [{"role": "assistant", "content": reply}, {"role": "user", "content": f"peira-seen-{index}"}]
    return messages


# ---- what must hold -------------------------------------------------------------------------------------------------


def _separators(bench: _Bench) -> Iterator[Finding]:
    whole, grown = bench.shown(_chat(_SAID)), bench.text.decode(bench.grown(_SAID))
    after = bench.text.decode(bench.text.follow(True, [_chat(_SAID)[-1]]))
    if _grows(bench, _SAID) is None and whole != grown:
        yield Finding(
            "separators",
            f"three turns piece by piece are not the chat rendered at once: {_difference(whole, grown)}",
            "the text between two turns must not depend on how many there are; use a template in which it does not",
        )
    elif not whole.endswith(after):
        yield Finding(
            "separators",
            f"what follows a reply differs with the turn: {_difference(whole[-len(after) :], after)}",
            "use a template whose text around a user message is the same in every turn",
        )


def _start(bench: _Bench) -> Iterator[Finding]:
    bos = bench.tokenizer.bos_token_id
    begin, then = bench.text.start(_chat(())), bench.text.follow(False, _chat(()))
    if bos is not None and bos not in bench.text.stop and (begin.count(bos) > 1 or bos in then):
        yield Finding(
            "one start token",
            f"{begin.count(bos)} start tokens begin a conversation and {then.count(bos)} stand between two turns",
            "let the template write bos_token once, before the first message",
        )
    if "peira-begin" not in bench.text.decode(begin):
        yield Finding("one start token", "the first message is not shown as it is", "use a template that shows it")


def _stop(bench: _Bench) -> Iterator[Finding]:
    after = bench.text.follow(False, _chat(()))
    if not after or after[0] not in bench.text.stop:
        yield Finding(
            "end of a reply",
            f"the template closes a reply with {bench.text.decode(after[:8])!r}, which is no control token, so a model "
            f"would be stopped by {bench.text.decode(bench.text.stop[:1])!r}, which the template never writes there",
            "close replies with a control token of the tokenizer",
        )


def _neutral(bench: _Bench) -> Iterator[Finding]:
    for literal in [bench.text.decode([i]) for i in sorted(bench.controls)]:
        if not literal.strip():
            continue
        said: Message = {"role": "user", "content": f"see {literal}."}
        plain: Message = {"role": "user", "content": "see x."}
        for where, make in (("start", bench.text.start), ("follow", lambda m: bench.text.follow(True, m))):
            try:
                ids = make([said])
            except UsageError as error:
                yield Finding("special tokens", f"{literal!r} in a message: {error}", "write each message once")
                return
            if [i for i in ids if i in bench.controls] != [i for i in make([plain]) if i in bench.controls]:
                yield Finding(
                    "special tokens",
                    f"{literal!r} in a user's message becomes a control token ({where})",
                    "a world could end turns or speak for the model; use a tokenizer that can spell it in pieces",
                )
                return
            if f"see {literal}." not in bench.text.decode(ids):
                yield Finding(
                    "special tokens",
                    f"{literal!r} in a user's message is not shown as it was written ({where})",
                    "use a template that leaves contents alone",
                )
                return


def _exact(bench: _Bench) -> Iterator[Finding]:
    for text in _TEXTS:
        back = bench.text.decode(bench.text.encode(text))
        if back != text:
            yield Finding(
                "text comes back",
                f"{text!r} is read back as {back!r}",
                "use a tokenizer without normalisation; actions are read from decoded ids",
            )
            return


def _steady(bench: _Bench) -> Iterator[Finding]:
    dated = bench.shown(_chat(()), strftime_now=lambda form: "peira-date")
    if "peira-date" in dated and dated != bench.shown(_chat(())):
        yield Finding(
            "the same every day",
            "the prompt holds today's date: a rerun of a seed has another prompt tomorrow",
            "use a copy of the template with a fixed date",
        )


TEMPLATE_CHECKS: Mapping[str, Callable[[_Bench], Iterator[Finding]]] = {
    "separators": _separators,
    "one start token": _start,
    "end of a reply": _stop,
    "special tokens": _neutral,
    "text comes back": _exact,
    "the same every day": _steady,
}
"""What must hold, by name; beside them stands ``conversation``: user, assistant, user can be rendered at all."""

_NEEDED = ("conversation", "separators", "one start token", "end of a reply", "special tokens")
"""Without these no history mode is allowed."""


# ---- what kind it is ------------------------------------------------------------------------------------------------


def _grows(bench: _Bench, replies: Sequence[str]) -> str | None:
    """Return where a later prompt stops extending an earlier one followed by its reply; ``None``: nowhere."""
    for count in range(len(replies)):
        before = bench.shown(_chat(replies[:count])) + replies[count]
        after = bench.shown(_chat(replies[: count + 1]))
        if not after.startswith(before):
            return _difference(before, after)
    return None


def _difference(one: str, other: str) -> str:
    pairs = zip(one, other, strict=False)
    at = next((n for n, pair in enumerate(pairs) if pair[0] != pair[1]), min(len(one), len(other)))
    shown = [text[max(0, at - 20) : at + 30] for text in (one, other)]
    return f"character {at}: {shown[0]!r} against {shown[1]!r}"


def _seams(bench: _Bench) -> str:
    """Compare ids with those of the chat tokenized at once: a tokenizer may join what a prompt and a reply meet in."""
    whole, grown = bench.ids(bench.shown(_chat(_SAID))), bench.grown(_SAID)
    if whole == grown:
        return "as when tokenized at once"
    at = next((n for n, pair in enumerate(zip(whole, grown, strict=False)) if pair[0] != pair[1]), len(whole))
    return f"differ from id {at} on from the chat tokenized at once; those really sampled are kept"


def _thinking(bench: _Bench) -> str:
    prompt = bench.text.decode(bench.text.start(_chat(()))).rstrip()
    opened = ", and the prompt opens the block" if prompt.endswith(("<think>", "[THINK]")) else ""
    empty = ", and the prompt holds an empty block" if prompt.endswith("</think>") else ""
    shown = bench.shown(_chat([_REASONED]))
    kept = "kept" if _REASONED in shown else "kept in another form" if _WORD in shown else "stripped from earlier turns"
    return kept + opened + empty


def _tried(call: Callable[[], str]) -> str:
    try:
        return call()
    except Exception:  # the boundary to foreign Jinja code: it refuses with whatever error it likes
        return "refused"


def _tools(bench: _Bench) -> str:
    def listed() -> str:
        return "listed" if "peira_tool" in bench.shown(_chat(()), tools=[_TOOL]) else "not shown"

    return _tried(listed)


def _tool_messages(bench: _Bench) -> str:
    messages: list[dict[str, Any]] = [
        {"role": "user", "content": "peira-begin"},
        {"role": "assistant", "content": "", "tool_calls": [_CALL]},
        {"role": "tool", "content": "peira-result", "name": "peira_tool", "tool_call_id": "call00000"},
    ]

    def shown() -> str:
        text = bench.shown(messages)
        if "peira-result" not in text:
            return "silently dropped"
        as_user = bench.text.decode(bench.text.follow(True, [{"role": "user", "content": "peira-result"}]))
        head = as_user.partition("peira-result")[0].strip()
        before = text[: text.index("peira-result")]
        user = head in before[before.rfind("peira_tool") :]
        call = "calls shown" if _WORD in text else "calls dropped"
        return f"{'inside a user message' if user else 'a role of their own'}, {call}"

    return _tried(shown)


def _users(bench: _Bench) -> str:
    messages = [{"role": "user", "content": "peira-one"}, {"role": "user", "content": "peira-two"}]
    return _tried(lambda: "allowed" if "peira-two" in bench.shown(messages) else "silently dropped")


def _role(bench: _Bench) -> str:
    messages = [{"role": "system", "content": _WORD}, {"role": "user", "content": "peira-begin"}]
    own = _tried(lambda: "a role of its own" if _WORD in bench.shown(messages) else "dropped by the template")
    return own if own.startswith("a role") else f"{own}; joined with the first user message"


def _preamble(bench: _Bench) -> str:
    text = bench.text.decode(bench.text.start(_chat(())))
    before = text.partition("peira-begin")[0]
    return repr(before if len(before) <= 120 else f"{before[:100]}... ({len(before)} characters)")


def _facts(bench: _Bench) -> dict[str, str]:
    plain, thinking = _grows(bench, _SAID), _grows(bench, [_REASONED, _REASONED])
    bos = bench.tokenizer.bos_token_id
    begins = bos is not None and bos in bench.text.start(_chat(()))
    return {
        "before the first message": _preamble(bench),
        "start token": "written once" if begins else "none",
        "end of a reply": repr(bench.text.decode(bench.text.stop[:1])),
        "system message": _role(bench),
        "prefix property": f"broken at {plain}" if plain else "holds",
        "prefix property with reasoning": f"broken at {thinking}" if thinking else "holds",
        "ids at the seams": _seams(bench),
        "reasoning": _thinking(bench),
        "tools": _tools(bench),
        "tool messages": _tool_messages(bench),
        "two user messages in a row": _users(bench),
    }


# ---- the verdict ----------------------------------------------------------------------------------------------------


def check_template(folder: str | Path) -> TemplateReport:
    """Try the chat template of a model's folder; only its tokenizer files are read.

    Raises:
        UsageError: no such folder, or no tokenizer in it. What the template does wrong is a finding.
    """
    return check_tokenizer(read_tokenizer(folder), str(folder))


def check_tokenizer(tokenizer: Any, name: str) -> TemplateReport:
    """Try the chat template of a loaded tokenizer."""
    try:
        bench = _Bench(tokenizer)
        facts = _facts(bench)
    except Exception as error:  # the boundary to foreign Jinja code: whatever it raises is what was found
        found = Finding("conversation", f"{type(error).__name__}: {error}", "use a template for chats of several turns")
        return TemplateReport(name, (), "a conversation cannot be rendered", {}, (), (found,))
    findings: list[Finding] = []
    passed = ["conversation"]
    for check, run in TEMPLATE_CHECKS.items():
        try:
            found_now = list(run(bench))
        except Exception as error:  # the same boundary
            found_now = [Finding(check, f"{type(error).__name__}: {error}", "use a template that renders this")]
        findings += found_now
        if not found_now:
            passed.append(check)
    history, why = _verdict(bench, facts, findings)
    return TemplateReport(name, history, why, facts, tuple(passed), tuple(findings))


def _verdict(bench: _Bench, facts: Mapping[str, str], findings: Sequence[Finding]) -> tuple[tuple[str, ...], str]:
    broken = [finding.check for finding in findings if finding.check in _NEEDED]
    if broken:
        return (), f"first put right: {', '.join(dict.fromkeys(broken))}"
    if facts["prefix property"] != "holds":
        return ("window",), "a later prompt does not extend an earlier one, so each turn is its own sample"
    if facts["prefix property with reasoning"] != "holds" or not bench.text.append_ok:
        return ("window",), (
            "earlier reasoning does not stay as it was, so each turn is its own sample; an appended context would show "
            "the model what its template takes out"
        )
    return ("append", "window"), "a later prompt extends an earlier one and its reply, id by id"
