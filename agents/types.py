"""What travels from the agents' room: ``Completion → Turn → Episode → Group``, and ``Fault`` beside them.

A worked example: two turns in *append* mode with an expanded action space. P prompt, S sampled, W written, O observed.
The policy has 6 vocabulary rows (0-5) and the native action ``look`` as row 6, whose text is the tokens ``4 5``::

    turn 0   prompt   [0 1]            P            what was sent
             ids      [2 6]            S S          one word, then the native action
             logprobs [-0.7 -0.2]                   of exactly those ids, at the sampling temperature
             written  [2 4 5]          W W W        what stands in the context afterwards
             at       [0 1]                         where each sampled id was written first
    turn 1   prompt   [0 1 2 4 5 3]    P W W W O    extends the last one: prompt + written + observation
             ids      [1]              S

Only the positions in ``at`` are decisions; everything else in the context carries no loss.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from peira.tasks.task import Task
from peira.tools.errors import UsageError

__all__ = [
    "SCHEMA",
    "Completion",
    "End",
    "Episode",
    "FaultRecord",
    "Finish",
    "Floats",
    "Group",
    "Ids",
    "Legal",
    "Origin",
    "Tag",
    "Turn",
]

Ids = NDArray[np.int32]
Floats = NDArray[np.float32]

SCHEMA = 1
"""Version of the records on disk; the codec refuses others."""


class Finish(StrEnum):
    """Why a completion ended."""

    STOP = "stop"
    """A stop id was sampled (it is the last id)."""
    ACTION = "action"
    """A native action was sampled (it is the last id)."""
    LENGTH = "length"
    """The token allowance was used up; the turn is cut off."""
    ABORT = "abort"
    """Cancelled; never trained on."""


class Tag(IntEnum):
    """Where a sampled id came from. It decides every mask: loss, KL, entropy, credit, length."""

    DECISION = 0
    """Sampled from the policy; the only tag that is trained by the policy gradient."""
    FORCED = 1
    """Chosen by someone else (a forced routing action); recorded with its true behaviour log-prob."""
    PREFIX = 2
    """Part of a prefix given to the policy."""
    OBSERVATION = 3
    """Written by the world."""
    EXPERT = 4
    """Written by a demonstrator; trained by likelihood alone."""
    UNREAD = 5
    """Sampled after the end of the turn's action, where nobody read on; carries no loss."""


class End(StrEnum):
    """Why an episode is over. Machinery's failures are not here: they are a ``FaultRecord``."""

    SUCCESS = "success"
    """The world says the task is solved."""
    FAILURE = "failure"
    """The world says the task is lost."""
    TURN_LIMIT = "turn_limit"
    """Truncated by the limit of turns."""
    TOKEN_LIMIT = "token_limit"
    """Truncated: the episode's token allowance is used up."""
    CONTEXT_FULL = "context_full"
    """Truncated: the next prompt does not fit into the model's context."""
    CUT_OFF = "cut_off"
    """Truncated: a turn was cut by its length limit, so no action was taken from it."""
    INVALID = "invalid"
    """Truncated: too many turns in a row held no understandable action."""

    @property
    def truncated(self) -> bool:
        """Whether somebody's limit, not the task, ended the episode."""
        return self not in (End.SUCCESS, End.FAILURE)


@dataclass(frozen=True, slots=True)
class Legal:
    """The ids one completion may choose from: the whole vocabulary (or not), and these further ids."""

    vocab: bool
    ids: tuple[int, ...]
    """Sorted. Native action rows in language mode; with ``vocab=False`` exactly the admissible ids."""


@dataclass(frozen=True, slots=True)
class Completion:
    """What an engine returned."""

    ids: Ids
    """[L] sampled ids, stop id included when it was sampled."""
    logprobs: Floats
    """[L] log-prob of each id under the distribution it was sampled from (temperature and legality applied)."""
    versions: Ids
    """[L] version of the weights that made each id."""
    finish: Finish

    def __post_init__(self) -> None:
        if not len(self.ids) == len(self.logprobs) == len(self.versions):
            raise UsageError(
                f"a completion needs one log-prob and one version per id; got {len(self.ids)} ids, "
                f"{len(self.logprobs)} log-probs, {len(self.versions)} versions"
            )


@dataclass(frozen=True, slots=True)
class Turn:
    """One exchange: what was read, what was decided, what the world answered."""

    prompt: Ids
    """[P] ids really sent to the engine."""
    completion: Completion
    written: Ids
    """[W] ids that stand in the context for the completion: native actions replaced by their text."""
    at: Ids
    """[L] index into ``written`` of the first token of each sampled id."""
    tags: NDArray[np.uint8]
    """[L] a ``Tag`` per sampled id."""
    legal: Legal | None
    """The set every id of this completion was chosen from; ``None``: the plain vocabulary."""
    action: str
    """What the world got."""
    observation: str
    """What the world answered."""
    reward: float
    state_key: str
    """Key of the state in which the decision was made."""
    terminated: bool
    truncated: bool
    valid: bool = True
    """Whether the world understood the action."""
    reward_parts: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    shown: tuple[str, ...] = ()
    """Ids of the store items that the view showed."""


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an episode came from when it was not simply sampled from its start."""

    kind: str
    """``counterfactual``, ``retry``, ``demonstration``, ..."""
    score: float
    """Score of the episode it was made from."""
    turn: int
    """Turn of that episode at which it forked."""
    position: int
    """Index into that turn's sampled ids at which it forked."""


@dataclass(frozen=True, slots=True, repr=False)
class Episode:
    """One judged trial of a task."""

    task: Task
    turns: tuple[Turn, ...]
    score: float
    """Sum of the turns' rewards."""
    success: bool
    """What the world said, never inferred from the reward."""
    end: End
    temperature: float
    """Temperature the completions were sampled at."""
    first_observation: str
    seed: int = 0
    """Seed of the episode's requests."""
    fingerprints: Mapping[str, str] = field(default_factory=dict)
    """``instance`` (content hash), ``text`` (world text version), ``template``, ``actions``."""
    origin: Origin | None = None

    def __repr__(self) -> str:
        # Short, because asyncio shows a task's result whenever it shows the task.
        return f"<Episode {self.task.world} {self.task.key}: {len(self.turns)} turns, {self.end}, score {self.score:g}>"

    @property
    def sampled(self) -> int:
        """Number of sampled ids."""
        return sum(len(turn.completion.ids) for turn in self.turns)


@dataclass(frozen=True, slots=True)
class FaultRecord:
    """A trial that machinery broke: counted and shown, never scored."""

    task: Task
    where: str
    """``engine``, ``world``, ``worker``, ``timeout``."""
    error: str
    """Type and message."""
    turns: int
    """Turns completed before it broke."""


@dataclass(frozen=True, slots=True)
class Group:
    """The judged trials of one task, and its faults beside them."""

    task: Task
    episodes: tuple[Episode, ...]
    faults: tuple[FaultRecord, ...] = ()

    def __post_init__(self) -> None:
        prints = {(e.task.key, e.fingerprints.get("instance"), e.first_observation) for e in self.episodes}
        if len(prints) > 1:
            raise UsageError(
                f"a group shares one instance; task {self.task.key} has {len(prints)} different starts among "
                f"{len(self.episodes)} episodes"
            )
        if any(e.task.key != self.task.key for e in self.episodes):
            raise UsageError(f"group of task {self.task.key} holds an episode of another task")
