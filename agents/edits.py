"""Edits: rules on finished groups, part of collecting them. They see statistics and ids, never text.

``counterfactual`` is the rewriting of EARL's counterfactual policy optimisation (arXiv 2510.07581): in a group where
nothing succeeded, every member is forked at a place in language mode, a routing action is forced there, and the
policy goes on from it. What that brought, against what the original brought, is the rewritten member's credit.
"""

from collections.abc import Coroutine, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from types import MappingProxyType
from typing import Any

import numpy as np

from peira.agents.actions import ActionTable
from peira.agents.engines.base import Engine
from peira.agents.rollout import Fork, RolloutSettings, gather_bounded, run_episode
from peira.agents.types import Episode, FaultRecord, Group, Ids, Legal, Origin, Tag, Turn
from peira.agents.view import View
from peira.envs.seeding import rng, seed_of
from peira.tools.errors import UsageError

__all__ = ["Gains", "counterfactual", "flat", "insertable", "nucleus"]


def flat(group: Group, tolerance: float = 1e-6) -> bool:
    """Return whether all members scored the same, so that the group says nothing about which was better."""
    scores = [episode.score for episode in group.episodes]
    return not scores or max(scores) - min(scores) <= tolerance


@dataclass(frozen=True, slots=True)
class Gains:
    """Running mean of what forcing each routing action has brought (EARL: decay 0.9, start 0.001)."""

    values: Mapping[str, float] = field(default_factory=lambda: MappingProxyType({}))
    decay: float = 0.9
    start: float = 0.001

    def weights(self, names: Sequence[str]) -> np.ndarray:
        """Return probabilities over ``names``: ``max(0, g) / max g``, normalised; uniform when all are about zero."""
        gains = np.maximum(0.0, [self.values.get(name, self.start) for name in names])
        if gains.sum() < 1e-5:
            return np.full(len(names), 1.0 / len(names))
        relative = gains / gains.max()
        return np.asarray(relative / relative.sum())

    def told(self, name: str, gain: float) -> "Gains":
        """Return the gains after one more observation."""
        old = self.values.get(name, self.start)
        return replace(self, values={**self.values, name: self.decay * old + (1 - self.decay) * gain})


def nucleus(scores: np.ndarray, temperature: float, top_k: int, top_p: float) -> np.ndarray:
    """Return sampling probabilities over positions: softmax at a temperature, cut to ``top_k``, then to ``top_p``.

    Args:
        scores: [N] log-probabilities.
        temperature: divides the scores.
        top_k: at most this many positions keep probability.
        top_p: the most probable positions whose mass first reaches this share stay.
    """
    order = np.argsort(-scores, kind="stable")[:top_k]
    weights = np.exp((scores[order] - scores[order[0]]) / temperature)
    weights /= weights.sum()
    kept = int(np.searchsorted(np.cumsum(weights), top_p) + 1)
    result = np.zeros(len(scores))
    result[order[:kept]] = weights[:kept] / weights[:kept].sum()
    return result


def insertable(episode: Episode, vocab: int) -> list[tuple[int, int]]:
    """Return the (turn, position) places written by plain vocabulary decisions in language mode."""
    places = []
    for k, turn in enumerate(episode.turns):
        if turn.legal is not None and turn.legal.vocab:
            plain = (turn.completion.ids < vocab) & (turn.tags == Tag.DECISION)
            places += [(k, int(position)) for position in np.flatnonzero(plain)]
    return places


@dataclass(frozen=True, slots=True)
class _Rewriter:
    """What a rewrite needs, gathered once per call."""

    engine: Engine
    view: View
    actions: ActionTable
    settings: RolloutSettings
    temperature: float
    top_k: int
    top_p: float

    async def rewrite(
        self, episode: Episode, gains: Gains, generator: np.random.Generator, seed: int
    ) -> tuple[Episode, str] | FaultRecord:
        """Fork one member at a chosen place with a forced routing action, and let the policy go on."""
        name = self._routing(episode, gains, generator)
        turn, position = await self._place(episode, name, generator)
        fork = Fork(episode, turn, position, force=self.actions.id_of(name))
        made = await run_episode(episode.task, self.engine, self.view, self.settings, seed=seed, fork=fork)
        if isinstance(made, FaultRecord):
            return made
        return replace(made, origin=Origin("counterfactual", episode.score, turn, position)), name

    def _routing(self, episode: Episode, gains: Gains, generator: np.random.Generator) -> str:
        offered = {i for turn in episode.turns if turn.legal is not None and turn.legal.vocab for i in turn.legal.ids}
        rows = zip(self.actions.names, self.actions.ids, self.actions.routing, strict=True)
        names = [name for name, row, routing in rows if routing and row in offered]
        if not names:
            raise UsageError(
                f"counterfactual rewriting found no routing action in an episode of {episode.task.world!r}; "
                "it needs a world with actions = 'expanded'"
            )
        return names[int(generator.choice(len(names), p=gains.weights(names)))]

    async def _place(self, episode: Episode, name: str, generator: np.random.Generator) -> tuple[int, int]:
        row, first = self.actions.id_of(name), int(self.actions.written_of(self.actions.id_of(name))[0])
        places = [
            place
            for place in insertable(episode, min(self.actions.ids))
            if row in episode.turns[place[0]].legal.ids  # type: ignore[union-attr]  # insertable places have a legal set
        ]
        if not places:
            return 0, 0
        scores = await self._scores(episode, places, (first, row))
        chances = nucleus(scores, self.temperature, self.top_k, self.top_p)
        return places[int(generator.choice(len(places), p=chances))]

    async def _scores(self, episode: Episode, places: list[tuple[int, int]], candidates: tuple[int, int]) -> np.ndarray:
        """Score each place by the better of its two ways into the nested environment."""
        scores = np.full(len(places), -np.inf)
        for context, legal, members in _contexts(episode, places):
            positions = np.array([position for _, position in members])
            start = int(positions.min())
            table = await self.engine.score(context, candidates, start, legal)
            scores[[index for index, _ in members]] = table[positions - start].max(axis=1)
        return scores


