"""What an update knows before its first step: the mini-batches, cut and packed, and the numbers that stay fixed.

The mini-batches are drawn once per update and keep their micro-batches over all epochs, so that the log-probs under
the old weights and under the reference come from the very forward pass the learner will repeat: the ratio of the first
step is exactly one, and the divergence from an untouched reference exactly zero.
"""

from collections import defaultdict
from collections.abc import Collection, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from peira.agents.types import Tag
from peira.envs.seeding import rng
from peira.training.model import CausalLM, decision_logprobs
from peira.training.pack import pack
from peira.training.terms import Denominators
from peira.training.types import MicroBatch, Sample

__all__ = ["MiniBatch", "Piece", "anchor", "as_row", "drop_unusable", "mini_batches", "prepare", "select"]

TRAINED = (Tag.DECISION, Tag.EXPERT)


@dataclass(frozen=True, slots=True)
class Piece:
    """A micro-batch reduced to its trained decisions."""

    micro: MicroBatch
    sampled: NDArray[np.bool_]
    """[D] the policy's own decisions; the others are an expert's."""
    old: Tensor | None = None
    """[D] log-prob under the weights at the start of the update; ``None``: the weights of its only step."""
    reference: Tensor | None = None
    """[D] log-prob of the reference among the vocabulary alone."""


@dataclass(frozen=True, slots=True)
class MiniBatch:
    """What one optimiser step looks at."""

    pieces: tuple[Piece, ...]
    sampled: Denominators
    expert: Denominators


def drop_unusable(samples: Sequence[Sample]) -> tuple[list[Sample], dict[str, float]]:
    """Leave out samples with nothing trained in them and those whose numbers cannot be trusted; count both.

    A decision's log-prob that is not finite (an engine that broke, or gave none) must not become a probability; what
    stands at ids that are not trained does not matter and is never read.
    """
    kept, untrained, broken = [], 0, 0
    for sample in samples:
        sampled = sample.tags == Tag.DECISION
        trained = np.isin(sample.tags, TRAINED)
        if not trained.any():
            untrained += 1
        elif not (np.isfinite(sample.logprobs[sampled]).all() and np.isfinite(sample.weights[trained]).all()):
            broken += 1
        else:
            kept.append(sample)
    return kept, {"samples_untrained": float(untrained), "samples_not_finite": float(broken)}


def mini_batches(samples: Sequence[Sample], count: int, *key: str | int) -> list[list[Sample]]:
    """Shuffle into at most ``count`` mini-batches of whole groups; of whole episodes when there are too few groups."""
    if count == 1:
        return [list(samples)]
    groups: dict[object, list[Sample]] = defaultdict(list)
    for sample in samples:
        groups[sample.group].append(sample)
    if len(groups) < count:
        groups = defaultdict(list)
        for sample in samples:
            groups[sample.group, sample.member].append(sample)
    units = list(groups.values())
    order = rng(*key).permutation(len(units))
    parts = np.array_split(order, min(count, len(units)))
    return [[sample for unit in part for sample in units[unit]] for part in parts]


def prepare(samples: Sequence[Sample], budget: int, trained: Collection[Tag], *, skip_flat: bool) -> MiniBatch | None:
    """Pack one mini-batch into micro-batches of at most ``budget`` tokens; ``None`` when nothing in it is trained.

    With ``skip_flat`` episodes whose weights are all zero are not computed; they still count in the denominators, so
    the gradient is the same. Only right when no other term looks at them.
    """
    tags = list(trained)
    samples = [s for s in samples if np.isin(s.tags, tags).any()]
    flat: list[Sample] = []
    if skip_flat:
        samples, flat = _split_flat(samples)
    if not samples:
        return None
    micros = [select(micro, np.isin(micro.tags, tags)) for micro in pack(samples, budget).micro]
    pieces = tuple(Piece(micro, micro.tags == Tag.DECISION) for micro in micros if len(micro.at))
    sampled, expert = (Denominators.of([p.micro.episode[p.sampled == own] for p in pieces]) for own in (True, False))
    if flat:
        sampled = Denominators(np.concatenate((sampled.lengths, _lengths(flat))))
    return MiniBatch(pieces, sampled, expert)


def _split_flat(samples: Sequence[Sample]) -> tuple[list[Sample], list[Sample]]:
    """Split off episodes with no weight on anything and no expert decision."""
    live = {(s.group, s.member) for s in samples if s.weights[np.isin(s.tags, TRAINED)].any() or _has_expert(s)}
    active = [s for s in samples if (s.group, s.member) in live]
    return active, [s for s in samples if (s.group, s.member) not in live]


def _has_expert(sample: Sample) -> bool:
    return bool((sample.tags == Tag.EXPERT).any())


def _lengths(samples: Sequence[Sample]) -> NDArray[np.int64]:
    """Return the trained decisions of each episode."""
    counts: dict[tuple[str, int], int] = defaultdict(int)
    for s in samples:
        counts[s.group, s.member] += int((s.tags == Tag.DECISION).sum())
    return np.array(list(counts.values()), dtype=np.int64)


def select(micro: MicroBatch, chosen: NDArray[np.bool_]) -> MicroBatch:
    """Return the same rows with only the chosen decisions."""
    if chosen.all():
        return micro
    return replace(
        micro,
        rows=micro.rows[chosen],
        at=micro.at[chosen],
        targets=micro.targets[chosen],
        logprobs=micro.logprobs[chosen],
        weights=micro.weights[chosen],
        tags=micro.tags[chosen],
        episode=micro.episode[chosen],
        temperature=micro.temperature[chosen],
        legal=micro.legal[chosen],
    )


@torch.no_grad()
def anchor(batch: MiniBatch, vocab: int, policy: CausalLM | None, reference: CausalLM | None) -> MiniBatch:
    """Fill in the log-probs under the policy as it stands and under the reference; ``None`` leaves one out."""
    pieces = []
    for piece in batch.pieces:
        if policy is not None:
            piece = replace(piece, old=decision_logprobs(policy, piece.micro, vocab).logprobs)
        if reference is not None:
            decided = decision_logprobs(reference, piece.micro, vocab, vocab_only=True)
            piece = replace(piece, reference=decided.vocab_logprobs)
        pieces.append(piece)
    return replace(batch, pieces=tuple(pieces))


def as_row(sample: Sample) -> MicroBatch:
    """Return a sample as a micro-batch of its own, all decisions in their order."""
    count = len(sample.at)
    return MicroBatch(
        ids=sample.ids[None].astype(np.int64),
        rows=np.zeros(count, dtype=np.int64),
        at=sample.at.astype(np.int64) - 1,
        targets=sample.targets.astype(np.int64),
        logprobs=sample.logprobs,
        weights=sample.weights,
        tags=sample.tags,
        episode=np.zeros(count, dtype=np.int64),
        temperature=np.full(count, sample.temperature, dtype=np.float32),
        legal=sample.legal.astype(np.int64),
        legal_sets=sample.legal_sets,
    )
