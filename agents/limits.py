"""The limits of episodes and of collecting them."""

import math
from dataclasses import dataclass

from peira.tools.errors import UsageError

__all__ = ["RolloutSettings"]


@dataclass(frozen=True, slots=True)
class RolloutSettings:
    """Limits of an episode and of a collection."""

    max_turns: int | None = None
    """Turns of an episode; ``None``: the world's own limit."""
    max_tokens: int = 512
    """Ids sampled in one turn; a turn that needs more is cut off and ends the episode."""
    budget: int | None = None
    """Ids sampled in one episode; ``None``: no limit."""
    temperature: float = 1.0
    invalid_limit: int | None = 5
    """Turns in a row that the world does not understand; the last of them ends the episode. ``None``: no limit."""
    engine_seconds: float = 300.0
    """Longest wait for one completion."""
    world_seconds: float = 60.0
    """Longest wait for one answer of a world that declares itself ``blocking``."""
    episode_seconds: float = 1800.0
    """Longest episode."""
    retries: int = 2
    """Times a member lost to a fault is played anew, each with other seeds."""
    concurrency: int = 256
    """Episodes in flight at once."""

    def __post_init__(self) -> None:
        for name in ("max_turns", "max_tokens", "budget", "invalid_limit", "concurrency"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise UsageError(f"rollout setting {name} must be at least 1, not {value}")
        for name in ("engine_seconds", "world_seconds", "episode_seconds"):
            if not getattr(self, name) > 0:
                raise UsageError(f"rollout setting {name} must be positive, not {getattr(self, name)}")
        if not (self.temperature >= 0 and math.isfinite(self.temperature)):
            raise UsageError(f"rollout setting temperature must be a number of at least 0, not {self.temperature}")
        if self.retries < 0:
            raise UsageError(f"rollout setting retries must not be negative, not {self.retries}")
