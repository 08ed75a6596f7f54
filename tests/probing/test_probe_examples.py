"""Single examples: the same answers as the accuracies are made of, and a choice that hangs on the text alone."""

import numpy as np
import pytest

import infoflow
from infoflow.corpus import Corpus, generate_grammar, train_tokenizer
from infoflow.models import Model, load_model
from infoflow.objectives import Vocabulary, make_objective
from infoflow.probing import PROBE_EXAMPLES, Probe, ProbeExamples, train_probes
from infoflow.training import ModelConfig, build_models

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


def test_all_examples_of_sentences_are_the_accuracy(model, corpus, monkeypatch) -> None:
    """One example a sentence: the mean of all single ones is what `Probe` says."""
    monkeypatch.setattr("infoflow.subjects.probing.measures._probe_measure.MOST_EXAMPLES", 10**6)
    found = infoflow.measure(model, corpus, [Probe("length", **QUICK), ProbeExamples("length", **QUICK)])
    scores, examples = found["probe_scores"], found["probe_examples"]
    assert list(examples.columns) == PROBE_EXAMPLES.column_names
    own = scores[(scores["labels"] == "task") & (scores["words"] == "all") & (scores["metric"] == "accuracy")]
    means = examples.groupby("layer")["right"].agg(["mean", "size"])
    np.testing.assert_allclose(means["mean"], own.set_index("layer")["value"], atol=1e-12)
    assert set(means["size"]) == set(own["count"])
    sure = examples[examples["right"] > 0.5]
    assert sure["said"].tolist() == sure["gold"].tolist()
    never = examples[examples["right"] == 0]
    assert not {*zip(never["said"], never["gold"], strict=True)} & {(name, name) for name in never["gold"]}


def test_probes_are_trained_once_for_both(model, corpus, monkeypatch) -> None:
    calls = []
    monkeypatch.setattr(
        "infoflow.subjects.probing.measures._layers.train_probes",
        lambda *given: calls.append(1) or train_probes(*given),
    )
    both = infoflow.measure(model, corpus, [Probe("upos", **QUICK), ProbeExamples("upos", **QUICK)])
    assert len(calls) == 1
    alone = infoflow.measure(model, corpus, [ProbeExamples("upos", **QUICK)])
    assert len(calls) == 2
    assert alone["probe_examples"].equals(both["probe_examples"])
    assert infoflow.measure(model, corpus, [Probe("upos", **QUICK)])["probe_scores"]["value"].equals(
        both["probe_scores"]["value"]
    )


def test_spans_are_the_words_that_are_asked_about(model, corpus) -> None:
    found = infoflow.measure(model, corpus, [ProbeExamples("arc-label", **QUICK)])["probe_examples"]
    heads = {sentence.text: sentence for sentence in corpus}
    for row in found[found["layer"] == 0].to_dict("records"):
        sentence = heads[row["text"]]
        dependent, head = row["first_start"], row["second_start"]
        assert sentence.deprel[dependent] == row["gold"]
        assert sentence.head[dependent] == head
    assert len(set(found["text"])) == len(set(found["example"]))  # one of a sentence


def test_a_corpus_without_the_column_gives_no_rows(model, parallel_corpus) -> None:
    found = infoflow.measure(model, parallel_corpus, [ProbeExamples("upos")])["probe_examples"]
    assert found.empty
