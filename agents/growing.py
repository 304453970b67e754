"""One buffer of ids that only ever grows, so that K prompts that extend each other cost O(K), not O(K²)."""

from collections.abc import Sequence

import numpy as np

from peira.agents.types import Ids

__all__ = ["GrowingIds"]


class GrowingIds:
    """An int32 buffer; ``all()`` gives read-only views of its beginning, which later growth leaves as they are."""

    __slots__ = ("_data", "size")

    def __init__(self, ids: Sequence[int] | Ids = ()) -> None:
        self._data = np.empty(max(512, 2 * len(ids)), dtype=np.int32)
        self.size = 0
        self.extend(ids)

    def extend(self, ids: Sequence[int] | Ids) -> None:
        """Append ids."""
        end = self.size + len(ids)
        if end > len(self._data):
            data = np.empty(2 * end, dtype=np.int32)
            data[: self.size] = self._data[: self.size]
            self._data = data
        self._data[self.size : end] = ids
        self.size = end

    def all(self) -> Ids:
        """Return all ids so far, without copying them."""
        ids = self._data[: self.size]
        ids.flags.writeable = False
        return ids
