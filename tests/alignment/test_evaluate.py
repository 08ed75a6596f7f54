"""The table `alignment`: its numbers against slow ones, and what it must show."""

import copy
import dataclasses

import numpy as np
import pandas as pd
import pytest
import torch

from infoflow.alignment import (
    ALIGNMENT,
    AlignedEncoder,
    EvaluationOptions,
    ExplicitConfig,
    HeldOutWords,
    IdentityLinks,
    LinkedSentences,
    align_with_controls,
    encoder_of,
    evaluate_alignment,
    least_squares_map,
    linearly_aligned,
    linked_vectors,
    retrieval_hits,
)
from infoflow.foundation import UserError
from infoflow.representations import average_similarity, rsa, self_similarity

OPTIONS = EvaluationOptions(words=500, retrieval_words=60, rsa_words=80, least=3)


# Eighty words in sixteen dimensions: what the warning says does not matter here.
pytestmark = pytest.mark.filterwarnings("ignore:.*make unrelated layers look alike")


@pytest.fixture(scope="module")
def parts(parallel_corpus):
    return parallel_corpus.select(np.arange(25)), parallel_corpus.select(np.arange(25, 40))


@pytest.fixture(scope="module")
def aligned(masked, narrow, parts, tmp_path_factory):
    config = ExplicitConfig(learning_rate=5e-3, batch_sentences=5, epochs=12)
    return align_with_controls(masked, narrow, parts[0], tmp_path_factory.mktemp("aligned"), config=config)


@pytest.fixture(scope="module")
def table(aligned, masked, narrow, parts):
    return evaluate_alignment(aligned, masked, narrow, parts[1], options=OPTIONS)


def one(table, kind, metric, states="mapped"):
    (row,) = table[(table.kind == kind) & (table.metric == metric) & (table.states == states)].to_dict("records")
    return row


def test_the_table_is_complete(table):
    assert list(table.columns) == ALIGNMENT.column_names
    kinds = {"aligned", "unaligned", "shuffled", "regulariser only"}
    assert set(table.kind) == kinds | {"target"}
    scores = table[table.kind != "target"].groupby("kind")
    assert (scores.size() == 3 + 4 + 2 * 3 + 2).all()
    assert table.baseline.notna().all()
    assert (table["count"] > 0).all()
    assert set(table.source_model) == {"masked-lm/seed-0"}
    assert set(table.target_model) == {"narrow"}


def held_out(aligned, masked, narrow, corpus):
    """Mapped words, target words: sentence by sentence, last tokens found by hand."""
    sentences = LinkedSentences(masked, narrow, corpus, IdentityLinks())
    mapped, wanted = {}, {}
    for row in range(len(corpus)):
        batch = sentences.batch(np.array([row]))
        f = aligned(batch.source.input_ids, batch.source.real)[0]
        g = encoder_of(narrow)(input_ids=batch.target.input_ids).last_hidden_state[0]
        for word in range(len(corpus[row].text.split())):
            last = [max(np.flatnonzero(side.words[0].numpy() == word)) for side in (batch.source, batch.target)]
            mapped[row, word], wanted[row, word] = f[last[0]].detach(), g[last[1]].detach()
    return mapped, wanted


def test_mse_is_the_mean_over_words(table, aligned, masked, narrow, parts):
    mapped, wanted = held_out(aligned["aligned"], masked, narrow, parts[1])
    errors = [float((mapped[at] - wanted[at]).square().mean()) for at in mapped]
    found = one(table, "aligned", "mse")
    assert found["value"] == pytest.approx(np.mean(errors), rel=1e-5)
    assert found["count"] == len(errors)
    y = torch.stack(list(wanted.values()))
    assert found["baseline"] == pytest.approx(float((y - y.mean(0)).square().mean()), rel=1e-5)


def test_similarities_and_retrieval_are_those_of_the_functions(aligned, masked, narrow, parts):
    options = dataclasses.replace(OPTIONS, words=70, retrieval_words=70, rsa_words=70)
    table = evaluate_alignment({"aligned": aligned["aligned"]}, masked, narrow, parts[1], options=options)
    sentences = LinkedSentences(masked, narrow, parts[1], IdentityLinks())
    words = HeldOutWords.read(sentences, narrow, 70, "last")
    layers, mapped = words.of(aligned["aligned"], masked)
    slow, wanted = held_out(aligned["aligned"], masked, narrow, parts[1])
    row = {int(sentence): index for index, sentence in enumerate(parts[1].content_ids)}
    order = [(row[int(s)], int(w)) for s, w in zip(words.sentence_ids, words.places, strict=True)]
    x, y = (torch.stack([side[at] for at in order]) for side in (slow, wanted))
    torch.testing.assert_close(torch.from_numpy(mapped.states(0)), x)
    assert one(table, "aligned", "rsa")["value"] == pytest.approx(rsa(x, y), abs=1e-4)
    forward, backward = (float(hits.mean()) for hits in retrieval_hits(x, y))
    assert one(table, "aligned", "retrieval forward")["value"] == pytest.approx(forward)
    assert one(table, "aligned", "retrieval backward")["value"] == pytest.approx(backward)
    assert one(table, "aligned", "retrieval forward")["baseline"] == pytest.approx(1 / 70)
    top = layers.states(layers.num_states - 1)
    assert one(table, "aligned", "rsa", "encoder")["value"] == pytest.approx(rsa(top, y), abs=1e-4)


