"""The measure: a probe of every layer of a model, on tasks of the generated grammar."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

import infoflow
from infoflow.corpus import Corpus, generate_grammar, train_tokenizer
from infoflow.flow import PassOptions
from infoflow.foundation import UserError, make_display, use_display
from infoflow.models import Model, load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.probing import PROBE_SCORES, Probe, build_task, collect_features
from infoflow.training import ModelConfig, build_models

pytestmark = pytest.mark.slow

QUICK = {"sentences": 150, "epochs": 12}


@pytest.fixture(scope="module")
def corpus() -> Corpus:
    return generate_grammar(300, seed=1)


@pytest.fixture(scope="module")
def model(corpus) -> Model:
    tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=200)
    config = ModelConfig(width=32, layers=2, heads=2, feedforward=32, initializer_range=0.3, positions=128)
    modules = build_models([make_objective("masked-lm")], config, Vocabulary.from_tokenizer(tokenizer), seed=0)
    return load_model(modules["masked-lm"], tokenizer=tokenizer)


def scores(model, corpus, probe, options=None):
    found = infoflow.measure(model, corpus, [probe], options)["probe_scores"]
    assert list(found.columns) == PROBE_SCORES.column_names
    return found


def test_it_agrees_with_logistic_regression_by_hand(model, corpus, tmp_path):
    found = scores(model, corpus, Probe("upos", sentences=300, seeds=1, patience=8))
    rows = np.arange(len(corpus))
    features, task = collect_features(model, corpus, rows, folder=tmp_path), build_task("upos", corpus, rows)
    for layer in range(3):
        parts = []
        for part in (task.train, task.test):
            at = features.spans(part.examples.sentence, part.examples.first)[0]
            parts.append((features.rows(at)[:, layer], part.examples.label))
        regression = LogisticRegression(C=1e2, max_iter=3000).fit(*parts[0])
        row = found[(found["layer"] == layer) & (found["labels"] == "task") & (found["words"] == "all")]
        row = row[row["metric"] == "accuracy"].iloc[0]
        assert row["count"] == len(task.test.examples)
        assert row["training"] == len(task.train.examples)
        assert row["value"] == pytest.approx(regression.score(*parts[1]), abs=0.05)
        majority = np.bincount(task.train.examples.label).argmax()
        assert row["baseline"] == pytest.approx(np.mean(task.test.examples.label == majority))


@pytest.mark.parametrize("task", ["arc", "arc-label", "length", "bigram-shift"])
def test_tasks_of_every_unit(model, corpus, task):
    found = scores(model, corpus, Probe(task, **QUICK))
    assert set(found["layer"]) == {0, 1, 2}
    assert set(found["labels"]) == {"task", "control"}
    assert set(found["metric"]) == {"accuracy", "macro_f1", "selectivity"}
    assert found["value"].between(-1, 1).all()
    assert (found["seeds"] == 3).all()
    width = 32 * (3 if task.startswith("arc") else 1)
    classes = 2 if task in ("arc", "bigram-shift") else None
    assert classes is None or (found["capacity"] == (width + 1) * classes).all()


def test_the_control_of_arcs_asks_about_pairs_of_its_own(model, corpus):
    found = scores(model, corpus, Probe("arc", **QUICK))
    lot = found[(found["labels"] == "control") & (found["metric"] == "accuracy") & (found["words"] == "all")]
    assert (lot["baseline"] == 0.5).all()
    assert (lot["value"] > 0.6).all()  # itself, the first or the last word: easily told from another one


def test_neither_batches_nor_padding_matter(model, corpus):
    wide = scores(model, corpus, Probe("upos", **QUICK))
    narrow = scores(model, corpus, Probe("upos", **QUICK), PassOptions(tokens_per_batch=60))
    left = load_model(model.module, tokenizer=model.require_tokenizer())
    left.require_tokenizer().padding_side = "left"
    again = scores(left, corpus, Probe("upos", **QUICK))
    for other in (narrow, again):
        assert np.abs(wide["value"] - other["value"]).max() < 0.02
        assert np.abs(wide["value"] - other["value"]).mean() < 0.003


def test_probes_of_one_corpus_share_one_pass(model, corpus, monkeypatch):
    passes = []
    path = "infoflow.subjects.probing.measures._features.collect_features"
    monkeypatch.setattr(path, lambda *a, **k: (passes.append(1), collect_features(*a, **k))[1])
    together = [Probe("upos", **QUICK), Probe("deprel", **QUICK), Probe("upos", "mlp", hidden=8, **QUICK)]
    found = infoflow.measure(model, corpus, together)["probe_scores"]
    assert len(passes) == 1
    assert set(zip(found["task"], found["probe"], strict=True)) == {
        ("upos", "linear"), ("deprel", "linear"), ("upos", "mlp"),
    }  # fmt: skip
    alone = scores(model, corpus, Probe("deprel", **QUICK))
    assert len(passes) == 2
    shared = found[found["task"] == "deprel"]["value"].to_numpy()
    np.testing.assert_allclose(shared, alone["value"].to_numpy(), atol=1e-6)


def test_sizes_and_what_is_left_out(model, corpus):
    notes = []
    display = make_display("silent")
    display.note = notes.append
    with use_display(display):
        found = scores(
            model, corpus, Probe("upos", sizes=(0.1, 1.0), control=False, **QUICK), PassOptions(max_length=12)
        )
    assert set(found["labels"]) == {"task"}
    sizes = found.groupby("share")["training"].unique()
    assert len(sizes[0.1]) == len(sizes[1.0]) == 1
    assert sizes[0.1][0] < 0.25 * sizes[1.0][0]
    assert any("examples of upos are left out: their words are cut off" in note for note in notes)


def test_without_corruption_the_control_is_the_task(model, corpus):
    nothing, half = (scores(model, corpus, Probe("upos", corrupted=share, **QUICK)) for share in (0.0, 0.5))
    gains = nothing[nothing["metric"] == "selectivity"]
    assert (gains["value"] == 0).all()
    assert (gains["seed_sd"] == 0).all()
    assert (half[half["metric"] == "selectivity"]["value"].abs() > 0).any()
    assert set(half["corrupted"]) == {0.5}


def test_labels_that_are_shuffled_cannot_be_read(model, corpus, monkeypatch):
    """The trained probe's accuracy on labels that no state knows is that of the majority class."""

    def shuffled(*args, **kwargs):
        task = build_task(*args, **kwargs)
        parts = {}
        for name in ("train", "dev", "test"):
            part = getattr(task, name)
            label = np.random.default_rng(0).permutation(part.examples.label)
            parts[name] = replace(part, examples=replace(part.examples, label=label))
        return replace(task, **parts)

    monkeypatch.setattr("infoflow.subjects.probing.measures._probed_task.build_task", shuffled)
    found = scores(model, corpus, Probe("upos", sentences=300, control=False)).query("metric == 'accuracy'")
    assert (found.query("words == 'all'")["value"] - found.query("words == 'all'")["baseline"]).abs().max() < 0.05


def test_a_corpus_without_the_column_gives_no_rows(model, corpus):
    text = Corpus.from_sentences([sentence.text for sentence in corpus])
    assert scores(model, text, Probe("upos", **QUICK)).empty


def test_no_part_may_lose_all_its_examples(model, corpus):
    with pytest.raises(UserError, match=r"No example of the part \w+ has states"):
        scores(model, corpus, Probe("length", **QUICK), PassOptions(max_length=4))


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"probe": "cubic"}, "Got cubic"),
        ({"pooling": "max"}, "pooling one of"),
        ({"sentences": 2}, "sentences must be at least 3"),
        ({"seeds": 0}, "Got 2000, 0"),
        ({"sizes": ()}, "Got no size"),
        ({"sizes": (0.0,)}, "sizes must lie above 0"),
        ({"corrupted": 2.0}, r"corrupted in 0\.\.1"),
        ({"dropout": 1.0}, "dropout must lie"),
    ],
)
def test_settings_out_of_range_are_refused(given, message):
    with pytest.raises(UserError, match=message):
        Probe(**given)
