"""The measure that picks sentences to show heads with."""

import base64
import json

import numpy as np
import pytest

from infoflow.flow import measure
from infoflow.heads import TellingSentences, restore, sentence_attention

KEYS = ["stack", "kind", "layer", "head"]


@pytest.fixture(scope="module")
def tables(matched_models, parallel_corpus):
    chosen = TellingSentences(sentences=3, pool=20, shortest=4, longest=20)
    return {
        name: measure(matched_models[name], parallel_corpus, [chosen])["head_examples"]
        for name in ("masked-lm", "translation")
    }


def attention_of(row):
    queries, keys = json.loads(row["queries"]), json.loads(row["keys"])
    weights = np.frombuffer(base64.b64decode(row["weights"]), np.uint8).reshape(len(queries), len(keys))
    return queries, keys, restore(weights)


def test_every_head_has_the_same_sentences_ranked_by_its_own_confidence(tables):
    for frame in tables.values():
        assert len(set(frame["sentence"])) == 3
        for _, own in frame.groupby(KEYS):
            assert own["rank"].tolist() == [0, 1, 2]
            assert own["confidence"].is_monotonic_decreasing


def test_confidence_is_the_mean_largest_weight_between_words(tables):
    for row in tables["translation"].to_dict("records"):
        queries, keys, weights = attention_of(row)
        largest = [
            max(weights[i, j] for j, (_, special) in enumerate(keys) if not special)
            for i, (_, special) in enumerate(queries)
            if not special
        ]
        assert row["confidence"] == pytest.approx(np.mean(largest), abs=1e-6)


def test_the_weights_are_those_of_the_sentence_alone(tables, matched_models, parallel_corpus):
    row = tables["translation"].query("kind == 'cross' and layer == 1 and head == 2").iloc[0]
    place = int(np.flatnonzero(parallel_corpus.ids == row["sentence"])[0])
    sentence = parallel_corpus[place]
    seen = sentence_attention(matched_models["translation"], sentence.text, sentence.translation)
    layer = seen.kinds[2].layers[1]
    np.testing.assert_array_equal(attention_of(row)[2], restore(layer.weights[2]))
    np.testing.assert_allclose(row["value_norms"], layer.value_norms[2], rtol=1e-6)


def test_a_corpus_of_long_sentences_gives_its_shortest(matched_models, parallel_corpus):
    frame = measure(matched_models["causal-lm"], parallel_corpus, [TellingSentences(sentences=2, longest=2)])
    lengths = {len(json.loads(queries)) for queries in frame["head_examples"]["queries"]}
    assert max(lengths) <= 4


def test_fewer_sentences_than_asked_for_are_all_taken(matched_models, parallel_corpus):
    frame = measure(matched_models["causal-lm"], parallel_corpus.select([0, 1]), [TellingSentences()])["head_examples"]
    assert set(frame["sentence"]) == set(parallel_corpus.ids[:2])
