"""The learner: what an update is, that cutting does not show, and that learning nothing says so."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from pydantic import ValidationError

from peira.agents.types import Legal, Tag
from peira.envs.seeding import rng
from peira.tools.errors import UsageError
from peira.training.control import Linear
from peira.training.learner import Learner, LearnerSettings
from peira.training.linearize import linearize
from peira.training.reference import Reference
from peira.training.trainer import CollectSettings
from peira.training.types import Credited, Sample

VOCAB = 44  # rows 44-49 of the models are native actions
LANGUAGE, INSIDE = Legal(True, (44, 46)), Legal(False, (45, 47, 48))


def sample(group, member, length=14, decisions=5, weight=1.0, tags=None, temperature=1.0):
    """A sequence with decisions in all three kinds of legal set, each set's own ids as targets."""
    random = rng("sample", group, member, length)
    at = np.sort(random.choice(np.arange(1, length), decisions, replace=False))
    legal = random.integers(-1, 2, decisions)
    pools = {-1: range(VOCAB), 0: [*range(VOCAB), *LANGUAGE.ids], 1: INSIDE.ids}
    return Sample(
        ids=random.integers(0, VOCAB, length).astype(np.int32),
        at=at.astype(np.int32),
        targets=np.array([random.choice(list(pools[int(i)])) for i in legal], dtype=np.int32),
        logprobs=np.full(decisions, -1.0, dtype=np.float32),
        weights=np.full(decisions, weight, dtype=np.float32),
        tags=np.array([Tag.DECISION] * decisions if tags is None else tags, dtype=np.uint8),
        versions=np.zeros(decisions, dtype=np.int32),
        turns=np.zeros(decisions, dtype=np.int32),
        legal=legal.astype(np.int32),
        legal_sets=(LANGUAGE, INSIDE),
        temperature=temperature,
        group=group,
        member=member,
    )


@pytest.fixture
def batch():
    """Two groups of three, ragged, advantages that add up to nothing in each group."""
    return [
        sample(group, member, length=8 + 3 * member, decisions=2 + 2 * member, weight=weight)
        for group in ("a", "b")
        for member, weight in enumerate((1.0, 0.5, -1.5))
    ]


def learner(models, reference=False, seed=0, **settings):
    model = models.llama()
    return Learner(model, Reference(model) if reference else None, LearnerSettings(**settings), VOCAB, seed)


def flat(owner):
    return torch.cat([p.detach().flatten() for _, p in owner.model.named_parameters()])


ALL_TERMS = {
    "divergence": {"coefficient": 0.5, "estimator": "k3"},
    "entropy": {"coefficient": 0.1},
    "policy": {"dual_clip": 3.0, "is_cap": 2.0},
}


# -- an update --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mode", ["tok", "seq-mean", "seq-sum", "const"])
def test_b35_p089_micro_batches_do_not_show(models, batch, mode):
    how = {"mode": mode, **({"length": 10} if mode == "const" else {})}
    results, gradients = [], []
    for tokens in (1, 30, 10_000):  # one row each, about two, all at once
        one = learner(models, True, tokens=tokens, aggregate=how, **ALL_TERMS)
        with torch.no_grad():
            one.reference.model.lm_head.weight[:20] += 0.02  # a divergence that is not zero
        results.append(one.update(batch))
        gradients.append(torch.cat([p.grad.flatten() for _, p in one.model.named_parameters()]))
    for result, gradient in zip(results[1:], gradients[1:], strict=True):
        assert result.loss == pytest.approx(results[0].loss, abs=1e-6)
        assert result.grad_norm == pytest.approx(results[0].grad_norm, rel=1e-5)
        np.testing.assert_allclose(gradient, gradients[0], atol=1e-6)


def test_first_step_is_on_policy_and_says_so(models, batch):
    one = learner(models)
    logprobs = one.score(batch)
    fresh = [replace(s, logprobs=lp) for s, lp in zip(batch, logprobs, strict=True)]
    update = one.update(fresh)
    metrics = update.metrics
    assert (metrics["ratio_mean"], metrics["ratio_min"], metrics["ratio_max"]) == (1, 1, 1)
    assert metrics["clip_share"] == 0
    assert metrics["mismatch_max"] < 1e-5
    assert metrics["steps"] == 1
    assert metrics["weight_delta"] > 0
    assert update.version == one.version == 1
    assert update.skipped is None


