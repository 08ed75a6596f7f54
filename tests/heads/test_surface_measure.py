"""Surface statistics of heads, against loops over single attention rows."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.corpus import Corpus
from infoflow.heads import Confidence, SurfaceStatistics


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(24)


@pytest.fixture(scope="module", params=["bert", "llama"])
def reader(request, corpus):
    return tiny.reader_of(getattr(tiny, request.param)(corpus), corpus)


def by_definition(reader, rows, smoothing=1e-4):
    """Sums and counts by (layer, head, statistic), one attention row at a time."""
    sums, counts = {}, {}
    tokenizer = reader.model.tokenizer
    marks = [i for i in range(len(tokenizer)) if tokenizer.decode([i]).strip() in (".", ",")]
    causal = reader.model.anatomy.stacks[0].causal
    for row in rows:
        given = tiny.batch_of(reader, np.array([row]))
        (stream,) = given.streams.values()
        ids = stream.input_ids[0].tolist()
        n = len(ids)
        groups = {
            "special": [j for j in range(n) if not stream.valid[0, j]],
            "cls": [j for j in range(n) if ids[j] == tokenizer.cls_token_id],
            "sep": [j for j in range(n) if ids[j] == tokenizer.sep_token_id],
            "punctuation": [j for j in range(n) if ids[j] in marks],
        }
        for layer, weights in enumerate(next(iter(given.attention.values()))):
            for head in range(weights.shape[1]):
                for i in range(n):
                    a = weights[0, head, i].double().tolist()
                    keys = range(i + 1) if causal else range(n)
                    smooth = [(1 - smoothing) * a[j] + smoothing / len(keys) for j in keys]
                    scores = {
                        "self": a[i],
                        "previous": a[i - 1] if i else 0.0,
                        "next": a[i + 1] if i + 1 in keys else 0.0,
                        "first": a[0],
                        "last": a[n - 1],
                        "entropy": -sum(x * math.log(x) for x in smooth),
                    }
                    scores |= {
                        name: sum(a[j] for j in group)
                        for name, group in groups.items()
                        if group or name == "punctuation"
                    }
                    scores["sep_to_sep" if i in groups["sep"] else "rest_to_sep"] = scores["sep"]
                    if i == 0:
                        scores["first_token_entropy"] = scores["entropy"]
                    for name, score in scores.items():
                        sums[layer, head, name] = sums.get((layer, head, name), 0) + score
                        counts[layer, head, name] = counts.get((layer, head, name), 0) + 1
    return {key: (sums[key] / counts[key], counts[key]) for key in sums}


def test_agree_with_definition(reader):
    frame = tiny.run(SurfaceStatistics(), reader, [np.arange(12)])
    expected = by_definition(reader, range(12))
    assert {(r.layer, r.head, r.statistic) for r in frame.itertuples()} == set(expected)
    for r in frame.itertuples():
        value, count = expected[r.layer, r.head, r.statistic]
        assert r.value == pytest.approx(value, abs=2e-6), r.statistic
        assert r.count == count
        assert r.low <= r.value <= r.high


@pytest.mark.parametrize("average", ["micro", "document"])
def test_padding_and_batches_change_nothing(reader, average):
    alone = tiny.run(SurfaceStatistics(average=average), reader, [np.array([row]) for row in range(12)])
    for left in (False, True):
        frame = tiny.run(SurfaceStatistics(average=average), reader, [np.arange(7), np.arange(7, 12)], left)
        for column in ("value", "low", "high", "baseline", "count"):
            np.testing.assert_allclose(frame[column], alone[column], atol=1e-5)


def test_averages_over_documents(reader):
    frame = tiny.run(SurfaceStatistics(average="document"), reader, [np.arange(5)])
    singles = [tiny.run(SurfaceStatistics(), reader, [np.array([row])]) for row in range(5)]
    np.testing.assert_allclose(frame["value"], np.mean([s["value"] for s in singles], axis=0), atol=1e-6)
    assert frame["count"].eq(5).all()


@pytest.mark.parametrize("batches", [[[0, 1, 2, 3]], [[3, 0], [2], [1]]])
def test_a_sentence_without_punctuation_has_no_attention_on_it(batches, tmp_path):
    (tmp_path / "four.txt").write_text("a dog sees , hears .\na dog sees\nthe dogs\nthe dog , the cat\n")
    corpus = Corpus.from_text(tmp_path / "four.txt")
    reader = tiny.reader_of(tiny.bert(corpus), corpus)
    marks = set(reader.model.tokenizer.convert_tokens_to_ids([",", ".", "▁,", "▁."]))
    measures = {average: SurfaceStatistics(average=average) for average in ("micro", "document")}
    frames = {
        average: tiny.run(measure, reader, [np.array(rows) for rows in batches])
        for average, measure in measures.items()
    }
    shares, lengths = [], []
    for row in range(4):  # Clark et al.: sum(A * selector) / n for each document, then the mean
        given = tiny.batch_of(reader, np.array([row]))
        (stream,), (layers,) = given.streams.values(), given.attention.values()
        ids = stream.input_ids[0].tolist()
        selector = torch.tensor([float(token in marks) for token in ids])
        shares.append([[float((a * selector).sum()) / len(ids) for a in weights[0]] for weights in layers])
        lengths.append(len(ids))
        assert bool(selector.any()) == (row in (0, 3))
    expected = {"document": np.mean(shares, axis=0), "micro": np.average(shares, axis=0, weights=lengths)}
    for average, frame in frames.items():
        rows = frame[frame["statistic"] == "punctuation"].sort_values(["layer", "head"])
        np.testing.assert_allclose(rows["value"], expected[average].ravel(), atol=1e-6)
        assert rows["count"].eq(4 if average == "document" else sum(lengths)).all()
        special = frame[frame["statistic"] == "eos"]
        assert special.empty == (reader.model.tokenizer.eos_token_id is None)


def test_the_baseline_is_uniform_attention(reader):
    measure = SurfaceStatistics()
    measure.prepare(reader)
    given = tiny.batch_of(reader, np.arange(8))
    (key,) = given.attention
    real = next(iter(given.streams.values())).real
    allowed = real[:, None, :] & real[:, :, None]
    if given.model.anatomy.stacks[0].causal:
        allowed &= torch.ones(allowed.shape[1:]).tril().bool()
    uniform = (allowed / allowed.sum(2, keepdim=True).clamp(min=1))[:, None].expand_as(given.attention[key][0])
    measure.update(replace(given, attention={key: [uniform] * 2}))
    frame = measure.result()
    np.testing.assert_allclose(frame["value"], frame["baseline"], atol=1e-6)


def test_excluded_roles_are_neither_key_nor_query(corpus):
    reader = tiny.reader_of(tiny.bert(corpus), corpus)
    plain = tiny.run(Confidence(), reader, [np.arange(8)])
    by_name = tiny.run(Confidence(("cls", "sep"), ("cls", "sep")), reader, [np.arange(8)])
    np.testing.assert_allclose(by_name["value"], plain["value"])
    kept = tiny.run(Confidence((), ()), reader, [np.arange(8)])
    assert kept["count"].iloc[0] == plain["count"].iloc[0] + 16  # CLS and SEP of eight sentences
    without_keys = tiny.run(SurfaceStatistics(exclude_keys=("sep", "punctuation", "a")), reader, [np.arange(8)])
    assert without_keys.loc[without_keys["statistic"] == "sep", "value"].eq(0).all()
    assert without_keys.loc[without_keys["statistic"] == "punctuation", "value"].max() == 0
    assert without_keys.loc[without_keys["statistic"] == "cls", "value"].min() > 0
    everything = tiny.run(SurfaceStatistics(), reader, [np.arange(8)])
    assert (without_keys["value"] < everything["value"] + 1e-9)[without_keys["statistic"] == "self"].all()


def test_cross_attention_counts_source_tokens(matched_models, parallel_corpus):
    reader = tiny.reader_of(matched_models["translation"], parallel_corpus, decoder=True)
    measure = SurfaceStatistics()
    frame = tiny.run(measure, reader, [np.arange(10)])
    cross = frame[(frame["kind"] == "cross") & (frame["layer"] == 0) & (frame["head"] == 0)].set_index("statistic")
    given = tiny.batch_of(reader, np.arange(10))
    weights = given.attention["decoder", "cross"][0][:, 0]
    source, target = given.streams["encoder"], given.streams["decoder"]
    first = sum(float(weights[b, target.real[b], 0].sum()) for b in range(10)) / int(target.real.sum())
    assert cross.loc["first", "value"] == pytest.approx(first, abs=1e-6)
    on_special = weights.masked_fill(~(source.real & ~source.valid)[:, None], 0).sum(2)[target.real].mean()
    assert cross.loc["special", "value"] == pytest.approx(float(on_special), abs=1e-6)
    assert set(frame["kind"]) == {"self", "cross"}
