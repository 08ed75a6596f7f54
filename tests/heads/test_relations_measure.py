"""Syntactic heads over a corpus, against loops over single edges."""

from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import Dataset
from support import tiny_heads as tiny

from infoflow.corpus import Corpus
from infoflow.heads import RelationScores, word_attention

NUM = 20


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(NUM)


@pytest.fixture(scope="module", params=["bert", "llama"])
def reader(request, corpus):
    return tiny.reader_of(getattr(tiny, request.param)(corpus), corpus)


def words_by_hand(weights, words, merge):
    """(H, W, W) of one sentence."""
    spans = [[t for t, w in enumerate(words) if w == word] for word in range(max(words) + 1)]
    table = torch.zeros(weights.shape[0], len(spans), len(spans), dtype=torch.float64)
    for u, queries in enumerate(spans):
        queries = queries[:1] if merge == "first" else queries
        for v, keys in enumerate(spans):
            table[:, u, v] = sum(weights[:, i, keys].double().sum(1) for i in queries) / len(queries)
    return table


def predictions(table, convention, direction):
    """Of each head and word: the word it answers with."""
    table = table.clone()
    if convention == "clark":
        for w in range(table.shape[1]):
            table[:, w, w] = 0
        if direction == "head→dependent":
            return table.argmax(1)
    return table.argmax(2)


def by_definition(reader, convention, direction, merge="mean", multi="per_edge"):
    """(hits, count, baseline) by (layer, head, relation)."""
    causal = reader.model.anatomy.stacks[0].causal
    hits, groups, offsets, clamped = Counter(), Counter(), {}, {}
    for row in range(NUM):
        sentence = reader.corpus[row]
        given = tiny.batch_of(reader, np.array([row]))
        words = next(iter(given.streams.values())).words[0].tolist()
        layers = [words_by_hand(weights[0], words, merge) for weights in next(iter(given.attention.values()))]
        answers = [predictions(table, convention, direction) for table in layers]
        done = set()
        for d, (g, label) in enumerate(zip(sentence.head, sentence.deprel, strict=True)):
            labels = [label] if convention == "voita" else [*({label} - {"root", "punct"}), "all"]
            up = direction == "dependent→head"
            attending, attended = (d, g) if up else (g, d)
            if (g < 0 and (convention == "voita" or causal)) or (causal and attended > attending):
                continue
            start, goal = (attending, attended) if convention == "voita" else (d, g)
            for name in labels:
                unit = (row, start, name) if multi == "any" and convention == "voita" else (row, d, g, name)
                fresh = unit not in done
                done.add(unit)
                groups[name] += fresh
                offsets.setdefault(name, Counter())[goal - start] += g >= 0
                for o in range(-3, 3):
                    place = min(d + o, len(sentence.head) - 1)
                    clamped.setdefault(name, Counter())[o] += g >= 0 and place == g
                for layer, answer in enumerate(answers):
                    for head in range(answer.shape[0]):
                        if int(answer[head, start]) == goal:
                            key = (layer, head, name, *(unit if multi == "any" else (row, d, g)))
                            hits[key] = 1
    totals = Counter()
    for layer, head, name, *_ in hits:
        totals[layer, head, name] += 1
    best = {n: max((offsets if convention == "voita" else clamped)[n].values()) for n in groups}
    return totals, groups, best


@pytest.mark.parametrize(
    ("convention", "merge", "multi", "direction"),
    [
        ("voita", "mean", "per_edge", "head→dependent"),
        ("voita", "first", "any", "dependent→head"),
        ("clark", "mean", "per_edge", "head→dependent"),
        ("clark", "mean", "per_edge", "dependent→head"),
    ],
)
def test_agree_with_definition(reader, convention, merge, multi, direction):
    measure = RelationScores((convention,), minimum=5, subwords=merge, multi=multi)
    frame = tiny.run(measure, reader, [np.arange(NUM)])
    frame = frame[frame["direction"] == direction]
    hits, counts, best = by_definition(reader, convention, direction, merge, multi)
    assert set(frame["relation"]) == {name for name, count in counts.items() if count >= 5}
    assert ("all" in set(frame["relation"])) == (convention == "clark")
    for r in frame.itertuples():
        assert r.count == counts[r.relation]
        assert r.value == pytest.approx(hits[r.layer, r.head, r.relation] / r.count)
        assert r.baseline == pytest.approx(best[r.relation] / r.count)


@pytest.mark.parametrize("multi", ["per_edge", "any"])
def test_padding_and_batches_change_nothing(reader, multi):
    alone = tiny.run(RelationScores(minimum=5, multi=multi), reader, [np.array([row]) for row in range(NUM)])
    for left in (False, True):
        frame = tiny.run(RelationScores(minimum=5, multi=multi), reader, [np.arange(11), np.arange(11, NUM)], left)
        for column in ("value", "low", "high", "baseline", "count"):
            np.testing.assert_allclose(frame[column], alone[column], atol=1e-9)


