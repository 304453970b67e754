"""What is asked of vLLM and what is accepted from it: a request as sampling parameters, an answer held to its request.

The same dictionary goes into ``SamplingParams`` in this process and over HTTP, so both ways of serving sample alike.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from peira.agents.engines.base import Request
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.tools.errors import Fault, UsageError

__all__ = ["LEGAL", "Served", "spread"]

LEGAL = "peira_legal"
"""Key of ``extra_args`` under which a request's legal set travels: ``{"plain": first ids, "ids": further ones}``."""

_SEEDS = (1 << 63) - 1
"""Seeds travel as signed 64-bit numbers; -1 would mean none."""
_COOLEST, _HOTTEST = 0.01, 2.0
"""vLLM refuses more, and quietly raises less."""
_TOGETHER = 127
"""Candidates of one request; vLLM takes 128 ids, and one goes to the id it samples."""
_NEVER = -9_999.0
"""What the server says for a log-prob that is no number or minus infinity."""
_ABOVE = 1e-3
"""How far a log-prob may stand above 0 for rounding's sake."""


@dataclass(frozen=True, slots=True)
class Served:
    """The numbers of a served policy that decide what can be asked."""

    vocab: int
    """Plain ids; rows from there on are sampled only where a legal set names them."""
    rows: int
    """Output rows of the model."""
    context: int
    """Longest prompt plus completion."""

    def check(self, request: Request) -> None:
        """Refuse a request that can never work.

        Raises:
            UsageError: it says what was given and what is allowed.
        """
        length = len(request.prompt)
        if not 1 <= length < self.context:
            raise UsageError(f"a prompt needs 1 to {self.context - 1} ids to leave room for one more; got {length}")
        self._check_plain(request.prompt)
        if request.max_tokens < 1:
            raise UsageError(f"max_tokens must be at least 1, not {request.max_tokens}")
        if request.temperature != 0 and not _COOLEST <= request.temperature <= _HOTTEST:
            raise UsageError(
                f"vLLM samples at temperature 0 or {_COOLEST:g} to {_HOTTEST:g}, not {request.temperature}; choose "
                "one of those, or the local engine"
            )
        self._check_rows(request.legal, request.stop, "stop")

    def check_score(self, ids: Ids, candidates: Sequence[int], start: int, legal: Legal | None) -> None:
        """Refuse a ``score`` call that can never work.

        Raises:
            UsageError: it says what was given and what is allowed.
        """
        if not 1 <= start <= len(ids) <= self.context:
            raise UsageError(
                f"score needs 1 <= start <= T <= {self.context}; got start={start}, T={len(ids)} "
                "(the first id has nothing before it and no log-prob)"
            )
        self._check_plain(ids)
        self._check_rows(legal, tuple(candidates), "candidate")

    def _check_plain(self, ids: Ids) -> None:
        if len(ids) and not 0 <= int(ids.min()) <= int(ids.max()) < self.vocab:
            raise UsageError(
                f"a context holds plain ids (0..{self.vocab - 1}); got {int(ids.min())}..{int(ids.max())}. A native "
                "action stands in the context as its text, not as its row"
            )

    def _check_rows(self, legal: Legal | None, others: tuple[int, ...], kind: str) -> None:
        if legal is not None and not legal.vocab and not legal.ids:
            raise UsageError(
                "the legal set is empty: no id could be sampled; the world must offer an action or free text"
            )
        for what, ids in (("legal", legal.ids if legal is not None else ()), (kind, others)):
            if ids and not 0 <= min(ids) <= max(ids) < self.rows:
                raise UsageError(
                    f"{what} ids {ids} do not all name output rows of the model (0..{self.rows - 1}); the policy was "
                    "made for other actions or another tokenizer"
                )

    def _rule(self, legal: Legal | None) -> dict[str, Any]:
        """Return what the worker's mask needs to know; nothing where every row is legal."""
        if (legal is None or (legal.vocab and not legal.ids)) and self.vocab == self.rows:
            return {}
        plain = self.vocab if legal is None or legal.vocab else 0
        return {"extra_args": {LEGAL: {"plain": plain, "ids": list(legal.ids) if legal is not None else []}}}

    def sampling(self, request: Request) -> dict[str, Any]:
        """Return the sampling parameters of a request: temperature alone, its own seed, no end but its own."""
        stop = {*request.stop, *(request.legal.ids if request.legal is not None else ())}
        return {
            "max_tokens": min(request.max_tokens, self.context - len(request.prompt)),
            "temperature": request.temperature,
            "top_p": 1.0,
            "top_k": 0,
            "min_p": 0.0,
            "seed": request.seed & _SEEDS,
            "stop_token_ids": sorted(stop),
            "ignore_eos": True,
            "detokenize": False,
            "logprobs": 0,
            **self._rule(request.legal),
        }

    def scoring(self, candidates: Sequence[int], legal: Legal | None) -> list[dict[str, Any]]:
        """Return the sampling parameters of requests that together ask for the candidates' log-probs as the next id.

        The id that is sampled on the way is reported first and may push the last one out of the answer, so each list
        ends in an id nobody asked for.
        """
        asked = list(dict.fromkeys(candidates))
        spare = next((row for row in range(self.rows) if row not in set(asked)), asked[0] if asked else 0)
        parts = [[*asked[at : at + _TOGETHER], spare] for at in range(0, len(asked), _TOGETHER)]
        return [
            {
                "max_tokens": 1,
                "temperature": 1.0,
                "seed": 0,
                "ignore_eos": True,
                "detokenize": False,
                "logprobs": len(part),
                "logprob_token_ids": part,
                **self._rule(legal),
            }
            for part in parts
        ]

    def may(self, row: int, legal: Legal | None) -> bool:
        """Tell whether an id is in a legal set."""
        return (0 <= row < self.vocab and (legal is None or legal.vocab)) or (legal is not None and row in legal.ids)

    def completion(
        self, request: Request, ids: Sequence[int], logprobs: Sequence[float | None], versions: Sequence[int], end: str
    ) -> Completion:
        """Hold an answer to its request.

        Args:
            request: what was asked.
            ids: sampled ids.
            logprobs: one per id.
            versions: one per id.
            end: vLLM's finish reason.

        Raises:
            Fault: wrong counts, numbers that are not log-probs, ids that were not legal or stand after the end.
        """
        if not len(ids) == len(logprobs) == len(versions):
            raise _fault(f"{len(ids)} ids came with {len(logprobs)} log-probs and {len(versions)} versions")
        if len(ids) > request.max_tokens:
            raise _fault(f"{len(ids)} ids came where {request.max_tokens} were asked for")
        illegal = [row for row in ids if not self.may(row, request.legal)]
        if illegal:
            raise _fault(f"id {illegal[0]} was sampled although it was not legal; the worker did not apply the mask")
        numbers = np.array([_number(logprob) for logprob in logprobs], dtype=np.float32)
        if not np.isfinite(numbers).all() or (len(numbers) and float(numbers.max()) > _ABOVE):
            raise _fault("the log-probs are not finite numbers up to 0")
        acts = request.legal.ids if request.legal is not None else ()
        ending = [i for i, row in enumerate(ids) if row in request.stop or row in acts]
        if ending and ending[0] != len(ids) - 1:
            raise _fault(f"{len(ids) - 1 - ending[0]} ids stand after the one that ends the completion")
        finish = self._finish(request, ids, end, bool(ending))
        return Completion(
            np.array(ids, dtype=np.int32).reshape(-1), numbers, np.array(versions, dtype=np.int32).reshape(-1), finish
        )

    def _finish(self, request: Request, ids: Sequence[int], end: str, ended: bool) -> Finish:
        if ended:
            return Finish.STOP if ids[-1] in request.stop else Finish.ACTION
        if end == "abort":
            return Finish.ABORT
        room = min(request.max_tokens, self.context - len(request.prompt))
        if len(ids) != room:
            raise _fault(f"the completion ended ({end!r}) after {len(ids)} of {room} ids without an end id")
        return Finish.LENGTH

    def scores(
        self, tables: Sequence[Mapping[int, float | None]], candidates: Sequence[int], legal: Legal | None
    ) -> NDArray[np.float32]:
        """Return ``[T C]`` from one table ``id -> log-prob`` per position; what is not legal scores ``-inf``.

        Raises:
            Fault: a legal candidate without a finite log-prob.
        """
        out = np.full((len(tables), len(candidates)), -np.inf, dtype=np.float32)
        for position, table in enumerate(tables):
            for column, candidate in enumerate(candidates):
                if not self.may(candidate, legal):
                    continue
                number = _number(table.get(candidate))
                if not np.isfinite(number):
                    raise _fault(f"id {candidate} got the score {table.get(candidate)}")
                out[position, column] = number
        return out


def spread(spans: Sequence[tuple[str, int, int]] | None, length: int, first: int) -> list[int]:
    """Return the version of each of ``length`` ids from vLLM's spans ``(label, start, end)``.

    Labels that are not ours stand for the weights the engine started with.

    Raises:
        Fault: spans that do not cover the ids.
    """
    versions: list[int] = []
    for label, start, end in spans or ():
        if start != len(versions):
            break
        versions += [int(label) if label.lstrip("-").isdigit() else first] * (end - start)
    if len(versions) != length:
        raise _fault(f"the versions of {length} ids are given as {spans}")
    return versions


def _number(logprob: float | None) -> float:
    return np.nan if logprob is None or logprob <= _NEVER else float(logprob)


def _fault(what: str) -> Fault:
    return Fault(f"vLLM's answer cannot be trusted: {what}", where="engine")