def test_p110_a_centred_loss_is_near_zero_while_its_gradient_is_not(models):
    equal = [sample("a", m, weight=w) for m, w in enumerate((1.0, -1.0))]
    update = learner(models).update(equal)
    assert update.loss == pytest.approx(0, abs=1e-6)
    assert update.grad_norm > 0.01
    assert {"flat_group_share", "clip_share"} <= set(update.metrics)


def test_several_epochs_clip_against_the_start_of_the_update(models, batch):
    one = learner(models, epochs=3, minibatches=2, lr=0.01)
    update = one.update(batch)
    assert update.metrics["steps"] == 6
    assert update.metrics["ratio_max"] > 1.2
    assert update.metrics["clip_share"] > 0
    assert one.version == 1


def test_ratio_is_exactly_one_before_the_first_step_of_an_epoch(models, batch):
    one = learner(models, True, epochs=2, lr=1e-12, divergence={"coefficient": 1.0})
    metrics = one.update(batch).metrics
    assert metrics["ratio_min"] == pytest.approx(1, abs=1e-6)
    assert metrics["kl"] == pytest.approx(0, abs=1e-9)


def test_mini_batches_hold_whole_groups_and_are_repeatable(models):
    from peira.training.phase import mini_batches

    samples = [sample(group, member) for member in range(3) for group in "abcdef"]
    parts = mini_batches(samples, 3, "key")
    assert [len(part) for part in parts] == [6, 6, 6]
    for part in parts:
        assert len({s.group for s in part}) == 2
    again = mini_batches(samples, 3, "key")
    assert [[(s.group, s.member) for s in p] for p in again] == [[(s.group, s.member) for s in p] for p in parts]
    assert sorted((s.group, s.member) for p in parts for s in p) == sorted((s.group, s.member) for s in samples)
    episodes = mini_batches([s for s in samples if s.group == "a"], 3, "key")
    assert [len(part) for part in episodes] == [1, 1, 1]


def test_same_seed_same_weights_other_seed_other_order(models, batch):
    def after(seed):
        one = learner(models, epochs=2, minibatches=2, seed=seed)
        one.update(batch)
        return flat(one)

    assert torch.equal(after(0), after(0))
    assert any(not torch.equal(after(0), after(seed)) for seed in (1, 2, 3))


def test_learning_raises_what_was_good(models):
    one = learner(models, lr=0.01)
    good, bad = sample("a", 0, weight=1.0), sample("a", 1, weight=-1.0)
    before = [lp.sum() for lp in one.score([good, bad])]
    one.update([good, bad])
    after = [lp.sum() for lp in one.score([good, bad])]
    assert after[0] > before[0]
    assert after[1] < before[1]


def test_warm_start_shares_the_path(models):
    shown = [sample("a", m, tags=[Tag.EXPERT] * 5) for m in range(4)]
    one = learner(models, lr=0.01, minibatches=2)
    losses = [one.likelihood_update(shown) for _ in range(10)]
    assert losses[-1].metrics["nll"] < losses[0].metrics["nll"] / 2
    assert losses[0].metrics["steps"] == 2
    assert "ratio_mean" not in losses[0].metrics


def test_expert_and_own_decisions_have_their_own_denominators(models):
    own, shown = sample("a", 0), sample("b", 0, tags=[Tag.EXPERT] * 5)
    both = learner(models, policy={}, likelihood={"coefficient": 1.0}).update([own, shown]).loss
    alone = learner(models).update([own]).loss + learner(models).likelihood_update([shown]).loss
    assert both == pytest.approx(alone, abs=1e-6)


def test_learning_rate_follows_its_schedule(models, batch):
    one = learner(models, lr=Linear(start=1e-3, end=0.0, steps=4))
    assert [one.update(batch).metrics["lr"] for _ in range(3)] == pytest.approx([1e-3, 7.5e-4, 5e-4])


def test_entropy_bonus_follows_its_schedule(models, batch):
    falling = {"kind": "linear", "start": 0.2, "end": 0.0, "steps": 2}
    planned = learner(models, entropy={"coefficient": falling})
    for value in (0.2, 0.1, 0.0, 0.0):
        fixed = learner(models, entropy={"coefficient": value})
        fixed.restore(planned.state())
        assert planned.update(batch).loss == fixed.update(batch).loss
        assert torch.equal(flat(planned), flat(fixed))
    with pytest.raises(ValueError, match="must not be negative"):
        learner(models, entropy={"coefficient": {**falling, "end": -0.1}})


