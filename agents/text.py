"""From messages to token ids and back, without ever encoding a token twice.

A ``Text`` opens a conversation (``start``) and says which ids stand between a completion and the next one (``follow``).
What was sampled is never rendered again: a prompt grows by ids alone. Text of worlds and people can never become a
control token (the end of a message, a role marker, a native action), whatever it says.
"""

import re
from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, Protocol, runtime_checkable

from peira.envs.seeding import digest
from peira.tools.errors import UsageError

__all__ = ["ByteText", "HFText", "Message", "Text"]

Message = Mapping[str, str]
"""``{"role": "system" | "user" | "assistant", "content": text}``."""


@runtime_checkable
class Text(Protocol):
    """A tokenizer with its chat template."""

    @property
    def stop(self) -> tuple[int, ...]:
        """Ids that end a message of the model; the first one is the template's own."""
        ...

    @property
    def vocab(self) -> int:
        """Number of ids of the plain vocabulary; native actions take the ids from here on."""
        ...

    @property
    def fingerprint(self) -> str:
        """Hash of vocabulary and template."""
        ...

    @property
    def append_ok(self) -> bool:
        """Whether the template leaves earlier turns as they are.

        ``False`` for templates that drop earlier reasoning: an appended context then keeps what the template would
        have removed. The ids stay exact either way; a *window* view shows the model bounded prompts instead.
        """
        ...

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; none of them is a control token."""
        ...

    def decode(self, ids: Iterable[int]) -> str:
        """Return the exact text of ids, a control token as its literal."""
        ...

    def start(self, messages: Sequence[Message]) -> list[int]:
        """Return the ids of a conversation up to where the model begins to write."""
        ...

    def follow(self, closed: bool, messages: Sequence[Message]) -> list[int]:
        """Return the ids between a completion and the next: its end if it is not ``closed``, then ``messages``."""
        ...


class ByteText:
    """UTF-8 bytes and five control ids: a whole ``Text`` without a tokenizer file, for tests and tiny models."""

    _LITERALS = ("<|begin|>", "<|end|>", "<|system|>", "<|user|>", "<|assistant|>")
    _BEGIN, _END = 256, 257
    _ROLES: Mapping[str, int] = MappingProxyType({"system": 258, "user": 259, "assistant": 260})

    stop: tuple[int, ...] = (257,)
    vocab = 261
    fingerprint = "bytes-1"
    append_ok = True

    def encode(self, text: str) -> list[int]:
        """Return the text's UTF-8 bytes (lone surrogates as they would be written by Python)."""
        return list(text.encode("utf-8", "surrogatepass"))

    def decode(self, ids: Iterable[int]) -> str:
        """Return the text; bytes that are not UTF-8 become U+FFFD, ids beyond the vocabulary nothing."""
        row = list(ids)
        try:
            return bytes(row).decode("utf-8", "replace")
        except ValueError:
            pieces = (self._LITERALS[i - 256].encode() if i >= 256 else bytes((i,)) for i in row if 0 <= i < self.vocab)
            return b"".join(pieces).decode("utf-8", "replace")

    def start(self, messages: Sequence[Message]) -> list[int]:
        """Return begin, the messages, and the model's role marker."""
        return [self._BEGIN, *self._render(messages)]

    def follow(self, closed: bool, messages: Sequence[Message]) -> list[int]:
        """Return the end of an unclosed message, the new messages, and the model's role marker."""
        return self._render(messages) if closed else [self._END, *self._render(messages)]

    def messages(self, ids: Iterable[int]) -> list[Message]:
        """Return the conversation that a prompt of these ids is: what ``start`` and ``follow`` were given, and replies.

        Raises:
            UsageError: the ids are no whole prompt (it ends where the model begins to write).
        """
        roles = {i: role for role, i in self._ROLES.items()}
        found: list[Message] = []
        role, content, row = None, bytearray(), list(ids)
        for i in row[1:]:
            if role is None and i in roles:
                role, content = roles[i], bytearray()
            elif role is not None and i == self._END:
                found.append({"role": role, "content": content.decode("utf-8", "replace")})
                role = None
            elif role is not None and 0 <= i < self._BEGIN:
                content.append(i)
            else:
                raise UsageError(f"these ids are no conversation: {i} stands where it cannot")
        if row[:1] != [self._BEGIN] or role != "assistant" or content:
            raise UsageError("these ids are no conversation that the model continues with a message of its own")
        return found

    def _render(self, messages: Sequence[Message]) -> list[int]:
        ids: list[int] = []
        for message in messages:
            ids.append(self._ROLES[message["role"]])
            ids += self.encode(message["content"])
            ids.append(self._END)
        ids.append(self._ROLES["assistant"])
        return ids


