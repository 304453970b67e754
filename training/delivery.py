"""Weights from the learner to the engine, and the proof that they arrived.

After every delivery the engine scores a fixed probe. Its log-probs must have moved, and must be the learner's: a
delivery that silently does nothing (stale cache, names that match nothing, a tied head left behind) is the worst fault
of this field because training goes on looking healthy.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Protocol, runtime_checkable

import numpy as np
import torch
from numpy.typing import NDArray

from peira.agents.engines.base import Engine
from peira.agents.types import Ids, Legal
from peira.tools.errors import Fault
from peira.training.learner import Learner
from peira.training.types import Sample

__all__ = ["TOLERANCE", "Comparable", "Probe", "deliver", "probe_of"]

TOLERANCE: Mapping[str, float] = {"float32": 1e-3, "float16": 0.05, "bfloat16": 0.25}
"""Largest |log-prob of the engine - of the learner| by the dtype served; in float32 all silent faults known are above
0.1."""

_LENGTH = 320
"""Ids of a probe: longer than the blocks in which engines keep prefixes, or a kept one would not be asked for."""
_SCORED = 48
"""Positions at its end that are compared."""
_CANDIDATES = 16
_NAMED = 12


@runtime_checkable
class Comparable(Protocol):
    """An engine that can say what it holds."""

    def differing(self, weights: Mapping[str, Any]) -> list[str]:
        """Return the names, out of the learner's weights, whose values the engine does not compute with."""
        ...


@dataclass(frozen=True, slots=True)
class Probe:
    """A context and some ids whose log-probs are asked for at each of its positions."""

    ids: Ids
    candidates: tuple[int, ...]
    legal: Legal | None

    @property
    def start(self) -> int:
        """First position that is compared."""
        return max(1, len(self.ids) - _SCORED)


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
        Fault: the probe did not move, or does not say what the learner says; the parameters that differ are named
            where the engine can tell them.
    """
    before = await engine.score(probe.ids, probe.candidates, probe.start, probe.legal)
    weights = learner.weights()
    engine.load(weights, learner.version)
    after = await engine.score(probe.ids, probe.candidates, probe.start, probe.legal)
    moved, gap = _largest(after - before), _largest(after - _own(learner, probe))
    tolerance = TOLERANCE[str(getattr(engine, "dtype", "float32"))]
    if gap > tolerance:
        raise Fault(
            f"weights of version {learner.version} did not arrive: log-probs of the probe differ from the learner's by "
            f"{gap:.3g} (tolerance {tolerance:g}).{_blamed(engine, weights)}",
            where="delivery",
        )
    if moved == 0:
        raise Fault(
            f"the delivery of version {learner.version} changed nothing: the probe's log-probs are those of before",
            where="delivery",
        )
    return {"delivery_moved": moved, "delivery_gap": gap}


def _blamed(engine: Engine, weights: Mapping[str, Any]) -> str:
    """Say which parameters the engine does not compute with, where it can tell."""
    if not isinstance(engine, Comparable):
        return ""
    names = engine.differing(weights)
    if not names:
        return " Every parameter is the learner's, so something was answered from a cache of older weights"
    more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
    return f" Parameters that differ: {', '.join(names[:_NAMED])}{more}"


def _largest(differences: NDArray[np.float32]) -> float:
    finite = differences[np.isfinite(differences)]
    return float(np.abs(finite).max()) if finite.size else 0.0


@torch.no_grad()
def _own(learner: Learner, probe: Probe) -> NDArray[np.float32]:
    """Score the probe with the learner's weights by one plain forward pass."""
    model: Any = learner.model
    ids = torch.as_tensor(probe.ids, dtype=torch.int64, device=model.device)[None]
    logits = model(input_ids=ids, use_cache=False).logits[0, probe.start - 1 : -1].float().cpu()
    allowed = torch.zeros(logits.shape[-1], dtype=torch.bool)
    if probe.legal is None or probe.legal.vocab:
        allowed[: learner.vocab] = True
    if probe.legal is not None:
        allowed[list(probe.legal.ids)] = True
    scores = logits.masked_fill(~allowed, -torch.inf).log_softmax(-1)
    return np.asarray(scores[:, list(probe.candidates)].numpy(), dtype=np.float32)
