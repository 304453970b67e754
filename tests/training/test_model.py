"""The scoring pass: legality, temperature, expanded rows, against a plain full-softmax oracle."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM, Qwen3Config, Qwen3ForCausalLM

from peira.agents.types import Legal
from peira.envs.seeding import rng
from peira.tools.errors import UsageError
from peira.training.model import decision_logprobs
from peira.training.types import MicroBatch

VOCAB, ROWS = 20, 26  # six native actions: rows 20-25


def tiny(kind="qwen3", rows=ROWS, seed=0, tied=False):
    """A two-layer model whose weights come from an explicit generator."""
    shape = {
        "vocab_size": rows, "hidden_size": 64, "intermediate_size": 96, "num_hidden_layers": 2,
        "num_attention_heads": 2, "num_key_value_heads": 1, "max_position_embeddings": 128, "tie_word_embeddings": tied,
    }  # fmt: skip
    if kind == "qwen3":
        model = Qwen3ForCausalLM(Qwen3Config(head_dim=32, **shape))
    else:
        model = LlamaForCausalLM(LlamaConfig(**shape))
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim >= 2:
                parameter.normal_(0, 0.3, generator=generator)
    return model.eval()


LANGUAGE = Legal(True, (20, 23))
INSIDE = Legal(False, (21, 22, 24))


def micro(temperature=1.0, legal=(-1, 0, 1, 0, 1, -1), targets=(3, 20, 22, 5, 24, 19), sets=(LANGUAGE, INSIDE)):
    """Two rows, the second padded on the right, six decisions in three kinds of legal set."""
    ids = rng("micro").integers(0, VOCAB, (2, 9))
    ids[1, 6:] = 0
    count = len(targets)
    return MicroBatch(
        ids=ids,
        rows=np.array([0, 0, 0, 1, 1, 1])[:count],
        at=np.array([2, 4, 7, 1, 3, 4])[:count],
        targets=np.array(targets),
        logprobs=np.zeros(count, dtype=np.float32),
        weights=np.ones(count, dtype=np.float32),
        tags=np.zeros(count, dtype=np.uint8),
        episode=np.zeros(count, dtype=np.int64),
        temperature=np.full(count, temperature, dtype=np.float32),
        legal=np.array(legal),
        legal_sets=sets,
    )


def oracle(model, batch, temperature):
    """Full logits, one dense mask per decision, one softmax per decision."""
    logits = model(torch.as_tensor(batch.ids)).logits.double()
    logprobs, entropies, alone = [], [], []
    for row, at, target, which in zip(batch.rows, batch.at, batch.targets, batch.legal, strict=True):
        legal = Legal(True, ()) if which < 0 else batch.legal_sets[which]
        columns = sorted({*(range(VOCAB) if legal.vocab else ()), *legal.ids})
        z = logits[row, at][columns] / temperature
        p = torch.log_softmax(z, 0)
        logprobs.append(p[columns.index(target)])
        entropies.append(-(p.exp() * p).sum())
        plain = legal.vocab and target < VOCAB
        alone.append(torch.log_softmax(logits[row, at][:VOCAB] / temperature, 0)[target] if plain else torch.zeros(()))
    return (torch.stack([v.double() for v in values]) for values in (logprobs, entropies, alone))


@pytest.mark.parametrize("kind", ["qwen3", "llama"])
@pytest.mark.parametrize("temperature", [0.5, 1.0, 1.3])
def test_b34_scores_equal_the_dense_oracle_at_every_temperature(kind, temperature):
    model, batch = tiny(kind), micro(temperature)
    with torch.no_grad():
        decided = decision_logprobs(model, batch, VOCAB, vocab_only=True)
        logprobs, entropy, alone = oracle(model, batch, temperature)
    np.testing.assert_allclose(decided.logprobs, logprobs, atol=2e-5)
    np.testing.assert_allclose(decided.entropy, entropy, atol=2e-5)
    np.testing.assert_allclose(decided.vocab_logprobs, alone, atol=2e-5)
    assert decided.plain.tolist() == [True, False, False, True, False, True]


def test_greedy_is_scored_at_temperature_one():
    model = tiny()
    with torch.no_grad():
        greedy = decision_logprobs(model, micro(0.0), VOCAB).logprobs
        assert torch.equal(greedy, decision_logprobs(model, micro(1.0), VOCAB).logprobs)


def test_p095_temperature_divides_logits_not_logprobs(models):
    model = models.bigram(np.tile([2.0, 0.0, -1.0], (3, 1)))
    batch = replace(micro(0.5, legal=[-1], targets=[1], sets=()), ids=np.zeros((1, 9), dtype=np.int64))
    with torch.no_grad():
        np.testing.assert_allclose(decision_logprobs(model, batch, 3).logprobs, [-4.0206], atol=5e-5)


def test_earl_a_legal_probabilities_sum_to_one_and_illegal_logits_change_nothing():
    model = tiny()
    for legal, candidates in ((0, [*range(VOCAB), 20, 23]), (1, [21, 22, 24])):
        with torch.no_grad():
            each = [
                decision_logprobs(model, micro(legal=[legal], targets=[c]), VOCAB).logprobs.double() for c in candidates
            ]
        assert float(torch.cat(each).exp().sum()) == pytest.approx(1, abs=1e-5)

    before = decision_logprobs(model, micro(legal=[0, 1], targets=[7, 22]), VOCAB, entropy_grad=True)
    (before.logprobs.sum() + before.entropy.sum()).backward()
    gradient = model.lm_head.weight.grad
    assert gradient[25].abs().max() == 0, "row 25 is legal nowhere"
    assert torch.isfinite(gradient).all()
    with torch.no_grad():
        model.lm_head.weight[25] += 100.0
        after = decision_logprobs(model, micro(legal=[0, 1], targets=[7, 22]), VOCAB)
    assert torch.equal(after.logprobs, before.logprobs)
    assert torch.equal(after.entropy, before.entropy)


def test_earl_a_in_action_mode_the_vocabulary_has_no_gradient():
    model = tiny()
    decision_logprobs(model, micro(legal=[1], targets=[22]), VOCAB).logprobs.sum().backward()
    gradient = model.lm_head.weight.grad.abs().sum(1)
    assert (gradient > 0).nonzero().flatten().tolist() == [21, 22, 24]


def test_vocabulary_logprobs_move_no_native_row():
    model = tiny()
    decision_logprobs(model, micro(legal=[0], targets=[7]), VOCAB, vocab_only=True).vocab_logprobs.sum().backward()
    assert model.lm_head.weight.grad[VOCAB:].abs().max() == 0
    assert model.lm_head.weight.grad[:VOCAB].abs().min() > 0


def test_b07_only_the_deciding_positions_have_a_gradient():
    model = tiny()
    batch = micro()
    kept = {}

    def keep(_module, _inputs, output):
        kept["hidden"] = output.last_hidden_state
        kept["hidden"].retain_grad()

    handle = model.base_model.register_forward_hook(keep)
    decision_logprobs(model, batch, VOCAB).logprobs.sum().backward()
    handle.remove()
    moved = kept["hidden"].grad.abs().sum(-1) > 0
    expected = torch.zeros_like(moved)
    expected[batch.rows, batch.at] = True  # first and last decisions among them, padding and observations not
    assert torch.equal(moved, expected)


def test_padding_on_the_right_changes_nothing():
    model = tiny()
    batch = micro()
    wider = np.concatenate((batch.ids, np.full((2, 5), 7)), axis=1)
    with torch.no_grad():
        narrow = decision_logprobs(model, batch, VOCAB).logprobs
        wide = decision_logprobs(model, replace(batch, ids=wider), VOCAB).logprobs
    np.testing.assert_allclose(narrow, wide, atol=1e-5)


@pytest.mark.parametrize(
    ("legal", "target"), [(-1, 20), (0, 21), (0, 25), (1, 3), (1, 20), (1, 25)], ids=lambda value: str(value)
)
def test_a_decision_that_was_not_legal_is_refused(legal, target):
    with pytest.raises(UsageError, match=f"chose id {target} "):
        decision_logprobs(tiny(), micro(legal=[legal], targets=[target]), VOCAB)


def test_a_model_with_too_few_rows_is_refused():
    with pytest.raises(UsageError, match="26 rows"):
        decision_logprobs(tiny(), micro(legal=[0], targets=[3], sets=(Legal(True, (30,)),)), VOCAB)
    with pytest.raises(UsageError, match="only 26 rows"):
        decision_logprobs(tiny(), micro(), 27)


def test_softcapped_logits_match_the_model():
    from transformers import Gemma2Config, Gemma2ForCausalLM

    config = Gemma2Config(
        vocab_size=VOCAB, hidden_size=64, intermediate_size=96, num_hidden_layers=2, num_attention_heads=2,
        num_key_value_heads=1, head_dim=32, final_logit_softcapping=2.0, attn_implementation="eager",
    )  # fmt: skip
    model = Gemma2ForCausalLM(config).eval()
    with torch.no_grad():
        model.lm_head.weight.normal_(0, 2.0, generator=torch.Generator().manual_seed(0))
        batch = micro(legal=[-1] * 6, targets=[3, 1, 2, 5, 4, 19], sets=())
        logits = model(torch.as_tensor(batch.ids)).logits[batch.rows, batch.at]
        expected = torch.log_softmax(logits, -1)[np.arange(6), batch.targets]
        np.testing.assert_allclose(decision_logprobs(model, batch, VOCAB).logprobs, expected, atol=2e-5)