def _fresh(episode: Episode) -> int:
    """Return how many ids a fork sampled itself: those after the place where it left its original."""
    origin = episode.origin
    assert origin is not None  # only rewritten episodes are asked
    kept = sum(len(turn.completion.ids) for turn in episode.turns[: origin.turn]) + origin.position + 1
    return max(0, episode.sampled - kept)


def _contexts(
    episode: Episode, places: list[tuple[int, int]]
) -> Iterable[tuple[Ids, Legal | None, list[tuple[int, int]]]]:
    """Group places by (context that holds them, legal set), so that one forward pass scores all of a context's places.

    Yields ``(ids, legal, [(index into places, position in ids), ...])``. In append mode all turns lie in the last
    turn's context; a turn whose prompt did not extend the one before begins a context of its own.
    """
    home: list[int] = [0] * len(episode.turns)
    for k in range(len(episode.turns) - 1, -1, -1):
        follows = k + 1 < len(episode.turns) and _extends(episode.turns[k + 1], episode.turns[k])
        home[k] = home[k + 1] if follows else k
    grouped: dict[tuple[int, Legal | None], list[tuple[int, int]]] = {}
    for index, (k, position) in enumerate(places):
        turn = episode.turns[k]
        where = len(turn.prompt) + int(turn.at[position])
        grouped.setdefault((home[k], turn.legal), []).append((index, where))
    for (k, legal), members in grouped.items():
        turn = episode.turns[k]
        yield np.concatenate([turn.prompt, turn.written]), legal, members


def _extends(later: Turn, earlier: Turn) -> bool:
    size = len(earlier.prompt) + len(earlier.written)
    return (
        len(later.prompt) >= size
        and bool(np.array_equal(later.prompt[: len(earlier.prompt)], earlier.prompt))
        and bool(np.array_equal(later.prompt[len(earlier.prompt) : size], earlier.written))
    )


async def counterfactual(
    groups: Sequence[Group],
    engine: Engine,
    view: View,
    settings: RolloutSettings,
    gains: Gains,
    *,
    seed: int,
    temperature: float = 10.0,
    top_k: int = 10,
    top_p: float = 0.9,
) -> tuple[list[Group], Gains, dict[str, float]]:
    """Rewrite every member of each group in which no member scored above zero.

    Args:
        groups: finished groups; those with any success come back as they are.
        engine: scores the places and plays on.
        view: renders for the policy; must carry an action table.
        settings: how episodes are played.
        gains: what each routing action has brought so far.
        seed: names the random choices of this call.
        temperature: of the scores from which a place is drawn (EARL: 10).
        top_k: at most this many places are in the draw (EARL: 10).
        top_p: and of these the most likely ones with this share (EARL: 0.9).

    Returns:
        The groups, the gains after them, and counts: ``rewritten``, ``rewrite_gain`` in all, ``rewrite_tokens`` newly
        sampled.

    Raises:
        UsageError: the view has no native actions.
    """
    if view.actions is None:
        raise UsageError(
            "counterfactual rewriting forces native actions, but this policy has none (`peira policy expand`)"
        )
    rewriter = _Rewriter(engine, view, view.actions, settings, temperature, top_k, top_p)
    chosen = [
        (g, m)
        for g, group in enumerate(groups)
        if all(episode.score == 0 for episode in group.episodes)
        for m in range(len(group.episodes))
    ]

    def job(g: int, m: int) -> Coroutine[Any, Any, tuple[Episode, str] | FaultRecord]:
        key = groups[g].task.key
        generator = rng("counterfactual", seed, key, g, m)
        return rewriter.rewrite(groups[g].episodes[m], gains, generator, seed_of("rewrite", seed, key, g, m))

    made = await gather_bounded([job(g, m) for g, m in chosen], settings.concurrency)
    edited = [list(group.episodes) for group in groups]
    faults = [list(group.faults) for group in groups]
    brought: list[float] = []
    fresh = 0
    for (g, m), result in zip(chosen, made, strict=True):
        if isinstance(result, FaultRecord):
            faults[g].append(result)
            continue
        episode, name = result
        gain = episode.score - groups[g].episodes[m].score
        gains = gains.told(name, gain)
        fresh += _fresh(episode)
        brought.append(gain)
        edited[g][m] = episode
    result_groups = [
        replace(group, episodes=tuple(e), faults=tuple(f)) for group, e, f in zip(groups, edited, faults, strict=True)
    ]
    stats = {
        "rewritten": float(len(brought)),
        "rewrite_gain": float(np.sum(brought)),
        "rewrite_tokens": float(fresh),
    }
    return result_groups, gains, stats
