"""The local engine against plain forward passes of the same model."""

import asyncio
from collections.abc import Coroutine
from types import ModuleType
from typing import Any

import numpy as np
import pytest
import torch

from peira.agents.engines.base import Engine, Request
from peira.agents.engines.local import LocalEngine
from peira.agents.engines.slots import SlotCache
from peira.agents.policy import Policy
from peira.agents.types import Completion, Finish, Ids, Legal
from peira.envs.seeding import rng
from peira.tools.errors import Fault, UsageError

VOCAB = 50


def run(work: Coroutine[Any, Any, Any]) -> Any:
    return asyncio.run(work)


def ids_of(*values: int) -> Ids:
    return np.array(values, dtype=np.int32)


def some(length: int, *key: int | str, vocab: int = VOCAB) -> Ids:
    return rng("test", *key).integers(0, vocab, length).astype(np.int32)


async def serve(engine: LocalEngine, requests: list[Request]) -> list[Completion]:
    return list(await asyncio.gather(*(engine.generate(request) for request in requests)))


def same(a: Completion, b: Completion, tolerance: float = 5e-5) -> None:
    assert a.ids.tolist() == b.ids.tolist()
    assert a.finish == b.finish
    np.testing.assert_allclose(a.logprobs, b.logprobs, atol=tolerance)


