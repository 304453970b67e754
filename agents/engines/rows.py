"""Who sits in which row of the cache: placing, keeping, sharing prefixes, evicting. Arrays, no tensors."""

import asyncio
from dataclasses import dataclass

import numpy as np

from peira.agents.engines.base import Request
from peira.agents.types import Completion, Finish, Ids

__all__ = ["Job", "Rows"]

_NOBODY = -1
_WORTH_COPYING = 8
"""A shared prefix shorter than this is computed again rather than copied."""


@dataclass(eq=False, slots=True)
class Job:
    """A request on its way."""

    request: Request
    future: "asyncio.Future[Completion]"
    row: int = _NOBODY
    """Its row, or -1 while it waits or when it is over."""

    @property
    def over(self) -> bool:
        """Whether nobody waits for an answer any more."""
        return self.future.done()


class Rows:
    """The rows' contents as arrays; index 0 of each is the row.

    A row is *free* (its remains may still lend a prefix), *kept* (idle, held for a session's next turn) or *busy*.
    """

    def __init__(self, slots: int, context: int) -> None:
        self.slots, self.context = slots, context
        self.ids = np.zeros((slots, context), dtype=np.int32)
        """[N C] prompt and sampled ids."""
        self.logprobs = np.zeros((slots, context), dtype=np.float32)
        """[N C] of the sampled ids, at the ids' places; likewise ``versions``."""
        self.versions = np.zeros((slots, context), dtype=np.int32)
        self.known = np.zeros(slots, dtype=np.int64)
        """[N] ids known."""
        self.cached = np.zeros(slots, dtype=np.int64)
        """[N] ids whose keys and values are in the cache."""
        self.prompt = np.zeros(slots, dtype=np.int64)
        """[N] length of the prompt."""
        self.limit = np.zeros(slots, dtype=np.int64)
        """[N] most ids to sample."""
        self.seed = np.zeros(slots, dtype=np.uint64)
        self.temperature = np.ones(slots, dtype=np.float64)
        self.rule = np.zeros(slots, dtype=np.int64)
        self.busy = np.zeros(slots, dtype=bool)
        self.kept = np.zeros(slots, dtype=bool)
        self.jobs: list[Job | None] = [None] * slots
        self._used = np.zeros(slots, dtype=np.int64)
        self._clock = 0
        self._row_of: dict[int, int] = {}
        self._session_of: dict[int, int] = {}
        self._leaders: dict[bytes, Job] = {}

    # ---- finding a place --------------------------------------------------------------------------------------------

    def row_of(self, session: int | None) -> int | None:
        """Return the idle row that is kept for a session."""
        row = self._row_of.get(session) if session is not None else None
        return row if row is not None and not self.busy[row] else None

    def follows(self, job: Job) -> bool:
        """Whether the same prompt is being computed for somebody else, so that waiting a step saves the work."""
        leader = self._leaders.get(job.request.prompt.tobytes())
        return leader is not None and leader.row >= 0 and bool(self.cached[leader.row] < self.prompt[leader.row] - 1)

    def vacant(self) -> bool:
        """Whether a newcomer finds a row."""
        return not self.busy.all()

    def lend(self, prompt: Ids) -> tuple[int, int, int]:
        """Choose a row for a newcomer: ``(row, donor, shared)``.

        The donor is the row with the longest prefix in common, of ``shared`` ids. A free donor is itself the row. Else
        it is the lowest free row, else the row kept longest without use, whose session loses its cache.
        """
        length = len(prompt) - 1  # the last id is always fed, for its logits
        differs = self.ids[:, :length] != prompt[:length]
        common = np.where(differs.any(1), differs.argmax(1), length) if length else np.zeros(self.slots, dtype=np.int64)
        common = np.minimum(common, self.cached)
        donor = int(common.argmax())
        shared = int(common[donor])
        free = ~(self.busy | self.kept)
        if free[donor] and shared:
            return donor, donor, shared
        if free.any():
            row = int(free.argmax())
        else:
            row = int(np.where(self.busy, np.iinfo(np.int64).max, self._used).argmin())
            self.forget(row)
        if row == donor:
            return row, row, shared
        return row, donor, shared if shared >= _WORTH_COPYING else 0

    # ---- a row's life -----------------------------------------------------------------------------------------------

    def seat(self, job: Job, row: int, shared: int, rule: int) -> None:
        """Put a request into a row of which ``shared`` ids are cached already."""
        request = job.request
        prompt = request.prompt
        length = len(prompt)
        # The shared part too: it may have been copied from another row, and this row lends by what its ids say.
        self.ids[row, :length] = prompt
        self.known[row] = self.prompt[row] = length
        self.cached[row] = shared
        self.limit[row] = min(request.max_tokens, self.context - length)
        self.seed[row] = request.seed & 0xFFFF_FFFF_FFFF_FFFF
        self.temperature[row] = request.temperature
        self.rule[row] = rule
        self.busy[row], self.kept[row] = True, False
        self.jobs[row], job.row = job, row
        session = request.session
        if session is not None and session not in self._row_of:
            self._row_of[session], self._session_of[row] = row, session
        if length - shared > 1:
            self._leaders[prompt.tobytes()] = job

    def common(self, row: int, prompt: Ids) -> int:
        """Return how many ids of a prompt the row has cached already; the last one never counts."""
        length = min(int(self.cached[row]), len(prompt) - 1)
        differs = self.ids[row, :length] != prompt[:length]
        first = int(differs.argmax()) if length else 0
        return first if length and differs[first] else length

    def leave(self, row: int) -> None:
        """End a row's request; a session keeps its row, others give it back."""
        job = self.jobs[row]
        if job is not None:
            job.row = _NOBODY
            self._leaders.pop(job.request.prompt.tobytes(), None)
        self.jobs[row] = None
        self.busy[row] = False
        self.known[row] = self.cached[row]
        self.kept[row] = row in self._session_of
        self._clock += 1
        self._used[row] = self._clock

    def completion(self, row: int, finish: Finish) -> Completion:
        """Return what the row's request has sampled."""
        span = slice(int(self.prompt[row]), int(self.known[row]))
        return Completion(
            self.ids[row, span].copy(), self.logprobs[row, span].copy(), self.versions[row, span].copy(), finish
        )

    def forget(self, row: int) -> None:
        """Take a row from its session."""
        session = self._session_of.pop(row, None)
        if session is not None:
            self._row_of.pop(session, None)
        self.kept[row] = False

    def release(self, session: int) -> None:
        """Give a session's row back; a busy one is given back when its request ends."""
        row = self._row_of.get(session)
        if row is not None:
            self.forget(row)

    def invalidate(self) -> None:
        """Drop every cached key and value; ids that are known are fed again."""
        self.cached[:] = 0
