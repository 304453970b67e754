"""What the model reads and what its answer means: prompts from observations, actions from completions.

A ``View`` is shared and immutable; ``open`` gives one episode's ``Context``, which goes round once per turn::

    context = view.open(env, observation, info)
    context.prompt(room)                     ids for the engine
    reading = context.read(completion)       action string, or what was wrong with the turn
    context.take_in(reading, observation, info)

Two histories behind one interface. *append*: one growing sequence, each prompt extends the last. *window*: the start,
and the last ``window`` exchanges; older ones are left out, oldest first. Either way ids that were sampled stand in the
next prompt as they were sampled; nothing is rendered a second time.
"""

from bisect import bisect_left
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal, NamedTuple, get_args

import numpy as np
from numpy.typing import NDArray

from peira.agents.actions import ActionTable
from peira.agents.growing import GrowingIds
from peira.agents.text import Message, Text
from peira.agents.types import Completion, Finish, Ids, Legal, Tag
from peira.envs.core import Env
from peira.envs.seeding import digest
from peira.tools.calls import action_of
from peira.tools.errors import Fault, UsageError, unknown

__all__ = ["Context", "History", "Reading", "View", "clip"]

History = Literal["append", "window"]

_LEFT_OUT = "[Earlier turns left out: {count}.]"
_CLIPPED = "\n[... {count} characters left out ...]\n"
_TAGS = "Act with one tag: {tags}. Any other text is your answer."

_POSITIONS = np.arange(1 << 16, dtype=np.int32)
_POSITIONS.flags.writeable = False
_DECISIONS = np.full(1 << 16, Tag.DECISION, dtype=np.uint8)
_DECISIONS.flags.writeable = False


def clip(text: str, limit: int) -> str:
    """Return a text of at most about ``limit`` characters: its beginning, a marker, and its end."""
    if len(text) <= limit:
        return text
    head, tail = limit - limit // 4, limit // 4
    return text[:head] + _CLIPPED.format(count=len(text) - head - tail) + text[len(text) - tail :]


def positions(size: int) -> Ids:
    """Return ``0..size-1`` as a read-only array that costs nothing."""
    return _POSITIONS[:size] if size <= len(_POSITIONS) else np.arange(size, dtype=np.int32)


class Reading(NamedTuple):
    """What a completion says."""

    written: Ids
    """[W] ids that stand in the context for it."""
    at: Ids
    """[L] where in ``written`` each sampled id begins."""
    tags: NDArray[np.uint8]
    """[L] ``DECISION``, or ``UNREAD`` after the end of the action."""
    action: str | None
    """What the world gets; ``None`` when there is no action to give."""
    problem: str | None
    """Why there is no action, in words for the model; ``None`` also for a turn that was cut off."""
    native: bool
    """The action is a native one: its message goes on after the observation."""


@dataclass(frozen=True)
class View:
    """How worlds are shown to a model, and how its answers are understood."""

    text: Text
    actions: ActionTable | None = None
    """Native actions of the policy; used in worlds that offer them (``actions="expanded"``)."""
    history: History = "append"
    window: int = 2
    """Exchanges shown in *window* mode, the newest ones; in an expanded world an exchange begins in language mode."""
    system: str | None = None
    """System message before the first observation."""
    observation_limit: int = 16_384
    """Longest observation, in characters; a longer one keeps its beginning and its end."""

    def __post_init__(self) -> None:
        if self.history not in get_args(History):
            raise unknown("history of a view", self.history, get_args(History))
        if self.window < 1:
            raise UsageError(f"a view's window must be at least 1 exchange, not {self.window}")
        if self.observation_limit < 16:
            raise UsageError(f"observation_limit must be at least 16 characters, not {self.observation_limit}")

    @cached_property
    def fingerprint(self) -> str:
        """Hash of all that decides which ids a world's text becomes."""
        actions = None if self.actions is None else self.actions.fingerprint
        window = self.window if self.history == "window" else 0
        return digest([self.text.fingerprint, actions, self.history, window, self.system, self.observation_limit])

    def open(self, env: Env[Any], observation: str, info: Mapping[str, Any]) -> "Context":
        """Open an episode's context from what ``reset`` gave.

        Raises:
            UsageError: the world has native actions which are not this view's.
        """
        native = env.native()
        if native and (self.actions is None or self.actions.names != tuple(action.name for action in native)):
            mine = "none" if self.actions is None else f"those of world {self.actions.world!r}"
            raise UsageError(
                f"world {env.name!r} is used in its expanded format, but the policy's native actions are {mine}; "
                "run `peira policy expand`, or use the world with actions='tags'"
            )
        return Context(self, self.actions if native else None, getattr(env, "verbs", ()), observation, info)

    def clip(self, observation: str) -> str:
        """Return an observation as it is shown."""
        return observation if len(observation) <= self.observation_limit else clip(observation, self.observation_limit)


