"""Native actions as rows of a policy's output head.

The action table ties a world's ``NativeAction`` to the row that scores it and to the ids its text becomes in the
context (EARL / ExpA, arXiv 2510.07581, policy head). Rows follow the plain vocabulary: action ``i`` is id ``base + i``.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from peira.agents.types import Ids, Legal
from peira.envs.seeding import digest
from peira.tools.errors import UsageError, unknown
from peira.tools.native import NativeAction

__all__ = ["ActionTable"]

_REMEMBERED = 4_096
"""Legal sets kept; a world with more distinct masks than this starts the memory afresh."""


@dataclass(frozen=True)
class ActionTable:
    """A world's native actions, as the policy knows them."""

    world: str
    names: tuple[str, ...]
    """What the world's ``step`` receives."""
    ids: tuple[int, ...]
    """Output row of each action, increasing."""
    written: tuple[Ids, ...] = field(compare=False)
    """[W] ids that stand in the context for each action."""
    routing: tuple[bool, ...]
    fingerprint: str
    """Hash of everything above: two policies with equal fingerprints read and write the same actions."""

    @classmethod
    def build(
        cls, world: str, actions: Sequence[NativeAction], encode: Callable[[str], Sequence[int]], base: int
    ) -> "ActionTable":
        """Give each action the next row after the ``base`` ids of the plain vocabulary.

        Raises:
            UsageError: no actions, two of one name, or an action whose text has no tokens.
        """
        if not actions:
            raise UsageError(f"world {world!r} has no native actions under these parameters; use actions='tags'")
        names = tuple(action.name for action in actions)
        if len(set(names)) != len(names):
            twice = sorted({name for name in names if names.count(name) > 1})
            raise UsageError(f"world {world!r} lists the native action(s) {', '.join(twice)} more than once")
        written = tuple(np.asarray(encode(action.text), dtype=np.int32) for action in actions)
        empty = [name for name, ids in zip(names, written, strict=True) if not len(ids)]
        if empty:
            raise UsageError(
                f"native action {empty[0]!r} of world {world!r} is written as no token at all; its text must not be "
                "empty, because the first token seeds the action's row"
            )
        ids = tuple(range(base, base + len(actions)))
        routing = tuple(action.routing for action in actions)
        print_ = digest([world, list(names), list(ids), [w.tolist() for w in written], list(routing)])
        return cls(world, names, ids, written, routing, print_)

    @cached_property
    def _id_by_name(self) -> dict[str, int]:
        return dict(zip(self.names, self.ids, strict=True))

    @cached_property
    def _index_by_id(self) -> dict[int, int]:
        return {row: index for index, row in enumerate(self.ids)}

    @cached_property
    def _legal(self) -> dict[tuple[tuple[str, ...], bool], Legal]:
        return {}

    def id_of(self, name: str) -> int:
        """Return the row of an action.

        Raises:
            UsageError: no such action.
        """
        row = self._id_by_name.get(name)
        if row is None:
            raise unknown(f"native action of world {self.world!r}", name, self.names)
        return row

    def name_of(self, row: int) -> str | None:
        """Return the action that a row stands for, or ``None`` for an id of the vocabulary."""
        index = self._index_by_id.get(row)
        return None if index is None else self.names[index]

    def written_of(self, row: int) -> Ids:
        """Return the ids written into the context for a row.

        Raises:
            UsageError: the id is not a native action's.
        """
        index = self._index_by_id.get(row)
        if index is None:
            raise UsageError(f"id {row} is not a native action of world {self.world!r} (rows {self.ids[0]} and on)")
        return self.written[index]

    def legal(self, names: tuple[str, ...], free_text: bool) -> Legal:
        """Return the legal set for the world's admissible actions; one object for equal arguments.

        Args:
            names: admissible actions.
            free_text: language mode: the whole vocabulary is legal beside them.

        Raises:
            UsageError: an unknown action.
        """
        key = (names, free_text)
        found = self._legal.get(key)
        if found is None:
            if len(self._legal) >= _REMEMBERED:
                self._legal.clear()
            found = self._legal[key] = Legal(free_text, tuple(sorted({self.id_of(name) for name in names})))
        return found
