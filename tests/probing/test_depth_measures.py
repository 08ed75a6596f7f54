"""Description length, edge probes and structural probes as measures of a model on a corpus."""

import numpy as np
import pytest
from datasets import Dataset
from support import tiny_heads as tiny

import infoflow
from infoflow.corpus import Corpus, split_numbers
from infoflow.flow import PassOptions, describe_measure
from infoflow.foundation import UserError, use_display
from infoflow.probing import (
    Codelength,
    EdgeDepth,
    EdgeProbe,
    Schedule,
    StructuralProbe,
    build_task,
    center_of_gravity,
    collect_features,
    edge_probe,
    expected_layer,
    online_codelength,
)

OPTIONS = PassOptions()


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(220)


@pytest.fixture(scope="module")
def reader(corpus):
    return tiny.reader_of(tiny.bert(corpus), corpus)


def text_only():
    return Corpus.from_sentences(["a dog sleeps", "the cat sees a dog", "an old man runs"] * 5)


def table_of(measure, reader):
    return measure.table.conform(measure.run(reader, OPTIONS))


CODE = {"hidden": (16,), "epochs": 4, "seeds": 2}


@pytest.fixture(scope="module")
def online(reader):
    return table_of(Codelength("upos", **CODE), reader)


def by_hand(reader, corpus, folder, rows):
    """Scaled states and labels of the three parts, for the whole corpus."""
    task = build_task("upos", corpus, rows, seed=0)
    features = collect_features(reader.model, corpus, rows, folder=folder, options=OPTIONS)
    found = {}
    for name in ("train", "dev", "test"):
        asked = getattr(task, name).examples
        place = {int(row): int(features.starts[i]) for i, row in enumerate(features.sentences)}
        rows_of = [place[int(row)] for row in asked.sentence] + asked.first[:, 0]
        states = features.states[rows_of]
        found[name] = states, asked.label, asked.sentence
    mean, spread = found["train"][0].mean(0), found["train"][0].std(0)
    return task, {name: ((x - mean) / spread, y, groups) for name, (x, y, groups) in found.items()}


def test_codelength_is_that_of_the_words_of_the_corpus(online, reader, corpus, tmp_path):
    task, parts = by_hand(reader, corpus, tmp_path, np.arange(len(corpus)))
    x, y, groups = parts["train"]
    direct = online_codelength(
        x, y, len(task.names), [0, 1], groups=groups, dev=parts["dev"][:2], test=parts["test"][:2], hidden=(16,),
        schedule=Schedule(epochs=4),
    )  # fmt: skip
    rows = online[online["labels"] == "task"].set_index(["metric", "layer"])
    for layer in range(3):
        for metric in ("bits", "model_bits", "data_bits", "compression"):
            expected = getattr(direct, metric)[:, layer]
            assert rows.loc[(metric, layer), "value"] == pytest.approx(expected.mean(), rel=1e-3)
        assert rows.loc[("bits", layer), "seed_sd"] == pytest.approx(direct.bits[:, layer].std(ddof=1), rel=0.05)
        assert rows.loc[("accuracy", layer), "value"] == pytest.approx(direct.accuracy[:, layer].mean(), abs=2e-3)
    assert rows["baseline"]["bits"].eq(len(y) * np.log2(len(task.names))).all()
    assert rows["count"]["bits"].eq(len(y)).all()
    frequent = np.bincount(y).argmax()
    assert rows["baseline"]["accuracy"].eq(np.mean(parts["test"][1] == frequent)).all()


def test_codelength_table(online):
    assert set(online["labels"]) == {"task", "control", "shuffled"}
    assert online["units"].eq("bits").all()
    assert online["probe"].eq("mlp-16").all()
    assert ((online["low"] <= online["value"]) & (online["value"] <= online["high"])).all()
    by = online.pivot_table(index=["labels", "layer"], columns="metric", values="value")
    np.testing.assert_allclose(by["model_bits"] + by["data_bits"], by["bits"], rtol=1e-5)
    at_zero = by.xs(0, level="layer")["compression"]
    assert at_zero["task"] > at_zero["shuffled"]
    replicates = np.array(online["replicates"][0])
    assert replicates.mean() == pytest.approx(online["value"][0], rel=0.03)


def test_shuffled_labels_never_compress_below_their_entropy(online, corpus):
    shuffled = online[(online["labels"] == "shuffled") & (online["metric"] == "bits")]
    label = build_task("upos", corpus, np.arange(len(corpus)), seed=0).train.examples.label
    shares = np.bincount(label) / len(label)
    entropy = -(shares[shares > 0] * np.log2(shares[shares > 0])).sum()
    assert (shuffled["value"] > 0.995 * entropy * shuffled["count"]).all()


def test_variational_codelength_and_legacy_units(reader, corpus, tmp_path):
    settings = {**CODE, "code": "variational", "seeds": 1, "examples": 300}
    found = table_of(Codelength("upos", **settings, threshold=-1.0), reader)
    surviving = found[found["metric"] == "surviving"]
    assert sorted(surviving["probe_layer"].unique()) == [0, 1]
    assert surviving[surviving["probe_layer"] == 1]["baseline"].eq(16).all()
    assert found[found["metric"] != "surviving"]["probe_layer"].eq(-1).all()
    legacy = table_of(Codelength("upos", **settings, legacy_units=True), reader)
    assert legacy["units"].eq("mixed").all()
    bits = [each[each["metric"] == "bits"]["value"].to_numpy() for each in (found, legacy)]
    np.testing.assert_allclose(bits[0] * np.log(2), bits[1], rtol=1e-6)
    assert found["training"].max() <= 300
    again = table_of(Codelength("upos", **settings, threshold=-1.0), reader)
    assert found["value"].equals(again["value"])