def test_weight_decay_leaves_norms_alone(models):
    groups = learner(models, weight_decay=0.1)._optimizer.param_groups
    assert [group["weight_decay"] for group in groups] == [0.1, 0.0]
    assert all(p.ndim == 1 for p in groups[1]["params"])


# -- neutral knobs ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "neutral",
    [
        {"divergence": {"coefficient": 0.0}},
        {"entropy": {"coefficient": 0.0}},
        {"entropy": {"coefficient": {"kind": "linear", "start": 0.0, "end": 0.0, "steps": 3}}},
        {"policy": {"dual_clip": 1e9}},
        {"skip_flat": True},
        {"tokens": 10_000},
    ],
    ids=str,
)
def test_a_neutral_knob_is_the_base_bit_for_bit(models, batch, neutral):
    base, knob = learner(models, tokens=10_000), learner(models, **{"tokens": 10_000, **neutral})
    assert base.update(batch).loss == knob.update(batch).loss
    assert torch.equal(flat(base), flat(knob))


def test_skipping_flat_episodes_keeps_the_gradient(models, batch):
    quiet = [sample("c", m, length=9, decisions=3, weight=0.0) for m in range(3)]
    for mode in ("tok", "seq-mean", "seq-sum"):
        every, skipping = (learner(models, aggregate={"mode": mode}, skip_flat=skip) for skip in (False, True))
        a, b = every.update([*batch, *quiet]), skipping.update([*batch, *quiet])
        assert a.loss == pytest.approx(b.loss, abs=1e-6)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-5)
        assert b.metrics["tokens"] < a.metrics["tokens"]
        assert a.metrics["flat_group_share"] == b.metrics["flat_group_share"] == pytest.approx(1 / 3)


# -- nothing to learn -------------------------------------------------------------------------------------------------


def test_earl_d_an_all_zero_group_is_no_step(models, batch):
    one = learner(models)
    before = flat(one)
    update = one.update([replace(s, weights=np.zeros_like(s.weights)) for s in batch])
    assert update.skipped == "every advantage is zero"
    assert update.version == one.version == 0
    assert update.metrics["flat_group_share"] == 1
    assert torch.equal(flat(one), before)


def test_a3_flat_groups_keep_momentum_still(models, batch):
    one = learner(models)
    one.update(batch)
    after = flat(one)
    zero = [replace(s, weights=np.zeros_like(s.weights)) for s in batch]
    assert one.update(zero).skipped
    assert torch.equal(flat(one), after), "Adam's momentum must not move weights without a gradient"


def test_a_gradient_of_exactly_zero_is_no_step(models, batch):
    one = learner(models, True, divergence={"coefficient": 1.0})
    zero = [replace(s, weights=np.zeros_like(s.weights)) for s in batch]
    update = one.update(zero)
    assert update.skipped == "the gradient is exactly zero"
    assert update.metrics["kl"] == 0
    assert update.metrics["weight_delta"] == 0


def test_b13_samples_without_a_trained_decision_are_counted(models, batch):
    forced = sample("c", 0, tags=[Tag.FORCED] * 5)
    assert learner(models).update([*batch, forced]).metrics["samples_untrained"] == 1
    update = learner(models).update([forced])
    assert update.skipped == "no trained decision: every sample was dropped or masked"
    assert learner(models).update([]).skipped


def test_expert_decisions_do_not_count_as_own(models):
    update = learner(models).update([sample("c", 0, tags=[Tag.EXPERT] * 5)])
    assert update.skipped.startswith("no trained decision")


def test_non_finite_gradients_are_refused_and_named(models, batch):
    one = learner(models)
    before = flat(one)
    with torch.no_grad():
        one.model.model.norm.weight[0] = float("nan")
    update = one.update(batch)
    assert update.skipped.startswith("not finite: gradient of ")
    assert update.metrics["steps_not_finite"] == 1
    assert update.version == 0
    changed = flat(one) != before
    assert int(changed.sum()) == 1, "only the entry broken on purpose"


