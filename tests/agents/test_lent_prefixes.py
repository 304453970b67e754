"""Rows that lend their beginnings to one another, over waves of prompts with much in common.

A row that had copied a prefix once kept the ids of its former prompt beside the keys of the new one, and lent those
keys on under the wrong name: log-probs were off by whole units, and only from the third wave on.
"""

import asyncio
from types import ModuleType

import numpy as np
import pytest

from peira.agents.engines.base import Request
from peira.agents.engines.local import LocalEngine
from peira.envs.seeding import rng

VOCAB = 50


@pytest.mark.parametrize("seed", range(2))
def test_logprobs_stay_exact_over_waves_of_related_prompts(models: ModuleType, seed: int) -> None:
    model = models.llama()
    generator = rng("lent", seed)
    stems = generator.integers(0, VOCAB, (3, 40)).astype(np.int32)

    def prompt() -> np.ndarray:
        stem = stems[generator.integers(len(stems))]
        tail = generator.integers(0, VOCAB, generator.integers(1, 12)).astype(np.int32)
        return np.concatenate([stem[: generator.integers(8, len(stem))], tail])

    async def play(engine: LocalEngine, session: int, turns: int) -> list[tuple[Request, np.ndarray]]:
        made, context = [], prompt()
        for turn in range(turns):
            request = Request(context, 3, 100 * session + turn, session=session)
            completion = await engine.generate(request)
            expected = models.teacher_forced(model, request, completion, VOCAB)
            made.append((completion.logprobs, expected))
            # As behind a native action: what is written afterwards is not always what was sampled.
            context = np.concatenate([context, completion.ids[:-1], prompt()[:5]])
        engine.release(session)
        return made

    async def waves() -> None:
        engine = LocalEngine(model, slots=6, context=128)
        for wave in range(4):
            played = await asyncio.gather(*(play(engine, 10 * wave + s, 1 + s % 3) for s in range(9)))
            for logprobs, expected in (pair for made in played for pair in made):
                np.testing.assert_allclose(logprobs, expected, atol=1e-4)

    asyncio.run(waves())
