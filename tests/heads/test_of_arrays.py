"""A statistic of heads is one class: over a corpus and of the arrays of the same corpus it gives the same numbers."""

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.heads import (
    Confidence,
    Entropy,
    HeadDistance,
    PositionalScores,
    RareTokenScores,
    RelationScores,
    SurfaceStatistics,
)

NUM = 12
ROLES = ("special", "cls", "sep", "bos", "eos", "punctuation")


@pytest.fixture(scope="module")
def reader():
    corpus = tiny.trees(NUM)
    return tiny.reader_of(tiny.bert(20 * list(corpus), size=5000), corpus)  # every word is one token


@pytest.fixture(scope="module")
def given(reader):
    return tiny.batch_of(reader, np.arange(NUM))


def attention_and_stream(given):
    return next(iter(given.attention.values())), given.streams["encoder"]


def streamed(statistic, reader):
    return tiny.run(statistic, reader, [np.arange(NUM)])


@pytest.mark.parametrize("average", ["micro", "document"])
@pytest.mark.parametrize("cls", [Confidence, Entropy, PositionalScores])
def test_means_over_queries(cls, average, reader, given):
    attention, stream = attention_and_stream(given)
    found = cls(average=average).of(attention, stream.valid)
    expected = streamed(cls(average=average), reader)["value"].to_numpy()
    np.testing.assert_allclose(found.flatten(), expected, rtol=1e-5)


@pytest.mark.parametrize("average", ["per_query", "per_sentence"])
def test_rare_tokens(average, reader, given):
    attention, stream = attention_and_stream(given)
    settings = {"rarest": (1, 2), "top": 10, "average": average}
    found = RareTokenScores(**settings).of(attention, stream.valid, reader.ranks["encoder"][stream.input_ids])
    np.testing.assert_allclose(found.flatten(), streamed(RareTokenScores(**settings), reader)["value"], rtol=1e-5)


def test_surface(reader, given):
    attention, stream = attention_and_stream(given)
    tokenizer = reader.model.tokenizer
    names = {"cls": tokenizer.cls_token_id, "sep": tokenizer.sep_token_id}
    dots = torch.tensor([[tokenizer.decode([i]).strip() in (".", ",") for i in row] for row in stream.input_ids])
    roles = {name: stream.input_ids == number for name, number in names.items()}
    roles |= {"special": stream.real & ~stream.valid, "punctuation": dots}
    found = SurfaceStatistics().of(attention, stream.real, roles).flatten()
    expected = streamed(SurfaceStatistics(punctuation=(".", ",")), reader)["value"]
    np.testing.assert_allclose(found[~found.isnan()], expected, rtol=1e-5)
    bare = SurfaceStatistics().of(attention, stream.real)
    assert bare.isnan().sum(2).eq(len(ROLES) + 1).all()  # no masks but punctuation's, which is 0; no separators


def test_distances(reader, given):
    attention, stream = attention_and_stream(given)
    found = HeadDistance(smoothing=0.001).of(attention, stream.real)
    table = streamed(HeadDistance(sentences=NUM, smoothing=0.001), reader)
    first, second = np.triu_indices(len(found), k=1)
    np.testing.assert_allclose(found[first, second], table["total"], rtol=1e-4)


@pytest.mark.parametrize("multi", ["per_edge", "any"])
def test_relations_where_a_word_is_a_token(multi, reader, given):
    attention, stream = attention_and_stream(given)
    sentences = list(reader.corpus)
    assert [len(sentence.words) for sentence in sentences] == stream.valid.sum(1).tolist()
    governors = torch.full(stream.valid.shape, -1)
    labels = []
    for b, sentence in enumerate(sentences):
        heads = torch.tensor(sentence.head)
        governors[b, 1 : 1 + len(heads)] = heads + (heads >= 0)  # after [CLS]
        labels.append(["", *sentence.deprel])
    settings = {"minimum": 1, "multi": multi}
    keys = ["convention", "relation", "direction", "layer", "head"]
    found = RelationScores(**settings).of(attention, stream.valid, governors, labels).set_index(keys).sort_index()
    expected = streamed(RelationScores(**settings), reader).set_index(keys).sort_index()
    assert found.index.equals(expected.index)
    assert len(found) > 0
    np.testing.assert_allclose(found["accuracy"], expected["value"], rtol=1e-6)
    np.testing.assert_allclose(found["baseline"], expected["baseline"])
    assert (found["count"] == expected["count"]).all()
