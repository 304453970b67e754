"""A model that is a table: next-id scores by the last id and by the sum of all before it. Its log-probs are a formula.

It needs nothing but NumPy, and it depends on its whole context, so that a stale cache, another request's answer or a
wrong weight shows in its log-probs. The scripted engine over it passes the whole suite of engine checks.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peira.agents.engine_check.bench import Subject
from peira.agents.engines.base import Request
from peira.agents.engines.scripted import Scripted
from peira.agents.text import ByteText
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.envs.seeding import rng
from peira.tools.errors import UsageError

__all__ = ["TableEngine", "TableModel", "table_subject"]

_VOCAB, _NATIVE, _CONTEXT = 40, 4, 256


class TableModel:
    """Scores of the next id, under several sets of weights.

    Args:
        vocab: number of plain ids.
        native: rows of native actions after them.
    """

    def __init__(self, vocab: int = _VOCAB, native: int = _NATIVE) -> None:
        self.vocab, self.rows = vocab, vocab + native
        self.native = tuple(range(vocab, self.rows))

    def weights(self, number: int) -> dict[str, NDArray[np.float64]]:
        """Return the tables of a number."""
        draw = rng("table model", number)
        return {name: draw.normal(0.0, 1.0, size=(self.rows, self.rows)) for name in ("last", "sum")}

    def allowed(self, legal: Legal | None) -> NDArray[np.bool_]:
        """Return ``[R]``: which rows are legal."""
        mask = np.zeros(self.rows, dtype=np.bool_)
        mask[: self.vocab] = legal is None or legal.vocab
        if legal is not None:
            mask[list(legal.ids)] = True
        return mask

    def next(
        self, weights: Mapping[str, Any], context: Ids, temperature: float, legal: Legal | None
    ) -> NDArray[np.float64]:
        """Return ``[R]`` log-probs of the next id."""
        scores = weights["last"][int(context[-1])] + weights["sum"][int(context.sum()) % self.rows]
        scores = np.where(self.allowed(legal), scores / (temperature or 1.0), -np.inf)
        scores = scores - scores.max()
        log_probs: NDArray[np.float64] = scores - np.log(np.exp(scores).sum())
        return log_probs

    # ---- the reference ----------------------------------------------------------------------------------------------

    def logprobs(
        self, prompt: Ids, ids: Ids, temperature: float, legal: Legal | None, weights: int
    ) -> NDArray[np.float32]:
        """Return ``[L]`` log-probs of ``ids``."""
        tables = self.weights(weights)
        row = np.concatenate([prompt, ids])
        found = [
            self.next(tables, row[:t], temperature, legal)[int(row[t])]
            for t in range(len(prompt), len(prompt) + len(ids))
        ]
        return np.array(found, dtype=np.float32)

    def distribution(self, prompt: Ids, temperature: float, legal: Legal | None, weights: int) -> NDArray[np.float64]:
        """Return ``[R]`` log-probs of the next id."""
        return self.next(self.weights(weights), prompt, temperature, legal)


class TableEngine(Scripted):
    """A scripted engine whose script samples from a ``TableModel``; it takes turns with others after every id."""

    def __init__(self, model: TableModel | None = None, *, context: int = _CONTEXT) -> None:
        self.model = model or TableModel()
        super().__init__(lambda prompt, request: (), ByteText(), context=context, delay=0)
        self.weights = self.model.weights(0)

    async def generate(self, request: Request) -> Completion:
        """Sample one completion, an id at a time.

        Raises:
            Fault: the engine is closed.
            UsageError: a request that can never work.
        """
        await super().generate(request)  # its refusals
        prompt = request.prompt
        if not 0 <= int(prompt.min()) <= int(prompt.max()) < self.model.vocab:
            raise UsageError(f"a context holds plain ids (0..{self.model.vocab - 1})")
        draw = rng("table engine", request.seed)
        ids: list[int] = []
        logprobs: list[float] = []
        versions: list[int] = []
        finish = Finish.LENGTH
        for _ in range(min(request.max_tokens, self.context - len(prompt))):
            context = np.concatenate([prompt, np.array(ids, dtype=np.int32)])
            row = self.model.next(self.weights, context, request.temperature, request.legal)
            chosen = self.choose(row, request, draw)
            ids.append(chosen)
            logprobs.append(float(row[chosen]))
            versions.append(self.version)
            if chosen in request.stop or (request.legal is not None and chosen in request.legal.ids):
                finish = Finish.STOP if chosen in request.stop else Finish.ACTION
                break
            await asyncio.sleep(0)
            if self.closed:
                finish = Finish.ABORT
                break
        return Completion(np.array(ids, np.int32), np.array(logprobs, np.float32), np.array(versions, np.int32), finish)

    def choose(self, row: NDArray[np.float64], request: Request, draw: np.random.Generator) -> int:
        """Return the id that a row of log-probs gives."""
        if request.temperature == 0:
            return int(row.argmax())
        p = np.exp(row)
        return int(draw.choice(len(row), p=p / p.sum()))

    async def score(
        self, ids: Ids, candidates: Sequence[int], start: int, legal: Legal | None = None
    ) -> NDArray[np.float32]:
        """Return ``[T - start, C]`` log-probs at temperature 1."""
        rows = [self.model.next(self.weights, ids[:t], 1.0, legal)[list(candidates)] for t in range(start, len(ids))]
        return np.array(rows, dtype=np.float32).reshape(len(rows), len(candidates))


def table_subject(model: TableModel | None = None, **given: Any) -> Subject:
    """Return the scripted engine over a table as a subject."""
    table = model or TableModel()
    return Subject(
        **{
            "name": "scripted",
            "open": lambda: TableEngine(table),
            "vocab": table.vocab,
            "native": table.native,
            "reference": table,
            "weights": (table.weights(0), table.weights(1)),
            **given,
        }
    )
