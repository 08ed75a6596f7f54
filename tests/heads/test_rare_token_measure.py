"""Rare-token heads over a corpus, against loops over single queries and the pure function."""

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.heads import RareTokenScores, rare_token_score

NUM = 14


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(NUM)


@pytest.fixture(scope="module", params=["bert", "llama"])
def reader(request, corpus):
    # Ranks come from another corpus: some tokens have never been seen.
    return tiny.reader_of(getattr(tiny, request.param)(corpus), corpus, ranks_from=tiny.trees(60, seed=5))


def by_definition(reader, measure, rarest, shuffled):
    """(hits, queries) of each sentence by (layer, head)."""
    causal = reader.model.anatomy.stacks[0].causal
    known, control = (table.tolist() for table in measure._ranks[reader.source_stack])
    sentences = []
    for row in range(NUM):
        given = tiny.batch_of(reader, np.array([row]))
        (stream,) = given.streams.values()
        valid = [j for j in range(stream.valid.shape[1]) if stream.valid[0, j]]
        ids = stream.input_ids[0].tolist()
        if max(known[ids[j]] for j in valid) <= measure.top:
            continue
        ranks = control if shuffled else known
        layers = next(iter(given.attention.values()))
        hits = np.zeros((len(layers), layers[0].shape[1]))
        for layer, weights in enumerate(layers):
            for head in range(weights.shape[1]):
                for i in valid:
                    keys = [j for j in valid if j <= i or not causal]
                    best = max(keys, key=lambda j: float(weights[0, head, i, j]))
                    types = sorted({ranks[ids[j]] for j in keys})[-rarest:]
                    hits[layer, head] += ranks[ids[best]] in types
        sentences.append((hits, len(valid)))
    return sentences


@pytest.mark.parametrize("average", ["per_query", "per_sentence"])
def test_agree_with_definition(reader, average):
    rarest = [
        reader.ranks[reader.source_stack][reader.padded(np.array([row])).streams[reader.source_stack].input_ids].max()
        for row in range(NUM)
    ]
    measure = RareTokenScores((1, 2), top=int(np.median(rarest)), average=average)
    frame = tiny.run(measure, reader, [np.arange(NUM)])
    for rarest in (1, 2):
        part = frame[frame["rarest"] == rarest]
        for column, shuffled in (("value", False), ("shuffled", True)):
            sentences = by_definition(reader, measure, rarest, shuffled)
            assert 0 < len(sentences) < NUM
            if average == "per_query":
                expected = sum(hits for hits, _ in sentences) / sum(n for _, n in sentences)
            else:
                expected = np.mean([hits / n for hits, n in sentences], axis=0)
            np.testing.assert_allclose(part[column], expected.ravel())
        assert part["count"].eq(sum(n for _, n in sentences) if average == "per_query" else len(sentences)).all()


def test_agree_with_the_pure_function(corpus):
    reader = tiny.reader_of(tiny.bert(corpus), corpus)
    frame = tiny.run(RareTokenScores(top=20), reader, [np.arange(NUM)])
    given = tiny.batch_of(reader, np.arange(NUM))
    stream = given.streams["encoder"]
    ranks = torch.from_numpy(reader.ranks["encoder"])[stream.input_ids]
    for rarest in (1, 2):
        expected = rare_token_score(given.attention["encoder", "self"], stream.valid, ranks, top=20, rarest=rarest)
        np.testing.assert_allclose(frame.loc[frame["rarest"] == rarest, "value"], expected.flatten(), rtol=1e-6)


def test_padding_and_batches_change_nothing(reader):
    alone = tiny.run(RareTokenScores(top=60), reader, [np.array([row]) for row in range(NUM)])
    for left in (False, True):
        frame = tiny.run(RareTokenScores(top=60), reader, [np.arange(9), np.arange(9, NUM)], left)
        for column in ("value", "low", "high", "baseline", "shuffled", "count"):
            np.testing.assert_allclose(frame[column], alone[column], atol=1e-9)


def test_cross_attention_looks_for_rare_source_tokens(matched_models, parallel_corpus):
    reader = tiny.reader_of(matched_models["translation"], parallel_corpus, decoder=True)
    frame = tiny.run(RareTokenScores(top=0), reader, [np.arange(20)])
    cross = frame[(frame["kind"] == "cross") & (frame["rarest"] == 1)]
    given = tiny.batch_of(reader, np.arange(20))
    source, target = given.streams["encoder"], given.streams["decoder"]
    ranks = torch.from_numpy(reader.ranks["encoder"])[source.input_ids].masked_fill(~source.valid, 0)
    weights = given.attention["decoder", "cross"][0][:, 0].masked_fill(~source.valid[:, None], -1)
    hit = ranks.gather(1, weights.argmax(2)) == ranks.amax(1, keepdim=True)
    assert cross["value"].iloc[0] == pytest.approx(float(hit[target.valid].double().mean()))


def test_a_corpus_of_frequent_tokens_has_no_value(corpus):
    reader = tiny.reader_of(tiny.bert(corpus), corpus)
    frame = tiny.run(RareTokenScores(top=10_000), reader, [np.arange(5)])
    assert frame["value"].isna().all()
    assert frame["count"].eq(0).all()
