"""Usable information by a probe with one hidden layer: against scikit-learn, and where the truth is known."""

import numpy as np
import pytest
import torch
from scipy.special import logsumexp
from sklearn.neural_network import MLPClassifier

from infoflow.flow import NO_LABEL, Occurrences, SampleFacts, TokenSample
from infoflow.foundation import block_of
from infoflow.probing import UsableInformationMLP, usable_by_mlp

TYPES = 20
SHARES = 1 / np.arange(1, TYPES + 1)
SHARES /= SHARES.sum()
ENTROPY = -(SHARES * np.log(SHARES)).sum()
SENTENCE = 10


def tokens(num, seed=0):
    """Types by Zipf's law, in sentences of ten."""
    return np.random.default_rng(seed).choice(TYPES, num, p=SHARES), np.arange(num) // SENTENCE


def means(width=8):
    return np.random.default_rng(1).normal(size=(TYPES, width))


def noisy(types, noise, seed=2):
    return means()[types] + noise * np.random.default_rng(seed).normal(size=(len(types), 8))


def estimated(layers, labels, sentences, **settings):
    states = torch.from_numpy(np.stack(layers).astype(np.float32))
    return usable_by_mlp(states, labels.astype(np.int64), block_of(sentences), **settings)


def test_layer_0_has_the_entropy_whatever_the_positions():
    types, sentences = tokens(6000)
    position = np.random.default_rng(5).normal(size=(SENTENCE, 8))[np.arange(6000) % SENTENCE]
    layers = []
    for size in (0, 100):
        states = np.concatenate([means()[types], np.zeros((6000, 8))], 1)
        states[:, 4:12] += size * position
        layers.append(states)
    for found in estimated(layers, types, sentences):
        row = found.columns(6000)
        assert row["value"] == pytest.approx(found.entropy, abs=0.02)
        assert row["low"] < found.entropy <= row["high"]
        assert row["converged"]


@pytest.mark.parametrize("of", ["sentence", "position"])
def test_an_independent_component_of_any_size_changes_nothing(of):
    types, sentences = tokens(4000)
    rng = np.random.default_rng(5)
    where = sentences if of == "sentence" else np.arange(4000) % SENTENCE
    further = rng.normal(size=(where.max() + 1, 4))[where]
    turn = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    layers = [np.concatenate([noisy(types, 0.6), size * further], 1) @ turn for size in (0, 1, 1000)]
    plain, *changed = (each.value for each in estimated(layers, types, sentences))
    assert changed == pytest.approx([plain] * 2, abs=0.03)
    assert plain > 1.4


def true_information(noise, num=40_000):
    """H(T) − H(T | h) of `noisy`, whose densities are known, as a mean over draws."""
    types, _ = tokens(num, seed=7)
    distances = ((noisy(types, noise, seed=8)[:, None, :] - means()) ** 2).sum(2)
    logits = np.log(SHARES) - distances / (2 * noise**2)
    return ENTROPY + (logits[np.arange(num), types] - logsumexp(logits, axis=1)).mean()


LEVELS = (0.4, 0.7, 1.1)


@pytest.mark.slow
def test_on_a_chain_with_growing_noise_the_order_is_found_and_intervals_cover():
    truth = np.array([true_information(noise) for noise in LEVELS])
    held = []
    for draw in range(1):
        types, sentences = tokens(8000, seed=20 + draw)
        rng = np.random.default_rng(30 + draw)
        layers = [means()[types] + noise * rng.normal(size=(8000, 8)) for noise in LEVELS]
        for kept in (slice(None), sentences % 3 != 0):  # all, and two thirds of the sentences
            found = estimated([each[kept] for each in layers], types[kept], sentences[kept])
            values = [each.value for each in found]
            assert values == sorted(values, reverse=True)
            assert values == pytest.approx(truth, abs=0.12)
            rows = [each.columns(len(types)) for each in found]
            assert all(row["low"] < true < row["high"] + 0.02 for row, true in zip(rows, truth, strict=True))
            held += [true < row["high"] for row, true in zip(rows, truth, strict=True)]
    assert np.mean(held) >= 0.8  # a lower bound: where an interval misses the truth, it is just below it


