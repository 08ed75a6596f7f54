"""Distances between heads over a corpus, against the pure function and a permutation by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny
from transformers import GptOssConfig, GptOssForCausalLM

from infoflow.heads import HeadDistance, HeadLayerDistance, js_distance
from infoflow.models import load_model

NUM = 14


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(NUM)


@pytest.fixture(scope="module", params=["bert", "llama"])
def reader(request, corpus):
    return tiny.reader_of(getattr(tiny, request.param)(corpus), corpus)


def matrix_of(reader, special, smoothing):
    """Sum over sentences of the pure function, each sentence alone; in causal models without smoothing the same."""
    total = 0
    for row in range(NUM):
        given = tiny.batch_of(reader, np.array([row]))
        (stream,) = given.streams.values()
        valid = stream.real if special else stream.valid
        total = total + js_distance(next(iter(given.attention.values())), valid, smoothing=smoothing).double()
    return total.numpy()


@pytest.mark.parametrize("special", [True, False])
def test_agree_with_the_pure_function(reader, special):
    causal = reader.model.anatomy.stacks[0].causal
    smoothing = 0.0 if causal else 1e-3
    frame = tiny.run(HeadDistance(smoothing=smoothing, special=special), reader, [np.arange(NUM)])
    expected = matrix_of(reader, special, smoothing)
    heads = reader.model.anatomy.stacks[0].layers[0].attentions["self"].num_heads
    assert len(frame) == len(expected) * (len(expected) - 1) // 2
    for r in frame.itertuples():
        a, b = r.layer_a * heads + r.head_a, r.layer_b * heads + r.head_b
        assert a < b
        assert r.total == pytest.approx(expected[a, b], rel=1e-4)
        assert r.distance == pytest.approx(r.total / r.count)
        assert r.low <= r.distance <= r.high


def test_padding_and_batches_change_nothing(reader):
    for measure in (HeadDistance, HeadLayerDistance):
        alone = tiny.run(measure(), reader, [np.array([row]) for row in range(NUM)])
        for left in (False, True):
            frame = tiny.run(measure(), reader, [np.arange(5), np.arange(5, NUM)], left)
            column = "distance" if measure is HeadDistance else "value"
            np.testing.assert_allclose(frame[column], alone[column], rtol=1e-4)


def test_within_and_between_layers(reader):
    pairs = tiny.run(HeadDistance(), reader, [np.arange(NUM)])
    layers = tiny.run(HeadLayerDistance(), reader, [np.arange(NUM)]).set_index("pairs")
    same = pairs["layer_a"] == pairs["layer_b"]
    assert layers.loc["within", "value"] == pytest.approx(pairs.loc[same, "distance"].mean())
    assert layers.loc["between", "value"] == pytest.approx(pairs.loc[~same, "distance"].mean())
    difference = layers.loc["between", "value"] - layers.loc["within", "value"]
    assert layers.loc["difference", "value"] == pytest.approx(difference)
    assert abs(layers.loc["difference", "baseline"]) < 0.05
    assert layers.loc["within", "baseline"] == pytest.approx(pairs["distance"].mean(), rel=0.1)


def test_only_the_sentences_of_lowest_hash_are_read(reader):
    few = tiny.run(HeadDistance(sentences=4), reader, [np.arange(NUM)])
    batches = tiny.run(HeadDistance(sentences=4), reader, [np.array([row]) for row in range(NUM)])
    every = tiny.run(HeadDistance(), reader, [np.arange(NUM)])
    assert few["count"].iloc[0] < every["count"].iloc[0]
    np.testing.assert_allclose(few["distance"], batches["distance"], rtol=1e-4)


def test_equal_heads_have_no_distance_and_merging_loses_nothing(reader):
    given = tiny.batch_of(reader, np.arange(NUM))
    (key,) = given.attention
    same = [weights[:, :1].expand_as(weights) for weights in given.attention[key][:1] * 2]
    measure = HeadDistance()
    measure.prepare(reader)
    measure.update(replace(given, attention={key: same}))
    assert measure.result()["distance"].max() < 1e-6
    first, second = HeadDistance(), HeadDistance()
    tiny.run(first, reader, [np.arange(6)])
    tiny.run(second, reader, [np.arange(6, NUM)])
    first.merge(second)
    whole = tiny.run(HeadDistance(), reader, [np.arange(NUM)])
    np.testing.assert_allclose(first.result()["distance"], whole["distance"], rtol=1e-4)


def test_a_learned_sink_is_one_more_key(corpus):
    tokenizer = tiny.tokenizer_of(corpus)
    size = {"hidden_size": 16, "intermediate_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "head_dim": 8}
    size |= {"num_key_value_heads": 2, "num_local_experts": 2, "num_experts_per_tok": 1, "initializer_range": 0.5}
    torch.manual_seed(0)
    module = GptOssForCausalLM(GptOssConfig(vocab_size=len(tokenizer), **size))
    reader = tiny.reader_of(load_model(module, tokenizer=tokenizer), corpus)
    frame = tiny.run(HeadDistance(smoothing=0.0), reader, [np.arange(NUM)])

    def entropy(p):
        return -(p * np.log(np.where(p > 0, p, 1))).sum()

    expected = 0.0
    for row in range(NUM):
        layers = next(iter(tiny.batch_of(reader, np.array([row])).attention.values()))
        heads = np.concatenate([layer[0].double().numpy() for layer in layers])
        heads = np.concatenate([heads, 1 - heads.sum(2, keepdims=True)], axis=2)
        assert heads[..., -1].max() > 0.1
        for a, b in zip(heads[0], heads[3], strict=True):
            expected += entropy((a + b) / 2) - (entropy(a) + entropy(b)) / 2
    found = frame[(frame["layer_a"] == 0) & (frame["head_a"] == 0) & (frame["layer_b"] == 1) & (frame["head_b"] == 1)]
    assert found["total"].item() == pytest.approx(expected, rel=1e-4)
