"""Usable information: the classifier against two others, and the value where the truth is known."""

import numpy as np
import pytest
import torch
from scipy.linalg import eigh
from scipy.special import logsumexp
from scipy.stats import norm
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis

from infoflow.corpus import Corpus
from infoflow.flow import NO_LABEL, Occurrences, PassOptions, SampleFacts, TokenSample, measure
from infoflow.foundation import UserError, block_of
from infoflow.representations import (
    LabelledMoments,
    UsableInformation,
    discretize,
    estimate_usable,
    mutual_information,
    usable_information,
)

TYPES = 30
SHARES = 1 / np.arange(1, TYPES + 1)
SHARES /= SHARES.sum()


def tokens(num, seed=0):
    """Types by Zipf's law, in sentences of ten."""
    return np.random.default_rng(seed).choice(TYPES, num, p=SHARES), np.arange(num) // 10


def means(width=8):
    return np.random.default_rng(1).normal(size=(TYPES, width))


def noisy(types, noise, seed=2):
    return means()[types] + noise * np.random.default_rng(seed).normal(size=(len(types), 8))


def estimated(states, labels, sentences):
    return estimate_usable(torch.from_numpy(states.astype(np.float32)), labels.astype(np.int64), block_of(sentences))


# -- the classifier ----------------------------------------------------------------------------------------------------


