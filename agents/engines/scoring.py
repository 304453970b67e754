"""Scoring given ids: one plain forward pass over right-padded rows, no cache."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import torch
from numpy.typing import NDArray

from peira.agents.engines.sampling import Rules
from peira.agents.types import Ids, Legal

__all__ = ["Scoring", "score_all"]

_LOGITS = 1 << 24
"""Numbers in the logits of one forward pass; more rows go into the next."""


@dataclass(eq=False, slots=True)
class Scoring:
    """A ``score`` call on its way."""

    ids: Ids
    """[T]"""
    candidates: tuple[int, ...]
    start: int
    legal: Legal | None
    future: "asyncio.Future[NDArray[np.float32]]"


def score_all(model: torch.nn.Module, rules: Rules, jobs: Sequence[Scoring]) -> None:
    """Answer every job; rows of similar length share a pass. Causal attention never looks at padding on the right."""
    rest = sorted(jobs, key=lambda job: len(job.ids))
    while rest:
        fits = max(1, _LOGITS // (len(rest[-1].ids) * rules.rows))
        part, rest = rest[-fits:], rest[:-fits]
        _score(model, rules, part)


def _score(model: torch.nn.Module, rules: Rules, jobs: Sequence[Scoring]) -> None:
    device = rules.penalty.device
    width, first = max(len(job.ids) for job in jobs), min(job.start for job in jobs) - 1
    ids = np.zeros((len(jobs), width), dtype=np.int64)
    for row, job in enumerate(jobs):
        ids[row, : len(job.ids)] = job.ids
    keep = torch.arange(first, width, device=device)
    logits = model(input_ids=torch.from_numpy(ids).to(device), use_cache=False, logits_to_keep=keep).logits
    for row, job in enumerate(jobs):
        # Position t is predicted by the logits after t - 1.
        span = logits[row, job.start - 1 - first : len(job.ids) - 1 - first].float()
        logprobs = (span + rules.mask(job.legal)).log_softmax(-1)
        chosen = logprobs[:, torch.tensor(job.candidates, dtype=torch.long, device=device)]
        if not job.future.done():
            job.future.set_result(chosen.cpu().numpy().astype(np.float32))
