"""Short ways to write turns, episodes and groups down by hand."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from peira.agents.types import Completion, End, Episode, Finish, Group, Legal, Origin, Tag, Turn
from peira.tasks.task import Task


def turn(
    ids: int | Sequence[int] = 2,
    *,
    prompt: Sequence[int] = (0,),
    reward: float = 0.0,
    tags: Sequence[Tag] | None = None,
    logprobs: Sequence[float] | None = None,
    written: Sequence[int] | None = None,
    at: Sequence[int] | None = None,
    legal: Legal | None = None,
    finish: Finish = Finish.STOP,
    valid: bool = True,
    version: int = 0,
) -> Turn:
    """A turn of ``ids`` decisions (or these very ids), each written as itself."""
    sampled = np.arange(1, ids + 1) if isinstance(ids, int) else np.array(ids)
    count = len(sampled)
    return Turn(
        prompt=np.array(prompt, dtype=np.int32),
        completion=Completion(
            sampled.astype(np.int32),
            np.array([-0.5] * count if logprobs is None else logprobs, dtype=np.float32),
            np.full(count, version, dtype=np.int32),
            finish,
        ),
        written=np.array(sampled if written is None else written, dtype=np.int32),
        at=np.array(range(count) if at is None else at, dtype=np.int32),
        tags=np.array([Tag.DECISION] * count if tags is None else tags, dtype=np.uint8),
        legal=legal,
        action="",
        observation="",
        reward=reward,
        state_key="",
        terminated=False,
        truncated=False,
        valid=valid,
    )


def episode(
    turns: Sequence[Turn],
    *,
    task: Task | None = None,
    score: Any = "sum",
    end: End = End.FAILURE,
    origin: Origin | None = None,
    temperature: float = 1.0,
) -> Episode:
    """An episode whose score is the sum of its rewards unless another one is given."""
    total = sum(t.reward for t in turns) if isinstance(score, str) else score
    return Episode(
        task=task or Task.of("sorting", 0),
        turns=tuple(turns),
        score=total,
        success=end is End.SUCCESS,
        end=end,
        temperature=temperature,
        first_observation="",
        origin=origin,
    )


def group(episodes: Sequence[Episode]) -> Group:
    """The group of these episodes."""
    return Group(episodes[0].task, tuple(episodes))


def scored(scores: Sequence[Any], *, lengths: Sequence[int] | None = None, seed: int = 0) -> Group:
    """A group of one-turn episodes with these scores (None: unscored) and numbers of decisions (default 2)."""
    task = Task.of("sorting", seed)
    counts = [2] * len(scores) if lengths is None else lengths
    return group(
        [
            episode([turn(count, reward=0.0 if score is None else score)], task=task, score=score)
            for score, count in zip(scores, counts, strict=True)
        ]
    )


def forked(score: float, origin_score: float, *, task: Task | None = None, forced: int = 1) -> Episode:
    """A counterfactual episode of one turn with three ids, of which number ``forced`` was forced."""
    tags = [Tag.FORCED if i == forced else Tag.DECISION for i in range(3)]
    origin = Origin("counterfactual", origin_score, 0, forced)
    return episode([turn(3, reward=score, tags=tags)], task=task, origin=origin)
