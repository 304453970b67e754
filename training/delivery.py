"""Weights from the learner to the engine, and the proof that they arrived.

After every delivery the engine scores a fixed probe. Its log-probs must have moved, and must be the learner's: a
delivery that silently does nothing (stale cache, names that match nothing, a tied head left behind) is the worst fault
of this field because training goes on looking healthy.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from peira.agents.engines.base import Engine
from peira.agents.types import Ids, Legal
from peira.tools.errors import Fault
from peira.training.learner import Learner
from peira.training.types import Sample

__all__ = ["Probe", "deliver", "probe_of"]

TOLERANCE = 1e-3
"""Largest |log-prob of the engine - of the learner| in float32; all silent faults known are above 0.1."""

_LENGTH = 96
_CANDIDATES = 16


@dataclass(frozen=True, slots=True)
class Probe:
    """A context and some ids whose log-probs are asked for at each of its positions."""

    ids: Ids
    candidates: tuple[int, ...]
    legal: Legal | None


def probe_of(samples: Sequence[Sample], vocab: int) -> Probe:
    """Build a probe from recent samples: their longest context, and ids that were chosen, native rows too."""
    sample = max(samples, key=lambda s: len(s.ids))
    chosen = dict.fromkeys(int(i) for s in [sample, *samples] for i in s.targets)
    candidates = tuple(sorted(list(chosen)[:_CANDIDATES]))
    native = tuple(i for i in candidates if i >= vocab)
    return Probe(sample.ids[:_LENGTH], candidates, Legal(True, native) if native else None)


async def deliver(engine: Engine, learner: Learner, probe: Probe) -> dict[str, float]:
    """Load the learner's weights into the engine and check that they arrived.

    Returns:
        ``delivery_moved`` (largest change of a probed log-prob) and ``delivery_gap`` (largest difference from the
        learner's own).

    Raises:
        Fault: the probe did not move, or does not say what the learner says.
    """
    before = await engine.score(probe.ids, probe.candidates, 1, probe.legal)
    engine.load(learner.weights(), learner.version)
    after = await engine.score(probe.ids, probe.candidates, 1, probe.legal)
    moved, gap = _largest(after - before), _largest(after - _own(learner, probe))
    if gap > TOLERANCE:
        raise Fault(
            f"weights of version {learner.version} did not arrive: log-probs of the probe differ from the learner's by "
            f"{gap:.3g} (tolerance {TOLERANCE:g})",
            where="delivery",
        )
    if moved == 0:
        raise Fault(
            f"the delivery of version {learner.version} changed nothing: the probe's log-probs are those of before",
            where="delivery",
        )
    return {"delivery_moved": moved, "delivery_gap": gap}


def _largest(differences: NDArray[np.float32]) -> float:
    finite = differences[np.isfinite(differences)]
    return float(np.abs(finite).max()) if finite.size else 0.0


@torch.no_grad()
def _own(learner: Learner, probe: Probe) -> NDArray[np.float32]:
    """Score the probe with the learner's weights by one plain forward pass."""
    model: Any = learner.model
    ids = torch.as_tensor(probe.ids, dtype=torch.int64)[None]
    logits = model(input_ids=ids, use_cache=False).logits[0, :-1].float()
    allowed = torch.zeros(logits.shape[-1], dtype=torch.bool)
    if probe.legal is None or probe.legal.vocab:
        allowed[: learner.vocab] = True
    if probe.legal is not None:
        allowed[list(probe.legal.ids)] = True
    scores = logits.masked_fill(~allowed, -torch.inf).log_softmax(-1)
    return np.asarray(scores[:, list(probe.candidates)].numpy(), dtype=np.float32)