def few_labels(num, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.choice(5, num, p=[0.4, 0.3, 0.15, 0.1, 0.05])
    mix = rng.normal(size=(4, 4))
    return ((rng.normal(size=(5, 4))[labels] + rng.normal(size=(num, 4))) @ mix).astype(np.float32), labels


def log_probabilities(model, states, labels):
    return model.log_probabilities(torch.from_numpy(states), torch.from_numpy(labels), (1.0,))[0].numpy()


def fitted(states, labels, ridge=1e-9):
    moments = LabelledMoments.of(torch.from_numpy(states), torch.from_numpy(labels), int(labels.max()) + 1)
    return moments.classifier(ridge)


def test_with_many_states_per_label_it_is_linear_discriminant_analysis():
    states, labels = few_labels(40_000)
    model = LinearDiscriminantAnalysis().fit(states[:30_000], labels[:30_000])
    theirs = model.predict_log_proba(states[30_000:])[np.arange(10_000), labels[30_000:]]
    ours = log_probabilities(fitted(states[:30_000], labels[:30_000]), states[30_000:], labels[30_000:])
    np.testing.assert_allclose(ours, theirs, atol=0.1)
    assert np.sqrt(np.mean((ours - theirs) ** 2)) < 0.01
    assert abs(ours.mean() - theirs.mean()) < 5e-4


def slow_log_probability(states, labels, new, own):
    """The formulas of the docstring, label by label, with axes from a generalised eigenproblem."""
    num, num_labels = len(labels), int(labels.max()) + 1
    count = np.bincount(labels, minlength=num_labels)
    mean = states.mean(0)
    of_label = np.array([states[labels == k].mean(0) - mean if count[k] else 0 * mean for k in range(num_labels)])
    within = states - mean - of_label[labels]
    between = (of_label.T * count) @ of_label / num
    axes = eigh(between, within.T @ within / (num - (count > 0).sum()))[1]
    centres = of_label @ axes
    psi = ((count[:, None] * centres**2).sum(0) - (count > 0).sum()) / (num - (count**2).sum() / num)
    psi = np.maximum(psi, 1e-6)
    logits = np.empty((len(new), num_labels))
    for k, n in enumerate(count):
        v = psi / (1 + n * psi)
        density = norm.logpdf((new - mean) @ axes, loc=n * v * centres[k], scale=np.sqrt(1 + v)).sum(1)
        logits[:, k] = density + np.log((n + 0.5) / (num + num_labels / 2))
    return (logits - logsumexp(logits, axis=1, keepdims=True))[np.arange(len(own)), own]


def test_with_few_states_per_label_it_is_the_formula():
    states, labels = few_labels(150, seed=3)
    labels[labels == 2] = 6  # labels without a state
    new, own = few_labels(80, seed=4)
    expected = slow_log_probability(states.astype(float), labels, new.astype(float), own)
    np.testing.assert_allclose(log_probabilities(fitted(states, labels, 1e-12), new, own), expected, atol=2e-3)


# -- the value ---------------------------------------------------------------------------------------------------------


def true_information(noise, num=40_000):
    """H(T) − H(T | h) of `noisy`, whose densities are known, as a mean over draws."""
    types, _ = tokens(num, seed=7)
    states = noisy(types, noise, seed=8)
    distances = ((states[:, None, :] - means()) ** 2).sum(2)
    logits = np.log(SHARES) - distances / (2 * noise**2)
    posterior = logits[np.arange(num), types] - logsumexp(logits, axis=1)
    return -(SHARES * np.log(SHARES)).sum() + posterior.mean()


def test_a_chain_with_growing_noise():
    types, sentences = tokens(20_000)
    levels = (0.3, 0.6, 0.9, 1.5)
    truth = [true_information(noise) for noise in levels]
    columns = [estimated(noisy(types, noise), types, sentences).columns(len(types)) for noise in levels]
    found = [each["value"] for each in columns]
    assert found == sorted(found, reverse=True)
    assert min(np.diff(truth[::-1])) > 0.15  # so the order is worth finding
    for value, true in zip(found, truth, strict=True):
        assert true - 0.08 < value < true + 0.02  # a lower bound, up to the choice of sentences
    assert columns[0]["low"] < truth[0] < columns[0]["high"]
    assert columns[0]["converged"]


def test_states_that_determine_the_token_have_its_entropy():
    types, sentences = tokens(6000)
    position = np.random.default_rng(5).normal(size=(10, 8))[np.arange(6000) % 10]
    states = np.concatenate([means()[types], np.zeros((6000, 8))], 1)  # layer 0: token and position, no noise
    states[:, 4:12] += position
    found = estimated(states, types, sentences)
    row = found.columns(6000)
    assert row["value"] == pytest.approx(found.entropy, abs=5e-3)
    assert row["low"] < found.entropy < row["high"]
    assert row["entropy"] == pytest.approx(-(SHARES * np.log(SHARES)).sum(), abs=0.03)


@pytest.mark.parametrize("size", [1, 30, 1000])
@pytest.mark.parametrize("of", ["sentence", "position"])
def test_a_component_that_says_nothing_of_tokens_changes_nothing(of, size):
    types, sentences = tokens(6000)
    rng = np.random.default_rng(5)
    where = sentences if of == "sentence" else np.arange(6000) % 10
    further = rng.normal(size=(where.max() + 1, 4))[where]
    turn = np.linalg.qr(rng.normal(size=(12, 12)))[0]
    plain, changed = (np.concatenate([noisy(types, 0.6), by * further], 1) @ turn for by in (0, size))
    expected, found = (estimated(states, types, sentences) for states in (plain, changed))
    assert found.value == pytest.approx(expected.value, abs=0.03)
    assert expected.value > 2


def test_a_large_component_in_states_of_few_directions_changes_nothing():
    """Wide states of few tokens and positions have many directions without any variance."""
    types, sentences = tokens(3000)
    rng = np.random.default_rng(5)
    embeddings, positions = rng.normal(size=(TYPES, 100)), rng.normal(size=(10, 100))
    values = [
        estimated(embeddings[types] + size * positions[np.arange(3000) % 10], types, sentences).value
        for size in (0.1, 300)
    ]
    assert values[1] == pytest.approx(values[0], abs=0.01)


@pytest.mark.parametrize("of", ["rotation", "scale"])
def test_neither_axes_nor_units_matter(of):
    types, sentences = tokens(4000)
    states = noisy(types, 0.6)
    change = np.linalg.qr(np.random.default_rng(3).normal(size=(8, 8)))[0] if of == "rotation" else 100 * np.eye(8)
    expected, found = (estimated(each, types, sentences).value for each in (states, states @ change))
    assert found == pytest.approx(expected, abs=2e-3)


def test_shuffled_labels_have_nothing():
    types, sentences = tokens(10_000)
    found = estimated(noisy(types, 0.6), np.random.default_rng(0).permutation(types), sentences)
    row = found.columns(len(types))
    assert row["value"] == pytest.approx(0, abs=0.03)
    assert row["baseline"] == pytest.approx(0, abs=0.03)
    assert estimated(noisy(types, 0.6), types, sentences).baseline == pytest.approx(0, abs=0.03)


def test_more_tokens_give_more_and_the_drift_says_so():
    few, many = (estimated(noisy(types, 0.6), types, sentences) for types, sentences in (tokens(1000), tokens(10_000)))
    assert few.drift > many.drift > 0
    assert few.drift <= few.entropy - few.value
    assert few.value < many.value
    columns = few.columns(1000)
    assert columns["low"] < few.value < many.value < columns["high"] <= columns["entropy"]
    assert few.value - columns["low"] < few.drift < columns["high"] - few.value  # a lower bound can only be too low


# -- what it refuses ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda h, t, s: (h[:499], t[:499], s[:499]), "at least 500 tokens. Got 499"),
        (lambda h, t, s: (np.where(h == h[0, 0], np.nan, h), t, s), "holds NaN"),
        (lambda h, t, s: (h, t[:-1], s), "one label per row"),
        (lambda h, t, s: (h, t, s[:-1]), "one id per row"),
        (lambda h, t, s: (h, t, 0 * s), "sentences in at least 4"),
    ],
)
def test_what_cannot_be_estimated_is_refused(change, message):
    types, sentences = tokens(600)
    with pytest.raises(UserError, match=message):
        usable_information(*change(noisy(types, 0.6), types, sentences))


def test_names_of_labels_do_not_matter():
    types, sentences = tokens(1000)
    states = noisy(types, 0.3)
    names = np.array([f"word {TYPES - each}" for each in range(TYPES)])[types]
    assert usable_information(states, names, sentences) == pytest.approx(
        usable_information(states, types, sentences), abs=1e-3
    )


