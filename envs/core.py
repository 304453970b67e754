"""The contract of a world: its author writes ``draw, begin, act, state_key, oracle``; everything else is here."""

import copy
import math
from collections.abc import Callable, Mapping
from dataclasses import asdict, is_dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Generic, Self, TypeVar

import gymnasium
import numpy as np

from peira.envs.seeding import digest, rng, seed_of
from peira.envs.spaces import Utf8
from peira.envs.types import NO_PARTS, Info, Snapshot, Step
from peira.tools.errors import UsageError, unknown
from peira.tools.native import NativeAction

__all__ = ["BUCKETS", "Env", "Player"]

InstanceT = TypeVar("InstanceT")
Player = Callable[["Env[Any]", np.random.Generator], str]
"""A scripted player: from the world as it stands, the next action string."""

BUCKETS = 100
"""Instances fall into this many buckets by the hash of their content; a split owns a range of them."""

_DRAWS = 2_000


class Env(gymnasium.Env[str, str], Generic[InstanceT]):
    """A text world: Gymnasium's five-tuple, plus keyed instances, splits, snapshots, forks and an oracle.

    A subclass takes keyword-only parameters, hands them to ``super().__init__(**params)``, keeps everything that
    changes during an episode in ``self.state``, and never draws from anything but ``self.np_random``.
    """

    name: ClassVar[str]
    """The world's id, the same as its spec's and its module's name."""
    text: ClassVar[Mapping[str, str]] = MappingProxyType({})
    """Every sentence the world can say, as templates; its hash is the world's text version."""
    splits: ClassVar[Mapping[str, tuple[int, int]]] = MappingProxyType({"train": (0, 80), "test": (80, BUCKETS)})
    """Bucket range [low, high) of each split: two splits are disjoint by content when their ranges are."""
    levels: ClassVar[range] = range(1)
    """Difficulty levels that ``draw`` accepts."""
    formats: ClassVar[tuple[str, ...]] = ("actions",)
    """Parameters that change how the world is played but not its instances: a seed names the same instance under each
    of their values, so that action formats are compared on the same tasks."""
    reward_range: ClassVar[tuple[float, float]] = (0.0, 1.0)
    """Bounds of the return of an episode."""
    max_turns: ClassVar[int] = 64
    """Turns after which an episode is truncated unless ``make(..., max_turns=)`` says otherwise."""
    verbs: ClassVar[tuple[str, ...]] = ()
    """What a model writes as ``<verb>args</verb>`` to do ``verb args``; empty: its whole text is the action."""
    blocking: ClassVar[bool] = False
    """Whether its calls may wait (a sandbox, a network): the rollout then makes them in a thread, with a deadline."""
    players: ClassVar[Mapping[str, Player]] = MappingProxyType({})
    """Scripted players by name (``naive``, ...), for demonstrations and baselines; ``oracle`` always exists."""

    def __init__(self, **params: Any) -> None:
        self.params: Mapping[str, Any] = MappingProxyType(dict(params))
        self.limit = self.max_turns
        self.guards = True
        self.observation_space = Utf8()
        self.action_space = Utf8()
        self.state: Any = None
        self._instance: InstanceT | None = None
        self._resets: np.random.Generator | None = None
        self._named: int | None = None
        self._dynamics: np.random.Generator | None = None
        self._turns = 0
        self._live = False
        self._return = 0.0

    # ---- what a world's author writes -------------------------------------------------------------------------

    def draw(self, rng: np.random.Generator, level: int, split: str) -> InstanceT:
        """Draw one instance (a frozen dataclass of JSON data). All randomness comes from ``rng``."""
        raise TypeError(f"{type(self).__name__} must define draw(rng, level, split)")

    def begin(self, instance: InstanceT) -> str:
        """Set ``self.state`` to the instance's start and return the first observation."""
        raise TypeError(f"{type(self).__name__} must define begin(instance)")

    def act(self, action: str) -> Step:
        """Carry one action out. A wrong action is ``Step.refuse(text)``, never an exception."""
        raise TypeError(f"{type(self).__name__} must define act(action)")

    def state_key(self) -> str:
        """Return the canonical key of the present *state*: no history, no step counter."""
        raise TypeError(f"{type(self).__name__} must define state_key()")

    def oracle(self) -> tuple[str, ...]:
        """Return actions that solve the task from the present state."""
        raise TypeError(f"{type(self).__name__} must define oracle(), or declare in its spec that it has none")

    def legal(self) -> tuple[str, ...]:
        """Return the admissible actions of the present state (empty: any text is)."""
        return ()

    def free_text(self) -> bool:
        """Return whether any text is an acceptable action now, beside ``legal()``."""
        return True

    def native(self) -> tuple[NativeAction, ...]:
        """Return the world's native actions under its parameters (empty: it has no expanded action space)."""
        return ()

    def secrets(self) -> tuple[str, ...]:
        """Return texts (answers) that must never stand in an observation before the episode is over."""
        return ()

    # ---- instances ----------------------------------------------------------------------------------------------

    @property
    def instance(self) -> InstanceT:
        """The instance being played."""
        if self._instance is None:
            raise UsageError(f"{self.name}: no instance yet; call reset(seed=...) first")
        return self._instance

    def generate(self, seed: int, level: int | None = None, split: str = "train") -> InstanceT:
        """Return the instance of (parameters, level, seed, split): the same on every machine, for ever.

        Candidates are drawn until one falls into the split's buckets, so no instance is in two splits whose ranges
        are apart.

        Raises:
            UsageError: unknown split or level, or a split that this level cannot fill.
        """
        level = self.levels[0] if level is None else level
        if split not in self.splits:
            raise unknown(f"split of world {self.name!r}", split, self.splits)
        if level not in self.levels:
            raise UsageError(f"{self.name}: level {level} is outside {self.levels.start}..{self.levels.stop - 1}")
        low, high = self.splits[split]
        params = digest({name: value for name, value in self.params.items() if name not in self.formats})
        for attempt in range(_DRAWS):
            instance = self.draw(rng("instance", self.name, params, level, seed, split, attempt), level, split)
            if low <= self.bucket(instance) < high:
                return instance
        raise UsageError(
            f"{self.name}: split {split!r} has no instance at level {level} with {dict(self.params)}; "
            "choose another level or split"
        )

    @staticmethod
    def fingerprint(instance: Any) -> str:
        """Return the content hash of an instance."""
        return digest(asdict(instance) if is_dataclass(instance) and not isinstance(instance, type) else instance)

    @classmethod
    def bucket(cls, instance: Any) -> int:
        """Return the bucket (0..99) an instance falls into."""
        return seed_of("bucket", cls.name, cls.fingerprint(instance)) % BUCKETS

    @classmethod
    def text_version(cls) -> str:
        """Return the hash of everything the world can say; part of each episode's fingerprint."""
        return digest(dict(cls.text))

    # ---- Gymnasium ------------------------------------------------------------------------------------------------

    def reset(self, *, seed: int | None = None, options: dict[str, Any] | None = None) -> tuple[str, dict[str, Any]]:
        """Start an episode.

        Args:
            seed: names the instance. Without one, the next seed of the stream that the last given seed started.
            options: ``level``, ``split``, or ``instance`` (then nothing is drawn).

        Raises:
            UsageError: an unknown option, level or split.
        """
        options = dict(options or {})
        instance = options.pop("instance", None)
        level, split = options.pop("level", None), options.pop("split", "train")
        if options:
            raise unknown(f"reset option of {self.name!r}", next(iter(options)), ("instance", "level", "split"))
        if seed is not None:
            self._named, self._resets = seed, None
        else:
            seed = self._next_seed()
        self._instance = self.generate(seed, level, split) if instance is None else instance
        self._dynamics, self._np_random_seed = None, seed
        self._turns, self._live, self._return = 0, True, 0.0
        observation = self.begin(self.instance)
        return observation, self._info(None, True, NO_PARTS, None, None)

    def _next_seed(self) -> int:
        """Return the next seed of the stream that the last given seed (or entropy, without one) started."""
        if self._resets is None:
            if self._named is None:
                self._named = int(np.random.SeedSequence().generate_state(1, np.uint64)[0]) >> 1
            self._resets = rng("resets", self.name, self._named)
        return int(self._resets.integers(2**63))

    @property
    def _np_random(self) -> np.random.Generator:
        """The generator behind ``np_random``, made when the world first draws from it: most worlds never do."""
        if self._dynamics is None:
            if self._np_random_seed is None:
                self._np_random_seed = self._next_seed()
            self._dynamics = rng("dynamics", self.name, self._np_random_seed)
        return self._dynamics

    @_np_random.setter
    def _np_random(self, value: np.random.Generator | None) -> None:
        self._dynamics = value

    def step(self, action: str) -> tuple[str, float, bool, bool, dict[str, Any]]:
        """Carry an action out; ``(observation, reward, terminated, truncated, info)``.

        Raises:
            UsageError: called before ``reset``, after the end, or with something that is not a string.
        """
        if not self._live:
            state = "has not started" if self._instance is None else "is over"
            raise UsageError(f"{self.name}: the episode {state}; call reset() before step()")
        if not isinstance(action, str):
            raise UsageError(f"{self.name}: an action is a string, not {type(action).__name__} ({action!r})")
        observation, reward, terminated, success, valid, parts, progress = self.act(action)
        self._turns = turn = self._turns + 1
        truncated, end = False, None
        if terminated:
            end = "success" if success else "failure"
            self._live = False
        elif turn >= self.limit:
            truncated, end, success, self._live = True, "turn_limit", False, False
        if self.guards:
            self._guard(observation, reward)
        return observation, reward, terminated, truncated, self._info(success, valid, parts, progress, end)

    def _info(
        self, success: bool | None, valid: bool, parts: Mapping[str, float], progress: float | None, end: str | None
    ) -> dict[str, Any]:
        info: Info = {
            "success": success,
            "valid": valid,
            "state_key": self.state_key(),
            "reward_parts": dict(parts),
            "progress": progress,
            "legal": self.legal(),
            "free_text": self.free_text(),
            "end": end,
            "turn": self._turns,
        }
        return info  # type: ignore[return-value]  # Gymnasium asks for dict; a TypedDict is one at run time

    def _guard(self, observation: str, reward: float) -> None:
        """Check what ``act`` gave; a world that breaks its word raises here, where its author sees it."""
        if not isinstance(observation, str):
            raise TypeError(f"{self.name}: act() gave an observation of type {type(observation).__name__}, not str")
        self._return += reward
        low, high = self.reward_range
        # A chained comparison is false for NaN, so one test catches every number that is not acceptable.
        if not low - 1e-9 <= self._return <= high + 1e-9:
            if not math.isfinite(reward):
                raise ValueError(f"{self.name}: act() gave the reward {reward}; rewards are finite numbers")
            raise ValueError(f"{self.name}: the return {self._return} left the declared range [{low}, {high}]")

    # ---- snapshots --------------------------------------------------------------------------------------------------

    def copy_state(self, state: Any) -> Any:
        """Copy a state; override where a deep copy is slower than need be."""
        return copy.deepcopy(state)

    def snapshot(self) -> Snapshot:
        """Return the whole present state; later steps do not change it."""
        generator = None if self._dynamics is None else copy.deepcopy(self._dynamics.bit_generator.state)
        chance = {"generator": generator, "seed": self._np_random_seed}
        state = self.copy_state(self.state)
        return Snapshot(self.name, self.instance, state, self._turns, self._live, self._return, chance)

    def restore(self, snapshot: Snapshot) -> None:
        """Continue from a snapshot taken of any object of this world.

        Raises:
            UsageError: the snapshot is another world's.
        """
        if snapshot.world != self.name:
            raise UsageError(f"a snapshot of world {snapshot.world!r} cannot be restored into {self.name!r}")
        self._instance = snapshot.instance
        self.state = self.copy_state(snapshot.state)
        self._turns, self._live, self._return = snapshot.turns, snapshot.live, snapshot.total
        self._dynamics, self._np_random_seed = None, snapshot.rng["seed"]
        if snapshot.rng["generator"] is not None:
            self.np_random.bit_generator.state = copy.deepcopy(snapshot.rng["generator"])

    def fork(self) -> Self:
        """Return a second, independent world in exactly this state."""
        twin = type(self)(**self.params)
        twin.limit, twin.guards = self.limit, self.guards
        twin.restore(self.snapshot())
        twin._named = int(self._np_random_seed or 0)
        return twin
