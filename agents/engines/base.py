"""The engine contract: token ids in, token ids with their log-probs out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from peira.agents.types import Completion, Ids, Legal

__all__ = ["Engine", "Request", "is_exact"]


@dataclass(frozen=True, slots=True)
class Request:
    """One completion to make."""

    prompt: Ids
    """[P] context ids."""
    max_tokens: int
    """At most this many ids are sampled (at least 1)."""
    seed: int
    """Seed of this request's own random stream; equal requests with equal seeds give equal completions."""
    temperature: float = 1.0
    """0 is greedy (the log-probs are then those of temperature 1)."""
    stop: tuple[int, ...] = ()
    """Sampling any of these ends the completion with ``Finish.STOP``; the id is kept."""
    legal: Legal | None = None
    """Restricts *every* choice of this completion. Sampling an id of ``legal.ids`` ends it with ``Finish.ACTION``."""
    session: int | None = None
    """Requests of one episode carry one number, so that an engine may keep the episode's cache between turns."""


@runtime_checkable
class Engine(Protocol):
    """Who computes tokens.

    An engine whose completions are texts that were tokenized afterwards has an attribute ``exact = False``: nobody
    knows the log-probs of its ids, which count as an expert's (see ``is_exact``).
    """

    @property
    def version(self) -> int:
        """Version of the weights now in use."""
        ...

    @property
    def context(self) -> int:
        """Longest prompt plus completion, in tokens."""
        ...

    async def generate(self, request: Request) -> Completion:
        """Sample one completion.

        Raises:
            Fault: the engine broke, or its answer cannot be trusted (NaN log-probs, wrong counts).
            UsageError: a request that can never work (prompt longer than the context, empty legal set).
        """
        ...

    async def score(
        self, ids: Ids, candidates: Sequence[int], start: int, legal: Legal | None = None
    ) -> NDArray[np.float32]:
        """Return ``[T - start, C]``: log-prob (temperature 1) of each candidate as the id at positions start..T-1.

        With ``legal`` the softmax runs over that set only; a candidate outside it scores ``-inf``.
        """
        ...

    def load(self, weights: Mapping[str, Any], version: int) -> None:
        """Take new weights and drop every cache made with the old ones.

        Raises:
            UsageError: names or shapes that do not match; both lists are named and nothing changes.
        """
        ...

    def release(self, session: int) -> None:
        """Forget an episode's cache."""
        ...

    async def close(self) -> None:
        """Stop work; pending requests end with ``Finish.ABORT``."""
        ...


def is_exact(engine: Engine) -> bool:
    """Whether the ids of an engine's completions are those it sampled, with their log-probs: the rule.

    Completions of any other engine serve evaluation. Their ids carry the tag ``EXPERT`` and log-prob 0, as those of
    players do, so that no policy gradient is ever taken through them.
    """
    return bool(getattr(engine, "exact", True))
