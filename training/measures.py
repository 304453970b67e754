"""Numbers about finished episodes, the same in training and in evaluation."""

from collections import Counter
from collections.abc import Sequence

import numpy as np

from peira.agents.types import Episode, Group

__all__ = ["episode_metrics", "verbs_of"]


def verbs_of(episode: Episode) -> list[str]:
    """Return the verb of each operation of an episode: ``compare`` of ``compare A B``, or a routing action's name."""
    return [
        turn.action.partition(" ")[0]
        for turn in episode.turns
        if turn.valid and not (turn.terminated or turn.truncated) and (turn.legal is None or turn.legal.vocab)
    ]


def episode_metrics(groups: Sequence[Group]) -> dict[str, float]:
    """Return success, score, length and ends of a step's episodes, and how often each kind of action was taken."""
    episodes = [episode for group in groups for episode in group.episodes]
    count = len(episodes)
    ends = Counter(str(episode.end) for episode in episodes)
    verbs = Counter(verb for episode in episodes for verb in verbs_of(episode))
    return {
        "episodes": float(count),
        "faults": float(sum(len(group.faults) for group in groups)),
        "success": float(np.mean([e.success for e in episodes])),
        "score": float(np.mean([e.score for e in episodes])),
        "turns": float(np.mean([len(e.turns) for e in episodes])),
        "sampled": float(np.mean([e.sampled for e in episodes])),
        **{f"end/{end}": n / count for end, n in sorted(ends.items())},
        **{f"actions/{verb}": n / count for verb, n in sorted(verbs.items())},
    }