def test_a_frozen_policy_is_refused(models):
    model = models.llama()
    for parameter in model.parameters():
        parameter.requires_grad_(False)
    with pytest.raises(UsageError, match="frozen"):
        Learner(model, None, LearnerSettings(), VOCAB, 0)


def test_a_divergence_needs_a_reference(models):
    with pytest.raises(UsageError, match="reference"):
        learner(models, divergence={"coefficient": 0.1})


@pytest.mark.parametrize("knob", ["top_p", "top_k", "min_p"])
def test_b33_sampling_for_training_knows_no_truncation(knob):
    with pytest.raises(ValidationError, match=knob):
        CollectSettings(**{knob: 0.9})


# -- masks ------------------------------------------------------------------------------------------------------------


def mixed(poison):
    tags = [Tag.DECISION, Tag.FORCED, Tag.DECISION, Tag.OBSERVATION, Tag.DECISION]
    one = sample("a", 0, tags=tags)
    masked = np.array(tags) != Tag.DECISION
    return replace(
        one,
        logprobs=np.where(masked, poison, one.logprobs).astype(np.float32),
        weights=np.where(masked, 0, one.weights).astype(np.float32),
    )


@pytest.mark.parametrize("poison", [np.nan, np.inf, -1e30])
def test_b12_poison_at_ids_that_are_not_trained_is_harmless(models, poison):
    clean, poisoned = learner(models, policy={"is_cap": 2.0}), learner(models, policy={"is_cap": 2.0})
    expected, update = clean.update([mixed(-1.0)]), poisoned.update([mixed(poison)])
    assert update.loss == expected.loss
    assert torch.equal(flat(clean), flat(poisoned))
    assert update.metrics["samples_not_finite"] == 0


def test_b37_p096_a_decision_without_a_logprob_drops_its_sample_and_is_counted(models, batch):
    broken = replace(sample("c", 0), logprobs=np.array([np.nan, -1, -1, -1, -1], dtype=np.float32))
    with_it, without = learner(models), learner(models)
    update = with_it.update([*batch, broken])
    without.update(batch)
    assert update.metrics["samples_not_finite"] == 1
    assert torch.equal(flat(with_it), flat(without))


def test_earl_e_a_forced_decision_has_no_gradient(models):
    """Its native row is legal nowhere else, so the row's gradient is the forced decision's alone."""
    base = sample("a", 0, tags=[Tag.DECISION, Tag.DECISION, Tag.FORCED, Tag.DECISION, Tag.DECISION])
    legal, targets = base.legal.copy(), base.targets.copy()
    legal[2], targets[2] = 2, 49
    forced = replace(base, legal=legal, targets=targets, legal_sets=(*base.legal_sets, Legal(False, (48, 49))))
    one = learner(models)
    one.update([forced])
    assert one.model.lm_head.weight.grad[49].abs().max() == 0
    chosen = replace(forced, tags=np.zeros(5, dtype=np.uint8))
    one.update([chosen])
    assert one.model.lm_head.weight.grad[49].abs().max() > 0


def test_earl_c_a_three_token_description_is_one_decision(models, records):
    """Row 46 is written as three tokens; only the row is trained, at the position before the first of them."""
    turn = records.turn([2, 46], prompt=[0, 1], written=[2, 4, 5, 6], at=[0, 1], legal=LANGUAGE)
    group = records.group([records.episode([turn])])
    (one,) = linearize(Credited(group, ((np.array([0.0, 1.0]),),)))
    assert one.ids.tolist() == [0, 1, 2, 4, 5, 6]
    owner = learner(models)
    update = owner.update([one])
    assert update.metrics["decisions"] == 2
    probability = np.exp(learner(models).score([one])[0][1])
    # With advantage 1 at the row alone and two decisions, d loss / d logit of the row is -(1 - p) / 2, times the
    # hidden state that chose it.
    with torch.no_grad():
        hidden = models.llama().model(torch.tensor([[0, 1, 2]]), use_cache=False).last_hidden_state[0, -1]
    clipped = min(1.0, 1.0 / update.grad_norm)
    np.testing.assert_allclose(
        owner.model.lm_head.weight.grad[46], -(1 - probability) / 2 * clipped * hidden, rtol=1e-4, atol=1e-6
    )


@pytest.mark.parametrize("which", [0, 4])
def test_b07_first_and_last_decisions_are_trained(models, which):
    weights = np.zeros(5, dtype=np.float32)
    weights[which] = 1
    update = learner(models).update([replace(sample("a", 0), weights=weights)])
    assert update.grad_norm > 0