class Context:
    """One episode as the model sees it. Made by ``View.open``."""

    __slots__ = ("_actions", "_exchanges", "_first", "_free", "_grown", "_names", "_text", "_verbs", "_view",
                 "legal", "observation")  # fmt: skip

    def __init__(
        self, view: View, actions: ActionTable | None, verbs: tuple[str, ...], observation: str, info: Mapping[str, Any]
    ) -> None:
        self._view, self._text, self._actions = view, view.text, actions
        self._verbs = verbs if actions is None else ()
        self.observation = self._first = view.clip(observation)
        """``observation``: the last one, as it was shown."""
        self._grown = GrowingIds(self._start(0)) if view.history == "append" else None
        self._exchanges: list[list[Ids]] = []
        self.legal: Legal | None = None
        """``legal``: what the next completion may choose from; ``None``: the plain vocabulary."""
        self._admit(info)

    # ---- prompts ----------------------------------------------------------------------------------------------------

    def prompt(self, room: int) -> Ids | None:
        """Return the ids of the next prompt, or ``None`` when none of at most ``room`` ids can be made.

        A window drops further exchanges, oldest first, until it fits; the start and the newest exchange stay.
        """
        if self._grown is not None:
            return self._grown.all() if self._grown.size <= room else None
        count = len(self._exchanges)
        for first in range(max(0, count - self._view.window), max(1, count)):
            ids = self._windowed(first)
            if len(ids) <= room:
                return ids
        return None

    def _windowed(self, first: int) -> Ids:
        pieces = [piece for exchange in self._exchanges[first:] for piece in exchange]
        ids = np.concatenate([np.asarray(self._start(first), dtype=np.int32), *pieces])
        ids.flags.writeable = False
        return ids

    def _start(self, left_out: int) -> list[int]:
        """Return the ids of the system message and the first observation, noting how many exchanges are not shown."""
        system, first = self._view.system or "", self._first
        untold = [f"<{verb}>...</{verb}>" for verb in self._verbs if f"<{verb}>" not in first]
        if untold:
            told = _TAGS.format(tags=" ".join(untold))
            system = f"{system}\n{told}" if system else told
        if left_out:
            first = f"{first}\n{_LEFT_OUT.format(count=left_out)}"
        messages: list[Message] = [{"role": "user", "content": first}]
        return self._text.start([{"role": "system", "content": system}, *messages] if system else messages)

    # ---- completions ------------------------------------------------------------------------------------------------

    def read(self, completion: Completion) -> Reading:
        """Say what a completion means.

        Raises:
            Fault: the engine ended it with a native action that was not legal.
        """
        ids = completion.ids
        size = len(ids)
        at, tags = positions(size), _DECISIONS[:size] if size <= len(_DECISIONS) else np.zeros(size, dtype=np.uint8)
        if completion.finish is Finish.ACTION:
            return self._native(ids, at, tags)
        if completion.finish is Finish.LENGTH:
            return Reading(ids, at, tags, None, None, False)
        row = ids.tolist()
        if row[-1] in self._text.stop:
            del row[-1]
        said = self._text.decode(row)
        parse = action_of(said, self._verbs)
        if parse.action is None:
            return Reading(ids, at, tags, None, parse.problem or "Nothing to do was said.", False)
        unread = size if parse.end is None else self._unread(row, said, parse.end)
        if unread < size:
            tags = tags.copy()
            tags[unread:] = Tag.UNREAD
        return Reading(ids, at, tags, parse.action, None, False)

    def _native(self, ids: Ids, at: Ids, tags: NDArray[np.uint8]) -> Reading:
        row = int(ids[-1])
        if self._actions is None or self.legal is None or row not in self.legal.ids:
            raise Fault(f"the engine ended a completion with id {row}, which is no legal native action", where="engine")
        written = self._actions.written_of(row)
        ids = written if len(ids) == 1 else np.concatenate([ids[:-1], written])
        return Reading(ids, at, tags, self._actions.name_of(row), None, True)

    def _unread(self, row: list[int], said: str, end: int) -> int:
        """Return the index of the first id wholly behind character ``end``; a bare end of the message is read."""
        if not said[end:].strip():
            return len(row) + 1
        return bisect_left(range(len(row)), end, key=lambda n: len(self._text.decode(row[: n + 1]))) + 1

    def spell(self, action: str) -> tuple[Ids, Finish]:
        """Return the ids that a model would choose to do ``action`` now, and how that completion ends.

        A native action is its row; in the tags format ``verb args`` becomes ``<verb>args</verb>``; anything else is
        plain text. Both of the latter end with the stop id.

        Raises:
            UsageError: the action is not native while only native actions are legal.
        """
        if self._actions is not None and action in self._names:
            return np.array([self._actions.id_of(action)], dtype=np.int32), Finish.ACTION
        if self._actions is not None and not self._free:
            raise UsageError(f"{action!r} cannot be said now; only these actions can: {', '.join(self._names)}")
        verb, _, arguments = action.partition(" ")
        said = f"<{verb}>{arguments}</{verb}>" if verb in self._verbs else action
        return np.array([*self._text.encode(said), self._text.stop[0]], dtype=np.int32), Finish.STOP

    # ---- observations -----------------------------------------------------------------------------------------------

    def take_in(self, reading: Reading, observation: str, info: Mapping[str, Any]) -> None:
        """Write a turn and the world's answer into the history; ``info`` says what is admissible next."""
        self.observation = self._view.clip(observation)
        if reading.native:
            after = self._text.encode(self.observation) if self.observation else []
        else:
            closed = int(reading.written[-1]) in self._text.stop
            after = self._text.follow(closed, [{"role": "user", "content": self.observation}])
        if self._grown is not None:
            self._grown.extend(reading.written)
            self._grown.extend(after)
        else:
            if self._free or not self._exchanges:
                self._exchanges.append([])
            self._exchanges[-1] += (reading.written, np.asarray(after, dtype=np.int32))
        self._admit(info)

    def _admit(self, info: Mapping[str, Any]) -> None:
        self._free = True
        self._names: tuple[str, ...] = ()
        if self._actions is not None:
            self._free, self._names = bool(info["free_text"]), info["legal"]
            self.legal = self._actions.legal(self._names, self._free)