@pytest.fixture(scope="module")
def nano(models: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Policy:
    policy: Policy = models.policy(tmp_path_factory.mktemp("policies") / "nano")
    return policy


@pytest.fixture
def fed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Number of tokens of every forward pass."""
    counts: list[int] = []
    forward = SlotCache.forward

    def counting(self: SlotCache, ids: Any, feed: Any, keep: Any) -> Any:
        counts.append(len(ids))
        return forward(self, ids, feed, keep)

    monkeypatch.setattr(SlotCache, "forward", counting)
    return counts


def test_it_is_an_engine(models: ModuleType) -> None:
    assert isinstance(LocalEngine(models.llama(), slots=1), Engine)


# ---- the log-probs are those of the model ---------------------------------------------------------------------------


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0, 1.3])
def test_b34_logprobs_equal_teacher_forcing_under_every_rule(
    nano: Policy, models: ModuleType, temperature: float
) -> None:
    model, vocab = nano.model(), nano.vocab
    engine = LocalEngine(model, slots=8, context=128, vocab=vocab)
    rows = nano.actions.ids
    rules = [None, Legal(True, ()), Legal(True, rows[:2]), Legal(False, rows[2:]), Legal(False, (7, 9, rows[0]))]
    requests = [
        Request(some(3 + 5 * i, "rules", i, vocab=vocab), 12, i, temperature, stop=(1,), legal=rules[i % len(rules)])
        for i in range(20)
    ]
    for request, completion in zip(requests, run(serve(engine, requests)), strict=True):
        expected = models.teacher_forced(model, request, completion, vocab)
        np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)


@pytest.mark.parametrize("kind", ["llama", "sliding"])
def test_64_concurrent_ragged_requests_equal_teacher_forcing(models: ModuleType, kind: str) -> None:
    model = getattr(models, kind)()
    engine = LocalEngine(model, slots=24, context=96)
    requests = [Request(some(1 + 7 * i % 60, "ragged", i), 1 + 5 * i % 33, i) for i in range(64)]
    for request, completion in zip(requests, run(serve(engine, requests)), strict=True):
        assert len(completion.ids) == request.max_tokens
        assert completion.finish is Finish.LENGTH
        expected = models.teacher_forced(model, request, completion, VOCAB)
        np.testing.assert_allclose(completion.logprobs, expected, atol=1e-4)


def test_b08_logprobs_stand_at_the_ids_they_belong_to(models: ModuleType) -> None:
    table = rng("bigram").normal(size=(9, 9)) * 2
    logprobs = table - np.log(np.exp(table).sum(1, keepdims=True))
    engine = LocalEngine(models.bigram(table), slots=4, context=64)
    served = run(serve(engine, [Request(ids_of(4, last), 40, last) for last in range(4)]))
    for last, completion in enumerate(served):
        before = np.concatenate([[last], completion.ids[:-1]])
        np.testing.assert_allclose(completion.logprobs, logprobs[before, completion.ids], atol=1e-5)


def test_b14_a_place_in_the_batch_does_not_move_positions(models: ModuleType) -> None:
    model = models.llama()
    request = Request(some(9, "placed"), 12, 3)
    alone = run(serve(LocalEngine(model, slots=1, context=64), [request]))[0]
    crowd = [Request(some(5 + i, "crowd", i), 12, 50 + i) for i in range(6)]
    engine = LocalEngine(model, slots=8, context=64)
    for place in (0, 3, 6):
        same(run(serve(engine, [*crowd[:place], request, *crowd[place:]]))[place], alone)


def test_b35_logprobs_do_not_depend_on_how_many_are_scored_together(models: ModuleType) -> None:
    model = models.llama()
    rows = [some(6 + 3 * i, "scored", i) for i in range(16)]
    found = {}
    for together in (1, 4, 16):
        engine = LocalEngine(model, slots=2, context=64)

        async def all_of(engine: LocalEngine = engine, together: int = together) -> list[Any]:
            out: list[Any] = []
            for i in range(0, 16, together):
                out += await asyncio.gather(*(engine.score(ids, range(VOCAB), 1) for ids in rows[i : i + together]))
            return out

        found[together] = run(all_of())
    for i in range(16):
        assert found[1][i].shape == (len(rows[i]) - 1, VOCAB)
        np.testing.assert_allclose(found[4][i], found[1][i], atol=1e-5)
        np.testing.assert_allclose(found[16][i], found[1][i], atol=1e-5)


def test_score_is_what_generate_reports(nano: Policy) -> None:
    engine = LocalEngine(nano.model(), slots=2, context=64, vocab=nano.vocab)
    legal = Legal(True, nano.actions.ids[:2])
    prompt = some(7, "score", vocab=nano.vocab)
    completion = run(serve(engine, [Request(prompt, 9, 4, legal=legal)]))[0]
    plain = completion.ids[completion.ids < nano.vocab]
    ids = np.concatenate([prompt, plain])
    scores = run(engine.score(ids, plain.tolist(), len(prompt), legal))
    np.testing.assert_allclose(np.diagonal(scores), completion.logprobs[: len(plain)], atol=1e-5)
    outside = run(engine.score(ids, [nano.actions.ids[2], nano.actions.ids[0]], len(prompt), legal))
    assert np.isneginf(outside[:, 0]).all()
    assert np.isfinite(outside[:, 1]).all()


def test_earl_a_probabilities_sum_to_one_and_illegal_logits_never_matter(nano: Policy) -> None:
    prompt, rows = some(8, "sum", vocab=nano.vocab), nano.actions.ids
    everything = [*range(nano.vocab), *rows]
    for legal in (Legal(True, rows[:2]), Legal(False, rows[2:]), None):
        model = nano.model()
        engine = LocalEngine(model, slots=1, context=32, vocab=nano.vocab)
        before = run(engine.score(prompt, everything, 1, legal))
        np.testing.assert_allclose(np.exp(before).sum(1), 1.0, atol=1e-5)
        illegal = np.isneginf(before[0])
        with torch.no_grad():
            model.lm_head.weight[np.array(everything)[illegal]] += 3.0
        after = run(engine.score(prompt, everything, 1, legal))
        assert after.tolist() == before.tolist()


# ---- caches change speed, never numbers -----------------------------------------------------------------------------


def test_an_episode_with_its_cache_equals_a_cold_engine(models: ModuleType, fed: list[int]) -> None:
    model = models.llama()

    async def episode(engine: LocalEngine, session: int | None) -> list[Completion]:
        context, out = some(11, "episode"), []
        for turn in range(4):
            out.append(await engine.generate(Request(context, 6, 90 + turn, session=session)))
            context = np.concatenate([context, out[-1].ids, some(5, "seen", turn)])
        return out

    engine = LocalEngine(model, slots=3, context=128)
    fed.clear()
    warm = run(episode(engine, 7))
    # Turn 0 feeds the prompt (11) and five of its six ids; each later turn the last id, the observation (5), five more.
    assert sum(fed) == 11 + 5 + 3 * (1 + 5 + 5)
    for kept, again in zip(warm, run(episode(LocalEngine(model, slots=1, context=128), None)), strict=True):
        same(kept, again)


def test_a_context_that_was_rewritten_is_computed_again_from_where_it_differs(models: ModuleType) -> None:
    model = models.llama()
    engine = LocalEngine(model, slots=2, context=64)
    first = some(20, "window")
    run(serve(engine, [Request(first, 5, 1, session=1)]))
    changed = first.copy()
    changed[12] = (changed[12] + 1) % VOCAB
    for prompt in (changed, changed[:9], first):
        request = Request(prompt, 5, 2, session=1)
        same(run(serve(engine, [request]))[0], run(serve(LocalEngine(model, slots=1, context=64), [request]))[0])


def test_a_groups_prompt_is_computed_once(models: ModuleType, fed: list[int]) -> None:
    model = models.llama()
    group = [Request(some(30, "group"), 4, seed, session=seed) for seed in range(8)]
    engine = LocalEngine(model, slots=8, context=64)
    fed.clear()
    together = run(serve(engine, group))
    assert sum(fed) == 30 + 7 + 8 * 3  # one prompt; its last id for seven others; three decoding passes of each
    for request, completion in zip(group, together, strict=True):
        same(completion, run(serve(LocalEngine(model, slots=1, context=64), [request]))[0])


def test_more_sessions_than_slots_take_turns(models: ModuleType) -> None:
    model = models.llama()

    async def episode(engine: LocalEngine, session: int) -> list[Completion]:
        context, out = some(6 + session, "many", session), []
        for turn in range(3):
            out.append(await engine.generate(Request(context, 5, 10 * session + turn, session=session)))
            await asyncio.sleep(0.001 * (session % 3))  # some come back late and find their row taken
            context = np.concatenate([context, out[-1].ids, some(4, "reply", session, turn)])
        engine.release(session)
        return out

    async def everyone(slots: int) -> list[list[Completion]]:
        engine = LocalEngine(model, slots=slots, context=64)
        return list(await asyncio.gather(*(episode(engine, session) for session in range(9))))

    for few, many in zip(run(everyone(2)), run(everyone(9)), strict=True):
        for a, b in zip(few, many, strict=True):
            same(a, b)


def test_long_prompts_are_fed_in_parts_beside_the_others(models: ModuleType, fed: list[int]) -> None:
    model = models.llama()
    engine = LocalEngine(model, slots=4, context=128)
    engine._budget = 16
    requests = [Request(some(n, "long", n), 6, n) for n in (90, 3, 50, 7)]
    fed.clear()
    served = run(serve(engine, requests))
    assert max(fed) <= 16
    for request, completion in zip(requests, served, strict=True):
        same(completion, run(serve(LocalEngine(model, slots=1, context=128), [request]))[0])


# ---- seeds ----------------------------------------------------------------------------------------------------------


def test_p072_equal_seeds_repeat_and_different_seeds_differ(models: ModuleType) -> None:
    model = models.llama()
    group = [Request(some(5, "seeds"), 16, seed) for seed in range(8)]
    first = run(serve(LocalEngine(model, slots=8, context=32), group))
    assert len({tuple(c.ids.tolist()) for c in first}) == 8
    for slots in (1, 3, 8):
        for a, b in zip(first, run(serve(LocalEngine(model, slots=slots, context=32), group)), strict=True):
            same(a, b)


def test_no_global_random_state_is_touched(models: ModuleType) -> None:
    model = models.llama()
    before, np_before = torch.random.get_rng_state(), np.random.get_state()[1].tolist()  # noqa: NPY002
    run(serve(LocalEngine(model, slots=2, context=32), [Request(some(4, "g"), 8, 1)]))
    assert torch.equal(torch.random.get_rng_state(), before)
    assert np.random.get_state()[1].tolist() == np_before  # noqa: NPY002


# ---- how completions end --------------------------------------------------------------------------------------------


def certain(models: ModuleType, follows: list[int]) -> Any:
    """Return a model that says ``follows[i]`` after id ``i``, all but surely."""
    table = np.zeros((len(follows), len(follows)))
    table[np.arange(len(follows)), follows] = 40.0
    return models.bigram(table)


def test_b09_p066_the_stop_id_is_kept_and_only_where_it_was_sampled(models: ModuleType) -> None:
    engine = LocalEngine(certain(models, [1, 2, 3, 4, 0]), slots=2, context=64)
    stopped, cut, second = run(
        serve(
            engine,
            [
                Request(ids_of(0), 10, 1, stop=(3,)),
                Request(ids_of(0), 2, 1, stop=(3,)),
                Request(ids_of(3, 3, 0), 10, 1, stop=(2, 3)),  # end ids inside the prompt are ordinary context
            ],
        )
    )
    assert (stopped.ids.tolist(), stopped.finish) == ([1, 2, 3], Finish.STOP)
    assert (cut.ids.tolist(), cut.finish) == ([1, 2], Finish.LENGTH)
    assert (second.ids.tolist(), second.finish) == ([1, 2], Finish.STOP)
    assert np.isfinite(stopped.logprobs).all()


def test_a_native_action_ends_the_completion(models: ModuleType) -> None:
    engine = LocalEngine(certain(models, [1, 2, 4, 0, 0]), slots=1, context=64, vocab=4)
    legal = Legal(True, (4,))
    completion = run(serve(engine, [Request(ids_of(0), 10, 1, legal=legal)]))[0]
    assert (completion.ids.tolist(), completion.finish) == ([1, 2, 4], Finish.ACTION)
    only = run(serve(engine, [Request(ids_of(0), 10, 1, legal=Legal(False, (1,)))]))[0]
    assert (only.ids.tolist(), only.finish) == ([1], Finish.ACTION)
    assert only.logprobs.tolist() == [0.0]


def test_rows_beyond_the_vocabulary_are_never_plain_text(models: ModuleType) -> None:
    # Ids 3 and 4 are far the likeliest, but they are a native row and a padding row.
    table = np.tile([0.0, 0.0, 0.0, 30.0, 30.0], (5, 1))
    engine = LocalEngine(models.bigram(table), slots=1, context=128, vocab=3)
    completion = run(serve(engine, [Request(ids_of(0), 100, 1)]))[0]
    assert set(completion.ids.tolist()) == {0, 1, 2}
    np.testing.assert_allclose(completion.logprobs, np.log(1 / 3), atol=1e-5)


def test_p074_the_allowance_is_cut_to_what_the_context_has_left(models: ModuleType) -> None:
    engine = LocalEngine(models.llama(), slots=1, context=100)
    completion = run(serve(engine, [Request(some(90, "full"), 50, 1)]))[0]
    assert (len(completion.ids), completion.finish) == (10, Finish.LENGTH)
    with pytest.raises(UsageError, match="prompt needs 1 to 99 ids"):
        run(serve(engine, [Request(some(100, "full"), 50, 1)]))


@pytest.mark.parametrize(
    ("request_", "says"),
    [
        (Request(ids_of(), 1, 0), "1 to 31 ids"),
        (Request(ids_of(1), 0, 0), "max_tokens"),
        (Request(ids_of(1), 1, 0, -1.0), "temperature"),
        (Request(ids_of(1), 1, 0, float("nan")), "temperature"),
        (Request(ids_of(1, 47), 1, 0), "stands in the context as its text"),
        (Request(ids_of(1), 1, 0, legal=Legal(False, ())), "empty"),
        (Request(ids_of(1), 1, 0, legal=Legal(False, (50,))), "output rows"),
        (Request(ids_of(1), 1, 0, stop=(99,)), "output rows"),
    ],
)
def test_requests_that_can_never_work_are_refused(models: ModuleType, request_: Request, says: str) -> None:
    engine = LocalEngine(models.llama(), slots=1, context=32, vocab=47)
    with pytest.raises(UsageError, match=says):
        run(serve(engine, [request_]))


# ---- when things break ----------------------------------------------------------------------------------------------


def test_b37_nan_in_one_request_leaves_the_others_alone(models: ModuleType) -> None:
    model = models.llama()
    requests = [Request(some(8, "nan", i, vocab=40), 6, i, stop=tuple(range(40, 50))) for i in range(5)]
    healthy = run(serve(LocalEngine(model, slots=5, context=32), requests))
    with torch.no_grad():
        model.model.embed_tokens.weight[45] = torch.nan
    engine = LocalEngine(model, slots=5, context=32)
    poisoned = Request(np.concatenate([some(4, "nan", vocab=40), ids_of(45)]), 6, 9)

    async def mixed() -> list[Any]:
        asked = [*requests[:2], poisoned, *requests[2:4]]
        return list(await asyncio.gather(*(engine.generate(r) for r in asked), return_exceptions=True))

    out = run(mixed())
    assert isinstance(out[2], Fault)
    assert out[2].where == "engine"
    for a, b in zip([*out[:2], *out[3:]], healthy[:4], strict=True):
        same(a, b)
    for a, b in zip(run(serve(engine, requests)), healthy, strict=True):
        same(a, b)


def test_b37_what_is_left_of_a_broken_request_poisons_nobody(models: ModuleType) -> None:
    model = models.llama()
    with torch.no_grad():
        model.model.embed_tokens.weight[45] = torch.nan
    engine = LocalEngine(model, slots=2, context=64)
    broken = Request(np.concatenate([some(20, "late", vocab=40), ids_of(45, 3)]), 6, 9)
    with pytest.raises(Fault, match="not finite"):
        run(serve(engine, [broken]))
    # The next to sit there is short, beside a long one: its attention is handed the old keys, masked.
    requests = [Request(some(n, "after", n, vocab=40), 4, n) for n in (3, 31)]
    for request, completion in zip(requests, run(serve(engine, requests)), strict=True):
        expected = models.teacher_forced(model, request, completion, VOCAB)
        np.testing.assert_allclose(completion.logprobs, expected, atol=1e-5)


def test_a_crash_in_the_forward_pass_fails_those_who_wait_and_no_one_else(
    models: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    engine = LocalEngine(models.llama(), slots=2, context=32)
    requests = [Request(some(4, "crash", i), 6, i) for i in range(4)]
    expected = run(serve(engine, requests))
    with monkeypatch.context() as patch:
        patch.setattr(SlotCache, "forward", lambda *_: (_ for _ in ()).throw(RuntimeError("out of memory")))

        async def broken() -> list[Any]:
            calls = [engine.generate(r) for r in requests]
            return list(await asyncio.wait_for(asyncio.gather(*calls, return_exceptions=True), 20))

        out = run(broken())
    assert all(isinstance(error, Fault) and "out of memory" in str(error) for error in out)
    for a, b in zip(run(serve(engine, requests)), expected, strict=True):
        same(a, b)


def test_cancelling_a_request_frees_its_row(models: ModuleType, fed: list[int]) -> None:
    engine = LocalEngine(models.llama(), slots=1, context=250)

    async def story() -> Completion:
        endless = asyncio.create_task(engine.generate(Request(some(4, "long"), 200, 1, session=1)))
        queued = asyncio.create_task(engine.generate(Request(some(5, "next"), 3, 2)))
        other = asyncio.create_task(engine.generate(Request(some(6, "never"), 3, 2)))
        for _ in range(12):
            await asyncio.sleep(0)
        assert not endless.done()
        endless.cancel()
        other.cancel()
        done = await asyncio.wait_for(queued, 20)
        assert endless.cancelled()
        assert other.cancelled()
        assert len(fed) < 40  # nobody goes on sampling the 200 ids
        return done

    same(
        run(story()), run(serve(LocalEngine(models.llama(), slots=1, context=64), [Request(some(5, "next"), 3, 2)]))[0]
    )


def test_close_answers_everyone_and_takes_no_more(models: ModuleType) -> None:
    engine = LocalEngine(models.llama(), slots=1, context=250)

    async def story() -> list[Completion]:
        calls = [asyncio.create_task(engine.generate(Request(some(4, "open", i), 200, i))) for i in range(3)]
        for _ in range(40):
            await asyncio.sleep(0)
        await engine.close()
        return list(await asyncio.gather(*calls))

    out = run(story())
    assert [c.finish for c in out] == [Finish.ABORT] * 3
    assert 0 < len(out[0].ids) < 200
    assert [len(c.ids) for c in out[1:]] == [0, 0]
    with pytest.raises(UsageError, match="closed"):
        run(serve(engine, [Request(some(4, "late"), 1, 1)]))


def test_an_engine_outlives_the_event_loop_it_was_used_in(models: ModuleType) -> None:
    engine = LocalEngine(models.llama(), slots=2, context=250)

    async def walk_away() -> None:
        task = asyncio.create_task(engine.generate(Request(some(4, "left"), 200, 1)))
        await asyncio.sleep(0)
        del task  # the loop ends under a request in flight

    run(walk_away())
    assert len(run(serve(engine, [Request(some(4, "again"), 5, 1)]))[0].ids) == 5


# ---- new weights ----------------------------------------------------------------------------------------------------


def test_b44_p097_no_cache_survives_new_weights(models: ModuleType) -> None:
    old, new = models.llama(0), models.llama(1)
    engine = LocalEngine(old, slots=2, context=64)
    request = Request(some(20, "sync"), 8, 5, temperature=0.0, session=3)
    before = run(serve(engine, [request]))[0]
    engine.load(new.state_dict(), 7)
    assert engine.version == 7
    after = run(serve(engine, [request]))[0]
    same(after, run(serve(LocalEngine(models.llama(1), slots=2, context=64), [request]))[0])
    assert before.logprobs.tolist() != after.logprobs.tolist()
    assert before.versions.tolist() == [0] * 8
    assert after.versions.tolist() == [7] * 8


def test_b38_b45_every_token_carries_the_version_that_made_it(models: ModuleType) -> None:
    old, new = models.llama(0), models.llama(1)
    engine = LocalEngine(models.llama(0), slots=2, context=64, version=3)
    request = Request(some(9, "flight"), 30, 5)

    async def story() -> Completion:
        task = asyncio.create_task(engine.generate(request))
        while engine._rows.known.max() < 20:
            await asyncio.sleep(0)
        engine.load(new.state_dict(), 4)
        return await task

    completion = run(story())
    assert completion.finish is Finish.LENGTH
    switch = int((completion.versions == 4).argmax())
    assert 0 < switch < 30
    assert completion.versions.tolist() == [3] * switch + [4] * (30 - switch)
    by_old = models.teacher_forced(old, request, completion, VOCAB)
    by_new = models.teacher_forced(new, request, completion, VOCAB)
    np.testing.assert_allclose(completion.logprobs[:switch], by_old[:switch], atol=1e-4)
    np.testing.assert_allclose(completion.logprobs[switch:], by_new[switch:], atol=1e-4)


def test_weights_that_do_not_fit_change_nothing(models: ModuleType) -> None:
    engine = LocalEngine(models.llama(0), slots=1, context=32)
    request = Request(some(5, "fit"), 4, 1)
    before = run(serve(engine, [request]))[0]
    good = dict(models.llama(1).state_dict())
    renamed = {("module." + k if k.startswith("lm_head") else k): v for k, v in good.items()}
    with pytest.raises(UsageError, match=r"Missing: lm_head.weight. Unknown: module.lm_head.weight"):
        engine.load(renamed, 1)
    with pytest.raises(UsageError, match=r"lm_head.weight \(49, 32\) instead of \(50, 32\)"):
        engine.load({**good, "lm_head.weight": good["lm_head.weight"][:49]}, 1)
    assert engine.version == 0
    same(run(serve(engine, [request]))[0], before)


def test_a_tied_tensor_may_be_given_under_one_name_but_not_as_two(models: ModuleType) -> None:
    engine = LocalEngine(models.llama(0, tie_word_embeddings=True), slots=1, context=32)
    weights = dict(models.llama(1, tie_word_embeddings=True).state_dict())
    with pytest.raises(UsageError, match="one tensor in this model"):
        engine.load({**weights, "lm_head.weight": weights["lm_head.weight"] + 1}, 1)
    weights.pop("lm_head.weight")
    engine.load({name: tensor.numpy() for name, tensor in weights.items()}, 1)
    request = Request(some(5, "tied"), 4, 1)
    expected = run(serve(LocalEngine(models.llama(1, tie_word_embeddings=True), slots=1, context=32), [request]))[0]
    same(run(serve(engine, [request]))[0], expected)


@pytest.mark.parametrize("given", [{"slots": 0}, {"context": 1}, {"context": 1000}, {"vocab": 51}, {"vocab": 0}])
def test_numbers_that_make_no_sense_are_refused(models: ModuleType, given: dict[str, int]) -> None:
    with pytest.raises(UsageError):
        LocalEngine(models.llama(), **given)


def test_a_model_that_computes_something_else_is_refused(models: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    model = models.llama()
    forward = SlotCache.forward
    monkeypatch.setattr(SlotCache, "forward", lambda *args: forward(*args) * 1.1)
    with pytest.raises(UsageError, match="does not compute the same"):
        LocalEngine(model, slots=1)
