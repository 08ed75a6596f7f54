"""MASS: the fragment, its positions, and what the decoder may look at."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import MASK, ORDINARY, VOCABULARY, check_pure, corrupted, distinct, framed, mixed
from scipy.stats import chisquare

from infoflow.architectures import ModelConfig, build
from infoflow.objectives import Example, Mass

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64)


def model():
    return build("bert", "encoder-decoder", SHAPE, VOCABULARY).eval()


@settings(deadline=None, max_examples=80)
@given(st.integers(1, 60), st.integers(0, 10**6))
def test_the_fragment_is_half_of_the_text_and_predicted_from_the_tokens_before(length, seed) -> None:
    tokens = mixed(length, seed)
    result = check_pure(Mass(), Example(texts=(tokens,)), seed)
    places = np.flatnonzero(result.selected)
    assert len(places) == max(1, round(0.5 * length))
    assert np.array_equal(places, np.arange(places[0], places[-1] + 1))
    assert places[0] >= 1
    assert places[-1] <= length  # neither [CLS] nor [SEP]
    restored = result.input_ids.copy()
    restored[places] = result.labels
    assert np.array_equal(restored, tokens)
    assert np.array_equal(result["decoder_input_ids"], tokens[places - 1])
    assert np.array_equal(result["decoder_position_ids"], places - 1)
    assert np.array_equal(result["visible"] == 0, result.input_ids == MASK)


def test_fragments_begin_a_fifth_first_a_fifth_last_else_anywhere() -> None:
    starts = np.zeros(6)
    for one in corrupted(Mass(), distinct(10), 4000):
        starts[np.flatnonzero(one.selected)[0] - 1] += 1
    shares = np.full(6, 0.6 / 6)
    shares[[0, -1]] += 0.2
    assert chisquare(starts, 4000 * shares).pvalue > 1e-3


def test_the_fragment_is_eighty_ten_ten() -> None:
    shown = np.concatenate([one.input_ids[one.selected] for one in corrupted(Mass(), framed(*[10] * 20), 1000)])
    others = shown[(shown != MASK) & (shown != 10)]
    assert set(others) <= set(ORDINARY)
    swapped = 0.1 * 84 / 85
    counts = [(shown == MASK).sum(), (shown == 10).sum(), len(others)]
    assert chisquare(counts, len(shown) * np.array([0.8, 0.2 - swapped, swapped])).pvalue > 1e-3


@torch.no_grad()
def test_the_loss_equals_an_explicit_computation_without_padding() -> None:
    """Each sentence alone; the keys that hold [MASK] are cut out of the encoder's output instead of masked."""
    objective, module = Mass(), model()
    examples = [corrupted(objective, mixed(n, n), 1)[0] for n in (20, 7, 33, 2, 1)]
    batch = objective.collate(examples, VOCABULARY)
    expected, count = 0.0, 0
    for one in examples:
        ids = torch.tensor(one.input_ids[None])
        states = module.encoder(input_ids=ids).last_hidden_state
        logits = module.decoder(
            input_ids=torch.tensor(one["decoder_input_ids"][None]),
            position_ids=torch.tensor((np.flatnonzero(one.selected) - 1)[None]),
            encoder_hidden_states=states[:, ids[0] != MASK],
        ).logits[0]
        log_p = logits.double().log_softmax(-1)
        for place, label in enumerate(one.labels.tolist()):
            expected, count = expected - float(log_p[place, label]), count + 1
    term = objective.loss(module, batch, batch.noise)["mass"]
    assert term.count == count == batch.supervised_tokens
    assert objective.counts(batch) == {"mass": count}
    assert float(term.total) == pytest.approx(expected, rel=1e-5)


def test_the_decoder_sees_no_state_of_a_mask() -> None:
    """The gradient of the loss by the encoder's last states is zero at [MASK], and only there."""
    objective, module = Mass(random_share=0.1), model()
    batch = objective.collate(corrupted(objective, mixed(20), 4), VOCABULARY)
    kept = []

    def keep(_, inputs, output) -> None:
        output.last_hidden_state.retain_grad()
        kept.append(output.last_hidden_state)

    module.encoder.register_forward_hook(keep)
    objective.loss(module, batch, batch.noise)["mass"].total.backward()
    reached = kept[0].grad.abs().sum(-1) > 0
    assert torch.equal(reached, batch.input_ids != MASK)


@torch.no_grad()
def test_places_in_the_text_matter_to_the_decoder() -> None:
    objective, module = Mass(), model()
    batch = objective.collate(corrupted(objective, distinct(20), 1), VOCABULARY)
    before = float(objective.loss(module, batch, batch.noise)["mass"].total)
    places = module.decoder.bert.embeddings.position_embeddings.weight
    places[batch["decoder_position_ids"][0]] *= 3
    changed = float(objective.loss(module, batch, batch.noise)["mass"].total)
    places[sorted({*range(64)} - {*batch["decoder_position_ids"][0].tolist()})] *= 3
    assert float(objective.loss(module, batch, batch.noise)["mass"].total) == changed != before