def test_b39_an_episode_as_one_row_or_two_has_one_loss(models):
    """The second row repeats the context, as a window does; its decisions are those the first row left out."""
    whole = sample("a", 0, length=16, decisions=6)
    first = cut(whole, slice(0, 3), 0)
    second = cut(whole, slice(3, 6), 1)
    other = sample("a", 1, length=9, decisions=2, weight=-1.0)
    for mode in ("tok", "seq-mean", "seq-sum"):
        one, two = (learner(models, aggregate={"mode": mode}) for _ in range(2))
        a, b = one.update([whole, other]), two.update([first, second, other])
        assert a.loss == pytest.approx(b.loss, abs=1e-6)
        assert a.grad_norm == pytest.approx(b.grad_norm, rel=1e-5)


def cut(whole, part, turn):
    names = ("at", "targets", "logprobs", "weights", "tags", "versions", "legal")
    parts = {name: getattr(whole, name)[part] for name in names}
    return replace(whole, **parts, turns=np.full(len(parts["at"]), turn, dtype=np.int32))


# -- reference --------------------------------------------------------------------------------------------------------


def test_p094_divergence_from_the_policy_as_it_started_is_exactly_zero(models, batch):
    model = models.llama()
    with torch.no_grad():
        model.lm_head.weight[3] += 0.1  # a policy that is not the base model
    for epochs in (1, 2):
        one = Learner(
            model, Reference(model), LearnerSettings(epochs=epochs, divergence={"coefficient": 0.1}), VOCAB, 0
        )
        ratios = np.concatenate(one.log_ratios(batch))
        assert not ratios.any()
    assert one.update(batch).metrics["kl"] > 0  # the second epoch has moved away
    assert np.concatenate(one.log_ratios(batch)).any()


@pytest.mark.parametrize("tied", [False, True])
def test_b40_the_reference_stays_where_it_was(models, batch, tied):
    model = models.llama(tie_word_embeddings=tied)
    one = Learner(model, Reference(model), LearnerSettings(lr=0.01, divergence={"coefficient": 0.1}), VOCAB, 0)
    before = one.score(batch, reference=True)
    one.update(batch)
    for was, now in zip(before, one.score(batch, reference=True), strict=True):
        np.testing.assert_array_equal(was, now)
    assert any((was != now).any() for was, now in zip(before, one.score(batch), strict=True))


def test_divergence_counts_native_actions_as_nothing(models, batch):
    model = models.llama()
    other = models.llama(seed=3)
    reference = Reference(model)
    reference.model.load_state_dict(other.state_dict())
    one = Learner(model, reference, LearnerSettings(), VOCAB, 0)
    for s, ratios in zip(batch, one.log_ratios(batch), strict=True):
        native = (s.targets >= VOCAB) | (s.legal == 1)
        assert not ratios[native].any()
        assert (ratios[~native] != 0).all()


def test_lagged_and_ema_references_move_as_stated(models, batch):
    from peira.training.reference import ReferenceSettings

    model = models.llama()
    lagged = Reference(model, ReferenceSettings(kind="lagged", every=2))
    one = Learner(model, lagged, LearnerSettings(lr=0.01), VOCAB, 0)
    start = flat(one)
    one.update(batch)
    assert torch.equal(flat(lagged), start)
    one.update(batch)
    assert torch.equal(flat(lagged), flat(one))

    model = models.llama()
    ema = Reference(model, ReferenceSettings(kind="ema", decay=0.75))
    one = Learner(model, ema, LearnerSettings(lr=0.01), VOCAB, 0)
    one.update(batch)
    np.testing.assert_allclose(flat(ema), 0.75 * start + 0.25 * flat(one), atol=1e-6)


def test_log_ratios_need_a_reference(models, batch):
    with pytest.raises(UsageError, match="reference"):
        learner(models).log_ratios(batch)


# -- weights ----------------------------------------------------------------------------------------------------------


def test_delivered_weights_are_a_copy(models, batch):
    one = learner(models)
    given = one.weights()
    before = {name: tensor.clone() for name, tensor in given.items()}
    one.update(batch)
    assert all(torch.equal(given[name], before[name]) for name in given)
    assert set(given) == set(one.model.state_dict())