# -- the measure -------------------------------------------------------------------------------------------------------


def sample(num=4000, regime="clean", labelled=True):
    types, sentences = tokens(num)
    nothing = np.zeros(num, dtype=np.int64)
    label = np.roll(types, -1) if labelled else np.full(num, NO_LABEL)
    at = Occurrences(
        sentence=sentences, row=sentences, position=np.arange(num) % 10, token=types, label=label, previous=nothing,
        next=nothing, word=nothing, draw=nothing, subword=nothing, subwords=nothing + 1, word_type=types,
    )  # fmt: skip
    states = np.stack([noisy(types, 0.3), noisy(types, 0.9), noisy(label % TYPES, 0.9)]).astype(np.float32)
    facts = SampleFacts(
        model="m", stack="encoder", regime=regime, task="masked-lm", seed=0, tokenizer="words",
        frequencies=np.bincount(types, minlength=TYPES), ranks=np.arange(1, TYPES + 1),
    )  # fmt: skip
    return TokenSample(at, states, facts)


def test_rows_by_side_and_layer():
    frame = UsableInformation(occurrences=4000).compute(sample())
    value = frame.pivot(index="layer", columns="side", values="value")
    assert value["input"][0] > value["input"][1] > 1
    assert value["input"][2] == pytest.approx(0, abs=0.1)
    assert value["output"][2] == pytest.approx(value["input"][1], abs=0.15)
    assert value["output"][0] == pytest.approx(0, abs=0.1)
    assert (frame["low"] < frame["value"]).all()
    assert (frame["count"] == 4000).all()


def test_tokens_without_a_label_have_no_output_side():
    assert set(UsableInformation().compute(sample(labelled=False))["side"]) == {"input"}


def test_in_training_only_replaced_tokens_count():
    own = sample(regime="training")
    replaced = own.occurrences.token != own.occurrences.label
    frame = UsableInformation(regime="training").compute(own)
    assert set(frame["count"]) == {int(replaced.sum())}
    assert set(frame["side"]) == {"input", "output"}


def test_only_frequent_types_count():
    own = sample()
    frame = UsableInformation(types=5).compute(own).query("side == 'input'")
    assert set(frame["types"]) == {5}
    assert set(frame["count"]) == {int((own.occurrences.token < 5).sum())}


def test_too_few_tokens_give_no_rows():
    assert UsableInformation().compute(sample(num=400)).empty


def test_on_models_of_all_tasks(matched_models, parallel_corpus, monkeypatch):
    """They compare on the same tokens."""
    monkeypatch.setattr("infoflow.representations._usable_information._LEAST_TOKENS", 60)
    measures = [UsableInformation(types=30), UsableInformation(types=30, regime="training")]
    frames = {
        name: measure(model, parallel_corpus, measures[: 2 if name == "masked-lm" else 1], PassOptions())
        for name, model in matched_models.items()
    }
    found = {name: each["usable_information"] for name, each in frames.items()}
    clean = [each[(each["regime"] == "clean") & (each["side"] == "input")] for each in found.values()]
    encoders = [each[each["stack"] == each["stack"].iloc[0]] for each in clean]
    assert [each["layer"].tolist() for each in encoders] == [[0, 1, 2]] * 3
    assert len({tuple(each["count"]) for each in encoders}) == 1
    assert set(found["causal-lm"]["side"]) == {"input", "output"}
    assert set(found["masked-lm"].loc[found["masked-lm"]["regime"] == "training", "side"]) == {"input", "output"}
    assert set(found["translation"]["stack"]) == {"encoder", "decoder"}


def test_a_small_corpus_gives_no_rows(matched_models, parallel_corpus):
    assert measure(matched_models["causal-lm"], parallel_corpus, [UsableInformation()])["usable_information"].empty


def test_a_component_that_comes_and_goes_is_a_loss_and_a_recovery_of_clusters_alone():
    """All layers say the same of the token, which decides what an estimate of it should be."""
    types, sentences = tokens(6000)
    component = np.random.default_rng(5).normal(size=(10, 4))[np.arange(6000) % 10]
    layers = [np.concatenate([noisy(types, 0.3), size * component], 1) for size in (0, 4, 0)]
    clusters = [float(mutual_information(discretize(each.astype(np.float32), 60), types)) for each in layers]
    usable = [estimated(each, types, sentences).value for each in layers]
    assert clusters[1] < min(clusters[0], clusters[2]) - 0.5
    assert max(usable) - min(usable) < 0.01


def test_a_masked_token_may_stand_in_the_input_as_it_is(matched_models, tmp_path):
    """Short sentences in which nothing is replaced belong to the sample, so the pass must read them."""
    path = tmp_path / "short.txt"
    path.write_text("".join(f"the cat sees {word} now\n" for word in "abcdefghijklmnopqrstuvwxyz" for _ in range(2)))
    found = measure(matched_models["masked-lm"], Corpus.from_text(path), [UsableInformation(regime="training")])
    assert found["usable_information"].empty  # too few tokens, and no error