def test_curves_and_gaps(table, aligned, masked, narrow, parts):
    sentences = LinkedSentences(masked, narrow, parts[1], IdentityLinks())
    words = HeldOutWords.read(sentences, narrow, 500, "last")
    layers, _ = words.of(aligned["aligned"], masked)
    texts = {int(i): s.text.split() for i, s in zip(parts[1].content_ids, parts[1], strict=True)}
    names = np.array([texts[int(s)][int(w)] for s, w in zip(words.sentence_ids, words.places, strict=True)])

    def curves(sample):
        average, own = [], []
        for layer in range(sample.num_states):
            states = sample.states(layer)
            average.append(average_similarity(states))
            groups = [states[names == name] for name in set(names)]
            own.append(np.mean([self_similarity(group) for group in groups if len(group) >= 3]))
        return np.array([average, own])

    mine, target = curves(layers), curves(words.target)
    for index, metric in enumerate(("average similarity", "self-similarity")):
        for kind, curve in (("aligned", mine[index]), ("target", target[index])):
            rows = table[(table.kind == kind) & (table.metric == metric)].sort_values("layer")
            np.testing.assert_allclose(rows.value, curve, atol=1e-5)
        at_depth = np.interp([0, 0.5, 1], np.linspace(0, 1, 4), target[index])  # 2 layers beside 3
        gap = one(table, "aligned", f"{metric} gap", "encoder")
        assert gap["value"] == pytest.approx(np.abs(mine[index] - at_depth).mean(), abs=1e-5)
        assert gap["baseline"] == pytest.approx(np.abs(at_depth).mean(), abs=1e-5)
        assert gap["layer"] == -1


def test_aligned_beats_unaligned_beats_shuffled(table):
    """Random target states follow their words linearly, so only the order to the controls is sure."""
    mse = {kind: one(table, kind, "mse")["value"] for kind in set(table.kind) - {"target"}}
    assert mse["aligned"] < mse["shuffled"]
    assert mse["unaligned"] < mse["shuffled"] < mse["regulariser only"]
    find = {kind: one(table, kind, "retrieval forward")["value"] for kind in mse}
    assert find["aligned"] > find["shuffled"]
    assert find["unaligned"] > find["shuffled"]


def test_an_encoder_is_its_own_best_alignment(masked, parts):
    identity = torch.nn.Linear(32, 32)
    with torch.no_grad():
        identity.weight.copy_(torch.eye(32))
        identity.bias.zero_()
    itself = AlignedEncoder(copy.deepcopy(encoder_of(masked)).eval(), identity)
    table = evaluate_alignment({"aligned": itself}, masked, masked, parts[1], options=OPTIONS)
    assert one(table, "aligned", "mse")["value"] == pytest.approx(0, abs=1e-10)
    for metric in ("rsa", "pwcca"):
        assert one(table, "aligned", metric)["value"] == pytest.approx(1, abs=1e-6)
    for way in ("forward", "backward"):  # not 1: CSLS may prefer a vector close by that is no hub
        assert one(table, "aligned", f"retrieval {way}")["value"] > 0.9
    for metric in ("average similarity gap", "self-similarity gap"):
        assert one(table, "aligned", metric, "encoder")["value"] == pytest.approx(0, abs=1e-6)


def test_the_unaligned_map_is_least_squares_on_the_training_words(masked, narrow, parts):
    sentences = LinkedSentences(masked, narrow, parts[0], IdentityLinks())
    found = linearly_aligned(masked, narrow, sentences, ExplicitConfig(), words=10_000)
    before = AlignedEncoder(copy.deepcopy(encoder_of(masked)).eval(), torch.nn.Linear(32, 16))
    x, y = linked_vectors(sentences, before, narrow, 10_000)
    assert len(x) == sum(len(sentence.text.split()) for sentence in parts[0])
    torch.testing.assert_close(found.projection.weight, least_squares_map(x, y).module().weight)
    assert len(linked_vectors(sentences, before, narrow, 10)[0]) == 10


def test_fewer_words_are_the_first_of_more(masked, narrow, parts):
    sentences = LinkedSentences(masked, narrow, parts[1], IdentityLinks())
    few, many = (HeldOutWords.read(sentences, narrow, num, "last") for num in (20, 60))
    assert few.sentence_ids.tolist() == many.sentence_ids[:20].tolist()
    np.testing.assert_array_equal(few.target.states(1), many.target.states(1)[:20])


def test_sentences_without_links_are_named(aligned, masked, narrow, parts):
    class NoLinks(IdentityLinks.__mro__[1]):
        name, key = "none", "none"

        def of(self, sentence_id, source_words, target_words):
            return np.empty((0, 2), dtype=np.int64)

    with pytest.raises(UserError, match="No word of the 15 held-out sentences"):
        evaluate_alignment(aligned, masked, narrow, parts[1], links=NoLinks(), options=OPTIONS)
    with pytest.raises(UserError, match="at least one"):
        evaluate_alignment({}, masked, narrow, parts[1], options=OPTIONS)


def test_intervals_hold_their_values(table):
    assert (table.low <= table.value + 1e-9).all()
    assert (table.high >= table.value - 1e-9).all()
    assert isinstance(table, pd.DataFrame)
