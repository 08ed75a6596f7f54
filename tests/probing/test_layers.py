"""Probes of arrays: what is in which layer, what control labels show, and bad input."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from infoflow.foundation import hash64_array, make_display, use_display
from infoflow.probing import ProbeSettings, probe_layers

WORDS, TAGS, WIDTH = 120, 4, 40
FAST = ProbeSettings(rate=0.01, patience=4)


@pytest.fixture(scope="module")
def corpus():
    """Layer 0 knows the word, layer 1 its tag, layer 2 nothing; a third of the words stand in one sentence only."""
    rng = np.random.default_rng(0)
    sentences = np.repeat(np.arange(400), 8)
    types = rng.integers(0, WORDS, len(sentences))
    rare = rng.random(len(sentences)) < 0.1
    types[rare] = WORDS + sentences[rare]
    tags = np.random.default_rng(5).integers(0, TAGS, WORDS + 400)[types]
    vectors = rng.normal(size=(WORDS + 400, WIDTH)) * 2
    states = rng.normal(size=(len(sentences), 3, WIDTH))
    states[:, 0] += vectors[types]
    states[:, 1] += 3 * np.eye(WIDTH)[tags]
    return states.astype(np.float32), tags, sentences, types


@pytest.fixture(scope="module")
def table(corpus):
    return probe_layers(*corpus, settings=FAST).set_index(["layer", "labels", "words", "metric"])


def test_each_layer_says_what_it_knows(table):
    tag = table["value"].xs("accuracy", level="metric").xs("task", level="labels")
    lot = table["value"].xs("accuracy", level="metric").xs("control", level="labels")
    assert tag[1, "unseen"] > 0.9 < tag[1, "seen"]
    assert tag[2, "all"] < 0.35
    assert lot[0, "seen"] > lot[0, "unseen"] + 0.2
    assert lot[1, "seen"] < lot[0, "seen"] - 0.2
    assert abs(lot[0, "unseen"] - 0.25) < 0.12
    gain = table["value"].xs("selectivity", level="metric").xs("task", level="labels")
    assert gain[1, "all"] == pytest.approx(tag[1, "all"] - lot[1, "all"])
    assert gain[1, "all"] > gain[0, "all"] + 0.2


def test_rows_carry_what_honest_numbers_need(corpus, table):
    accuracy = table.loc[(1, "task", "all", "accuracy")]
    assert accuracy["low"] < accuracy["value"] < accuracy["high"]
    assert accuracy["seeds"] == 3
    assert accuracy["seed_sd"] > 0
    assert accuracy["capacity"] == (WIDTH + 1) * TAGS
    counts = table["count"].xs("accuracy", level="metric").xs("task", level="labels")[1]
    assert counts["all"] == counts["seen"] + counts["unseen"]
    assert 0.1 * len(corpus[1]) < counts["all"] < 0.3 * len(corpus[1])
    assert 0.5 * len(corpus[1]) < accuracy["training"] < 0.7 * len(corpus[1])
    assert accuracy["baseline"] < 0.4


def test_accuracies_are_those_of_logistic_regression(corpus, table):
    states, tags, sentences, _ = corpus
    place = hash64_array(("probe-part", 0), sentences) / 2.0**64
    for layer in range(3):
        regression = LogisticRegression(C=1e2, max_iter=2000).fit(states[place >= 0.4, layer], tags[place >= 0.4])
        right = np.mean(regression.predict(states[place < 0.2, layer]) == tags[place < 0.2])
        assert table["value"][layer, "task", "all", "accuracy"] == pytest.approx(right, abs=0.05)


def test_random_labels_cannot_be_read(corpus):
    states, tags, sentences, _ = corpus
    shuffled = np.random.default_rng(3).permutation(tags)
    found = probe_layers(states, shuffled, sentences, settings=ProbeSettings())
    accuracy = found[found["metric"] == "accuracy"]
    assert (accuracy["value"] - accuracy["baseline"]).abs().max() < 0.06
    assert set(found["labels"]) == {"task"}


def test_less_training_is_part_of_more_and_reads_less(corpus):
    found = probe_layers(*corpus[:3], settings=FAST, sizes=(0.02, 0.2, 1.0))
    of = found[(found["metric"] == "accuracy") & (found["words"] == "all") & (found["layer"] == 0)].set_index("share")
    assert of["training"].is_monotonic_increasing
    assert of.loc[0.02, "training"] == pytest.approx(0.02 * of.loc[1.0, "training"], abs=16)
    assert of["value"].is_monotonic_increasing
    assert of["count"].nunique() == 1


def test_a_class_that_training_lacks_is_counted(corpus):
    states, tags, sentences, _ = corpus
    place = hash64_array(("probe-part", 0), sentences) / 2.0**64
    last = np.flatnonzero(place < 0.2)[:7]
    changed = tags.copy()
    changed[last] = TAGS
    found = probe_layers(states[:, 1:2], changed, sentences, settings=ProbeSettings(epochs=2), seeds=(0,))
    row = found[(found["metric"] == "accuracy") & (found["words"] == "all")].iloc[0]
    assert row["untaught"] == 7
    assert np.isnan(row["seed_sd"])


def test_a_share_of_one_class_is_left_out_with_a_note():
    sentences = np.arange(60)
    place = hash64_array(("probe-part", 0), sentences) / 2.0**64
    first = np.flatnonzero(place >= 0.4)
    order = np.argsort(hash64_array(("probe-share", 0), first), kind="stable")
    labels = np.arange(60) % 2
    labels[first[order[:3]]] = 0
    notes = []
    display = make_display("silent")
    display.note = notes.append
    states = np.random.default_rng(0).normal(size=(60, 1, 3)).astype(np.float32)
    with use_display(display):
        found = probe_layers(states, labels, sentences, settings=ProbeSettings(epochs=1), sizes=(0.05, 1.0))
    assert set(found["share"]) == {1.0}
    assert notes == ["A probe on 5.00% of the training sentences is left out: they have one class."]


def test_many_classes_are_learned_in_groups(monkeypatch):
    monkeypatch.setattr("infoflow.subjects.probing.measures._batched._GROUP", 1 << 20)
    rng = np.random.default_rng(0)
    labels = rng.integers(0, 3000, 6000)
    states = (rng.normal(size=(3000, 1, 16))[labels]).astype(np.float32)
    found = probe_layers(states, labels, np.arange(6000), settings=ProbeSettings(rate=0.03, epochs=6), seeds=(0, 1))
    row = found[found["metric"] == "accuracy"].iloc[0]
    assert row["untaught"] > 100
    assert row["value"] > 0.2 > row["baseline"]