EDGE = {"width": 16, "hidden": 16, "epochs": 3, "seeds": 2, "examples": 300}


def test_both_edge_measures_share_one_training(reader, monkeypatch):
    trained = []
    path = "infoflow.subjects.probing.measures._edge_measure.edge_probe"
    monkeypatch.setattr(path, lambda **given: trained.append(given) or edge_probe(**given))
    mixing, depth = (table_of(measure("arc-label", **EDGE), reader) for measure in (EdgeProbe, EdgeDepth))
    assert len(trained) == 1
    assert trained[0]["train"].second is not None
    weights = mixing[mixing["statistic"] == "weight"]
    assert weights["value"].sum() == pytest.approx(1, abs=1e-5)
    assert weights["baseline"].eq(1 / 3).all()
    scores = mixing[mixing["statistic"] == "score"].sort_values("layer")
    deltas = mixing[mixing["statistic"] == "delta"].sort_values("layer")
    np.testing.assert_allclose(np.diff(scores["value"]), deltas["value"], atol=1e-9)
    table_of(EdgeProbe("arc-label", **{**EDGE, "seed": 1}), reader)
    assert len(trained) == 2
    of = depth.set_index("statistic")
    assert of.loc["center_of_gravity", "value"] == pytest.approx(center_of_gravity(weights["value"].to_numpy()))
    assert 0 <= of.loc["k_weights", "value"] <= np.log2(3)
    assert set(of.index) >= {"expected_layer", "k_differences", "headroom", "negative_mass", "entropy_weights"}


def test_edge_scores_and_depth_agree_with_predictions(reader):
    settings = {**EDGE, "seeds": 1}
    mixing = table_of(EdgeProbe("upos", **settings), reader)
    depth = table_of(EdgeDepth("upos", **settings), reader).set_index("statistic")
    scores = mixing[mixing["statistic"] == "score"].sort_values("layer")["value"].to_numpy()
    assert depth.loc["expected_layer", "value"] == pytest.approx(expected_layer(scores))
    assert depth.loc["headroom", "value"] == pytest.approx(scores.max() - scores[0])
    assert depth["warning"].nunique() == 1
    # A random model forgets: the embeddings alone are as good as all layers.
    assert "gains" in depth["warning"].iloc[0]


def test_structural_probe(reader, corpus):
    found = table_of(StructuralProbe(rank=4, seeds=2, epochs=3), reader)
    assert set(zip(found["structure"], found["metric"], strict=True)) == {
        ("distance", "uuas"), ("distance", "spearman"), ("depth", "root"), ("depth", "spearman"),
    }  # fmt: skip
    uuas = found[found["metric"] == "uuas"].set_index(["probe", "layer"])
    chain = uuas.loc[("chain", -1)]
    assert uuas["baseline"].eq(chain["value"]).all()
    test = scored_rows(reader.corpus)
    words = [[w for w, tag in enumerate(corpus[row].upos) if tag != "PUNCT"] for row in test]
    edges, beside = 0, 0
    for row, kept in zip(test, words, strict=True):
        place = {word: i for i, word in enumerate(kept)}
        heads = corpus[row].head
        gold = [(w, heads[w]) for w in kept if heads[w] in place]
        edges += len(gold)
        beside += sum(abs(place[w] - place[h]) == 1 for w, h in gold)
    assert chain["count"] == edges
    assert chain["value"] == pytest.approx(beside / edges)
    assert uuas.loc["structural"]["value"].between(0, 1).all()
    assert found[found["probe"] == "structural"]["capacity"].eq(4 * 36).all()
    assert found["no_tree"].eq(0).all()


def scored_rows(corpus):
    return np.flatnonzero(split_numbers(corpus.column("text"), 0, purpose="probing") < 0.2)


def test_what_is_no_tree_is_counted_and_told(tmp_path):
    trees = tiny.trees(60)
    heads = [list(sentence.head) for sentence in trees]
    for index in (3, 10):
        heads[index] = [-1] * len(heads[index])
    rows = {"words": [list(sentence.words) for sentence in trees], "head": heads}
    broken = Corpus.from_dataset(Dataset.from_dict(rows), text=None, words="words", tags=("head",))
    told = Notes()
    with use_display(told):
        found = table_of(StructuralProbe(seeds=1, epochs=1), tiny.reader_of(tiny.bert(trees), broken))
    assert found["no_tree"].eq(2).all()
    assert any("2 sentences" in text and "one tree" in text for text in told.notes)


class Notes:
    """A display that keeps what it is told."""

    def __init__(self):
        from infoflow.foundation import SilentDisplay

        self.notes, self.progress = [], SilentDisplay().progress

    def note(self, text):
        self.notes.append(text)

    def warn(self, text):
        self.notes.append(text)


MEASURES = [Codelength, EdgeProbe, EdgeDepth, StructuralProbe]


@pytest.mark.parametrize("measure", MEASURES)
def test_a_corpus_without_annotation_gives_an_empty_table(measure):
    corpus = text_only()
    assert len(table_of(measure(), tiny.reader_of(tiny.bert(corpus, size=60), corpus))) == 0


def test_settings_are_plain_and_results_come_through_measure(corpus, reader):
    for measure in MEASURES:
        assert describe_measure(measure())["seeds"] == 3
    tables = infoflow.measure(
        reader.model, corpus, [EdgeProbe(**EDGE), EdgeDepth(**EDGE), StructuralProbe(epochs=1, seeds=1)]
    )
    assert {name: len(table) > 0 for name, table in tables.items()} == {
        "probe_mixing": True, "probe_depth": True, "probe_trees": True,
    }  # fmt: skip


def test_an_unknown_task_is_refused(reader):
    with pytest.raises(UserError, match="No task"):
        Codelength("colour").run(reader, OPTIONS)