def pairs(num=6000, noise=0.3, seed=3):
    """Four clumps at the corners of a square; opposite ones have the same label, so that no line separates them."""
    rng = np.random.default_rng(seed)
    corner = rng.integers(0, 2, (num, 2))
    states = np.concatenate([2 * corner - 1 + noise * rng.normal(size=(num, 2)), rng.normal(size=(num, 4))], axis=1)
    return states.astype(np.float32), corner.sum(1) % 2


def test_it_reads_what_no_linear_classifier_can():
    states, labels = pairs()
    (found,) = estimated([states], labels, np.arange(len(labels)))
    assert found.value > 0.6
    assert found.baseline == pytest.approx(0, abs=0.02)


def test_its_cross_entropy_is_that_of_another_implementation():
    types, sentences = tokens(8000)
    states, blocks = noisy(types, 0.7).astype(np.float32), block_of(sentences)
    (found,) = estimated([states], types, sentences, hidden=32)
    place = np.unique(blocks, return_inverse=True)[1] % 2
    theirs = []
    for fold in (0, 1):
        fitted, scored = place == fold, place != fold
        settings = {"early_stopping": True, "validation_fraction": 1 / 8, "max_iter": 200, "random_state": 0}
        model = MLPClassifier((32,), learning_rate_init=3e-3, **settings).fit(states[fitted], types[fitted])
        theirs.append(np.log(model.predict_proba(states[scored])[np.arange(scored.sum()), types[scored]]))
    assert found.entropy - found.value == pytest.approx(-np.concatenate(theirs).mean(), abs=0.05)


def test_states_that_say_nothing_are_worth_the_frequencies():
    types, sentences = tokens(2000)
    (found,) = estimated([np.random.default_rng(0).normal(size=(2000, 8))], types, sentences)
    for value in (found.value, found.baseline):
        assert value == pytest.approx(0, abs=0.03)


def test_labels_that_no_fitted_sentence_has_cost_a_finite_number():
    types, sentences = tokens(2000)
    types = np.where(np.random.default_rng(4).random(2000) < 0.02, TYPES + np.arange(2000), types)
    classes, labels = np.unique(types, return_inverse=True)
    states = np.random.default_rng(1).normal(size=(len(classes), 8))[labels]
    (found,) = estimated([states], labels, sentences)
    assert found.value > 1.8
    assert np.isfinite(found.without_block).all()


def test_the_interval_carries_the_seed():
    types, sentences = tokens(1500)
    layers = [noisy(types, 0.7)]
    (one,), (two,) = (estimated(layers, types, sentences, seeds=seeds) for seeds in (1, 2))
    assert one.of_seed == 0
    assert two.of_seed > 0
    row = two.columns(1500)
    assert row["value"] - row["low"] > two.of_seed * 1.9


# -- the measure -------------------------------------------------------------------------------------------------------


def test_rows_by_side_and_layer():
    num = 1500
    types, sentences = tokens(num)
    nothing, label = np.zeros(num, dtype=np.int64), np.roll(types, -1)
    label[::50] = NO_LABEL
    at = Occurrences(
        sentence=sentences, row=sentences, position=np.arange(num) % SENTENCE, token=types, label=label,
        previous=nothing, next=nothing, word=nothing, draw=nothing, subword=nothing, subwords=nothing + 1,
        word_type=types,
    )  # fmt: skip
    facts = SampleFacts(
        model="m", stack="encoder", regime="clean", task="causal-lm", seed=0, tokenizer="words",
        frequencies=np.bincount(types, minlength=TYPES), ranks=np.arange(1, TYPES + 1),
    )  # fmt: skip
    states = np.stack([noisy(types, 0.2), noisy(np.roll(types, -1), 0.2)]).astype(np.float32)
    frame = UsableInformationMLP().compute(TokenSample(at, states, facts))
    assert set(frame.columns) == set(UsableInformationMLP.table.column_names)
    value = frame.pivot(index="layer", columns="side", values="value")
    assert value["input"][0] > 1.8 > 0.1 > abs(value["input"][1])
    assert value["output"][1] > 1.8 > 0.1 > abs(value["output"][0])
    counts = frame.groupby("side")["count"].first()
    assert counts["input"] == num > counts["output"]