def test_merging_states_loses_nothing(reader):
    whole, first, second = (RelationScores(minimum=5) for _ in range(3))
    expected = tiny.run(whole, reader, [np.arange(NUM)])
    tiny.run(first, reader, [np.arange(12)])
    tiny.run(second, reader, [np.arange(12, NUM)])
    restored = RelationScores(minimum=5)
    restored.prepare(reader)
    restored.load_state_dict(second.state_dict())
    first.merge(restored)
    np.testing.assert_allclose(first.result()["value"], expected["value"])
    np.testing.assert_allclose(first.result()["low"], expected["low"])


def test_a_perfect_head_in_each_direction(corpus):
    """A head that attends from every dependent to its governor, and one that does the reverse."""
    reader = tiny.reader_of(tiny.bert(corpus, heads=2), corpus)
    given = tiny.batch_of(reader, np.arange(NUM))
    weights = torch.zeros_like(given.attention["encoder", "self"][0])
    words = given.streams["encoder"].words
    for b in range(NUM):
        for d, g in enumerate(corpus[b].head):
            dependent, governor = (torch.nonzero(words[b] == w).ravel() for w in (d, max(g, 0)))
            weights[b, 0, dependent, governor[0]] = 1
            weights[b, 1, governor, dependent[0]] = 1 / (1 + corpus[b].head.count(g))
    measure = RelationScores(minimum=5)
    measure.prepare(reader)
    measure.update(replace(given, attention={("encoder", "self"): [weights]}))
    frame = measure.result()
    up = frame[(frame["direction"] == "dependent→head") & (frame["head"] == 0) & (frame["relation"] != "all")]
    assert up["value"].eq(1).all()
    clark_down = frame[
        (frame["direction"] == "head→dependent") & (frame["head"] == 1) & (frame["convention"] == "clark")
    ]
    assert clark_down.loc[clark_down["relation"] != "all", "value"].eq(1).all()
    everything = clark_down[clark_down["relation"] == "all"].iloc[0]
    words = sum(len(corpus[b].head) for b in range(NUM))
    assert everything["count"] == words
    assert everything["value"] == pytest.approx(1 - NUM / words)  # roots are never predicted


def test_the_possessors_clitic_answers_for_it():
    text = {"text": ["John 's dog"], "words": [["John", "'s", "dog"]], "head": [[2, 0, -1]]}
    text["deprel"] = [["nmod:poss", "case", "root"]]
    corpus = Corpus.from_dataset(
        Dataset.from_dict(text).select([0] * 8), text="text", words="words", tags=("head", "deprel")
    )
    reader = tiny.reader_of(tiny.bert(corpus, heads=1, size=60, layers=1), corpus)
    given = tiny.batch_of(reader, np.arange(8))
    words = given.streams["encoder"].words[0]
    weights = torch.zeros_like(given.attention["encoder", "self"][0])
    clitic, owner, owned = (torch.nonzero(words == w).ravel() for w in (1, 0, 2))
    weights[:, :, clitic[:, None], owned[0]] = 1.0
    weights[:, :, owner[:, None], clitic[0]] = 1.0
    measure = RelationScores(("clark",), minimum=1)
    measure.prepare(reader)
    measure.update(replace(given, attention={("encoder", "self"): [weights]}))
    frame = measure.result().set_index(["relation", "direction"])
    assert frame.loc[("nmod:poss", "dependent→head"), "value"] == 1


@pytest.mark.parametrize("merge", ["mean", "first"])
def test_words_are_sums_over_keys_and_means_over_queries(reader, merge):
    given = tiny.batch_of(reader, np.arange(6))
    (stream,) = given.streams.values()
    weights = next(iter(given.attention.values()))[0]
    weights = torch.where(stream.real[:, None, :, None], weights, torch.nan)  # rows of padding may hold anything
    merged = word_attention(weights, stream.words, merge)
    for b in range(6):
        words = stream.words[b][stream.real[b]].tolist()
        expected = words_by_hand(weights[b][:, stream.real[b]][:, :, stream.real[b]], words, merge)
        size = expected.shape[1]
        torch.testing.assert_close(merged[b, :, :size, :size].double(), expected, atol=1e-6, rtol=0)
        assert merged[b, :, size:].abs().sum() == 0
    assert merged.sum(3).max() <= 1 + 1e-5


def test_a_corpus_without_trees_gives_no_rows(parallel_corpus, matched_models):
    reader = tiny.reader_of(matched_models["masked-lm"], parallel_corpus)
    assert tiny.run(RelationScores(), reader, [np.arange(5)]).empty