_MARK = "\ufdd0"
"""A noncharacter (for a program's internal use): stands for a control literal while a template is rendered."""

_HOLE = "peira-reply"
"""Stands for a reply's content while a template's own text is found out."""

_STARTS = 1024
"""Rendered beginnings that are remembered: all members of a group begin alike, and rendering costs a millisecond."""

_SHORT, _TEXTS = 256, 4096
"""Texts of at most so many characters, and so many of them, are remembered: worlds say the same short things again and
again, and a call of the tokenizer costs a fifth of a millisecond."""

_WORD = "peira-message"
"""Stands for a user message's content, likewise."""


class HFText:
    """A Hugging Face tokenizer and its chat template.

    Args:
        tokenizer: a ``transformers`` tokenizer.
        template: Jinja chat template, where the tokenizer has none or another is wanted.
        vocab: number of ids of the plain vocabulary, when the tokenizer also holds native actions.
        stop: further stop ids beside the tokenizer's end token and the template's end of a message.

    Raises:
        UsageError: the tokenizer has no chat template and none was given, or the template cannot hold a conversation.
    """

    def __init__(
        self, tokenizer: Any, *, template: str | None = None, vocab: int | None = None, stop: Sequence[int] = ()
    ) -> None:
        self.tokenizer = tokenizer
        self._starts: dict[tuple[tuple[str, str], ...], list[int]] = {}
        self._known: dict[str, list[int]] = {}
        self._template = template or getattr(tokenizer, "chat_template", None)
        if not self._template:
            raise UsageError(
                f"the tokenizer {getattr(tokenizer, 'name_or_path', '')!r} has no chat template; set "
                "tokenizer.chat_template, or give template= a Jinja text"
            )
        self.vocab = len(tokenizer) if vocab is None else vocab
        self._controls = _control_ids(tokenizer)
        literals = sorted((*self._controls, _MARK), key=len, reverse=True)
        self._hostile = re.compile("|".join(map(re.escape, literals)))
        self._takes_system = self._probe_system()
        self._between, self._trims = self._probe_user()
        self.stop = self._find_stop(stop)
        self.append_ok = self._probe_append()
        self.fingerprint = digest([str(self._template), digest(sorted(tokenizer.get_vocab().items()))])

    # ---- ids ------------------------------------------------------------------------------------------------------

    def encode(self, text: str) -> list[int]:
        """Return the ids of a text; a control literal in it is spelt with ordinary tokens."""
        if self._hostile.search(text) is None:
            return self._tokens(text)
        ids: list[int] = []
        end = 0
        for match in self._hostile.finditer(text):
            ids += self._tokens(text[end : match.start()])
            ids += self._spelt(match.group())
            end = match.end()
        return ids + self._tokens(text[end:])

    def decode(self, ids: Iterable[int]) -> str:
        """Return the exact text: control tokens as their literals, no clean-up of spaces."""
        row = [int(i) for i in ids]
        return str(self.tokenizer.decode(row, skip_special_tokens=False, clean_up_tokenization_spaces=False))

    def start(self, messages: Sequence[Message]) -> list[int]:
        """Return the template's ids of a conversation and its generation prompt; one start token at the most."""
        key = tuple((message["role"], message["content"]) for message in messages)
        ids = self._starts.get(key)
        if ids is None:
            shielded, literals = self._shield(self._without_system(messages))
            ids = self._restore(self._render(shielded, prompt=True), literals)
            if len(self._starts) >= _STARTS:
                self._starts.clear()
            self._starts[key] = ids
        return list(ids)

    def follow(self, closed: bool, messages: Sequence[Message]) -> list[int]:
        """Return what the template puts between a completion and the next one, separators included."""
        shielded, literals = self._shield(messages)
        if len(shielded) == 1 and shielded[0]["role"] == "user" and self._between is not None:
            content = shielded[0]["content"]
            head, tail = self._between
            text = head + (content.strip() if self._trims else content) + tail
        else:
            text = self._after_reply(shielded)
        ids = self._restore(text, literals)
        return ids[1:] if closed and ids and ids[0] in self.stop else ids

    def _tokens(self, text: str) -> list[int]:
        if not text:
            return []
        known = self._known.get(text)
        if known is None:
            known = list(self.tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])
            if len(text) <= _SHORT:
                if len(self._known) >= _TEXTS:
                    self._known.clear()
                self._known[text] = known
        return list(known)

    def _spelt(self, literal: str) -> list[int]:
        """Encode a control literal in pieces none of which is a control token."""
        cut = 1
        while cut < len(literal) and self._hostile.search(literal[cut:]):
            cut += 1
        return self._tokens(literal[:cut]) + self._tokens(literal[cut:]) if literal != _MARK else self._tokens(literal)

    # ---- the template -----------------------------------------------------------------------------------------------

    def _render(self, messages: Sequence[Message], *, prompt: bool) -> str:
        return str(
            self.tokenizer.apply_chat_template(
                [dict(message) for message in messages],
                chat_template=self._template,
                tokenize=False,
                add_generation_prompt=prompt,
            )
        )

    def _shield(self, messages: Sequence[Message]) -> tuple[list[Message], list[str]]:
        """Replace control literals in contents by marks, so that neither template nor tokenizer acts on them."""
        literals: list[str] = []

        def mark(match: re.Match[str]) -> str:
            literals.append(match.group())
            return _MARK

        return [{**message, "content": self._hostile.sub(mark, message["content"])} for message in messages], literals

    def _restore(self, text: str, literals: Sequence[str]) -> list[int]:
        if not literals:
            return self._tokens(text)
        pieces = text.split(_MARK)
        if len(pieces) != len(literals) + 1:
            raise UsageError(
                "the chat template repeats or drops parts of a message, so control tokens in it cannot be told apart; "
                "use a template that writes each message once"
            )
        ids = self._tokens(pieces[0])
        for literal, piece in zip(literals, pieces[1:], strict=True):
            ids += self._spelt(literal) + self._tokens(piece)
        return ids

    def _without_system(self, messages: Sequence[Message]) -> Sequence[Message]:
        """Move a system message into the first user message where the template knows no system role."""
        if self._takes_system or not messages or messages[0]["role"] != "system":
            return messages
        if len(messages) == 1:
            return [{"role": "user", "content": messages[0]["content"]}]
        first = {**messages[1], "content": f"{messages[0]['content']}\n\n{messages[1]['content']}"}
        return [first, *messages[2:]]

    def _after_reply(self, messages: Sequence[Message]) -> str:
        """Return what follows a reply's content when ``messages`` come next."""
        chat = [{"role": "user", "content": "."}, {"role": "assistant", "content": _HOLE}]
        text = self._render([*chat, *messages], prompt=True)
        return text[text.rindex(_HOLE) + len(_HOLE) :]

    # ---- what kind of template it is --------------------------------------------------------------------------------

    def _probe_system(self) -> bool:
        try:
            text = self._render([{"role": "system", "content": _HOLE}, {"role": "user", "content": "."}], prompt=True)
        except Exception:  # a template refuses with whatever error it likes: that is the answer
            return False
        return _HOLE in text

    def _probe_user(self) -> tuple[tuple[str, str] | None, bool]:
        """Find the template's text around one user message after a reply, and whether it trims the content.

        ``None`` when the content comes out changed in another way: then each message is rendered for itself.
        """
        padded = f"  {_WORD}\n"
        try:
            shown = self._after_reply([{"role": "user", "content": padded}])
        except Exception as error:  # the boundary to foreign Jinja code
            raise UsageError(f"the chat template cannot render user, assistant, user: {error}") from error
        for trims, content in ((False, padded), (True, _WORD)):
            if shown.count(content) == 1:
                head, _, tail = shown.partition(content)
                return (head, tail), trims
        return None, False

    def _find_stop(self, further: Sequence[int]) -> tuple[int, ...]:
        """Collect the template's end of a reply (first: it is the one to write), the tokenizer's, and those given."""
        tail = self._tokens(self._after_reply([{"role": "user", "content": "."}]))
        closing = tail[:1] if tail and tail[0] in self._controls.values() else []
        own = getattr(self.tokenizer, "eos_token_id", None)
        found = [*closing, *([] if own is None else [int(own)]), *further]
        if not found:
            raise UsageError(
                "nothing ends a message: the tokenizer has no eos_token and the chat template closes a reply without a "
                "special token; set tokenizer.eos_token or give stop="
            )
        return tuple(dict.fromkeys(found))

    def _probe_append(self) -> bool:
        """Whether a reply with reasoning still stands in the rendering of a longer conversation."""
        reply = f"<think>\n{_HOLE}\n</think>\n\n."
        try:
            text = self._render(
                [
                    {"role": "user", "content": "."},
                    {"role": "assistant", "content": reply},
                    {"role": "user", "content": "."},
                ],
                prompt=True,
            )
        except Exception:  # the boundary to foreign Jinja code
            return False
        return _HOLE in text


def _control_ids(tokenizer: Any) -> dict[str, int]:
    """Return the tokens that no text may become: special ones and every other added one with visible content."""
    special = {str(token): tokenizer.convert_tokens_to_ids(str(token)) for token in tokenizer.all_special_tokens}
    added = {text: i for text, i in tokenizer.get_added_vocab().items() if text.strip()}
    return {text: int(i) for text, i in {**added, **special}.items() if text and i is not None}
