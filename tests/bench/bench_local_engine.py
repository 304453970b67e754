"""Tokens per second of the local engine in multi-turn rollout, beside one plain batched ``generate`` of the same model.

``generate`` runs ``slots`` rows, all as long as an episode becomes on average. The rollout runs three times as many
episodes over the same number of slots, with turns of random length (mean ``tokens``), an observation after each, and
no barrier anywhere.

Run: python tests/bench/bench_local_engine.py [--slots 256] [--turns 8] [--tokens 16] [--observation 8]
"""

import argparse
import asyncio
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from peira.agents.engines.base import Request
from peira.agents.engines.local import LocalEngine
from peira.agents.policy import Policy
from peira.agents.policy.new import new_policy
from peira.agents.types import Ids
from peira.envs.seeding import rng, seed_of

TEXTS = [f"compare {a} B, swap {a} C: {a} < B\n" for a in "ABCDE"] * 40


@dataclass(frozen=True)
class Shape:
    """What an episode looks like, in tokens."""

    slots: int = 256
    turns: int = 8
    prompt: int = 32
    tokens: int = 16
    observation: int = 8


def make_policy(folder: Path, size: str) -> Policy:
    return new_policy(folder, size=size, texts=TEXTS, overwrite=True)


def draw_ids(vocab: int, length: int, *key: str | int) -> Ids:
    return rng("bench", *key).integers(6, vocab, length).astype(np.int32)


def plain(model: Any, shape: Shape, vocab: int) -> float:
    """One batched ``generate``: every row the same length, so that nothing is wasted on padding."""
    ids = np.stack([draw_ids(vocab, shape.prompt, "prompt", row) for row in range(shape.slots)]).astype(np.int64)
    new = shape.turns * (shape.tokens + shape.observation)
    started = time.perf_counter()
    with torch.inference_mode():
        out = model.generate(
            input_ids=torch.from_numpy(ids),
            attention_mask=torch.ones(ids.shape, dtype=torch.long),
            do_sample=True,
            temperature=1.0,
            top_k=0,
            top_p=1.0,
            max_new_tokens=new,
            min_new_tokens=new,
            pad_token_id=0,
        )
    assert out.shape[1] == shape.prompt + new
    return shape.slots * new / (time.perf_counter() - started)


@dataclass(frozen=True)
class Script:
    """All that an episode reads, drawn before the clock starts."""

    row: int
    prompt: Ids
    lengths: list[int]
    observations: list[Ids]

    @classmethod
    def draw(cls, shape: Shape, vocab: int, row: int) -> "Script":
        lengths = rng("bench", "lengths", row).integers(1, 2 * shape.tokens, shape.turns).tolist()
        observations = [draw_ids(vocab, shape.observation, "seen", row, turn) for turn in range(shape.turns)]
        return cls(row, draw_ids(vocab, shape.prompt, "prompt", row), lengths, observations)


async def _episode(engine: LocalEngine, script: Script) -> int:
    context, sampled = script.prompt, 0
    for turn, (count, observation) in enumerate(zip(script.lengths, script.observations, strict=True)):
        request = Request(context, count, seed_of("bench", script.row, turn), session=script.row)
        completion = await engine.generate(request)
        sampled += len(completion.ids)
        context = np.concatenate([context, completion.ids, observation])
    engine.release(script.row)
    return sampled


async def _rollout(engine: LocalEngine, scripts: list[Script]) -> float:
    started = time.perf_counter()
    sampled = await asyncio.gather(*(_episode(engine, script) for script in scripts))
    return sum(sampled) / (time.perf_counter() - started)


def multi_turn(model: Any, shape: Shape, vocab: int) -> float:
    engine = LocalEngine(model, slots=shape.slots, context=1024)
    scripts = [Script.draw(shape, vocab, row) for row in range(3 * shape.slots)]
    return asyncio.run(_rollout(engine, scripts))


def measure(shape: Shape, size: str = "tiny", rounds: int = 3) -> dict[str, float]:
    """Best of some rounds of each, taken in turn."""
    with tempfile.TemporaryDirectory() as folder:
        policy = make_policy(Path(folder) / "policy", size)
        model = policy.model()
    plains, slots = [], []
    for _ in range(rounds):
        plains.append(plain(model, shape, policy.vocab))
        slots.append(multi_turn(model, shape, policy.vocab))
    return {"generate": max(plains), "multi_turn": max(slots), "ratio": max(slots) / max(plains)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", default="tiny")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=1)
    for name, value in vars(Shape()).items():
        parser.add_argument(f"--{name}", type=int, default=value)
    given = vars(parser.parse_args())
    size, rounds = given.pop("size"), given.pop("rounds")
    torch.set_num_threads(given.pop("threads"))
    shape = Shape(**given)
    found = measure(shape, size, rounds)
    print(f"{size}, {shape}")
    print(f"one plain generate  {found['generate']:9,.0f} sampled tokens/s")
    print(f"multi-turn rollout  {found['multi_turn']:9,.0f} sampled tokens/s  ({found['ratio']:.2f} of it)")


if __name__ == "__main__":
    main()
