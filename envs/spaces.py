"""The space of texts: any Unicode string, which Gymnasium's ``Text`` (a fixed character set) cannot say."""

from typing import Any

import gymnasium
import numpy as np

__all__ = ["Utf8"]


class Utf8(gymnasium.Space[str]):
    """All strings of at most ``max_length`` characters."""

    def __init__(self, max_length: int = 1_000_000, seed: int | np.random.Generator | None = None) -> None:
        self.max_length = max_length
        super().__init__(shape=(), dtype=None, seed=seed)

    @property
    def is_np_flattenable(self) -> bool:
        """Strings have no array form."""
        return False

    def sample(self, mask: Any = None, probability: Any = None) -> str:
        """Return a short random string of printable ASCII."""
        del mask, probability
        codes = self.np_random.integers(32, 127, size=int(self.np_random.integers(0, 24)))
        return "".join(map(chr, codes.tolist()))

    def contains(self, x: Any) -> bool:
        """Return whether ``x`` is a string within the length."""
        return isinstance(x, str) and len(x) <= self.max_length

    def __repr__(self) -> str:
        return f"Utf8(max_length={self.max_length})"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Utf8) and other.max_length == self.max_length

    __hash__ = None  # type: ignore[assignment]  # mutable, like every Gymnasium space
