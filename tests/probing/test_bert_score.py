"""BERTScore of models: each pair alone, every layer, batches, baselines, correlations."""

import copy
import math
import warnings

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.foundation import UserError, replicate_weights
from infoflow.probing import BERT_SCORE, TextPairs, bert_baseline, bert_score, bert_score_tables, pearson_by_layer


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(60)


@pytest.fixture(scope="module")
def model(corpus):
    return tiny.bert(corpus)


@pytest.fixture(scope="module")
def pairs(corpus):
    texts = [sentence.text for sentence in corpus]
    return texts[:24], texts[24:48]


def slow_recall(model, candidate, reference, layer, weight):
    """The reference's tokens, each by the nearest of the candidate's; special tokens weigh nothing."""
    tokenizer, vectors, rows = model.tokenizer, [], []
    for text in (candidate, reference):
        ids = tokenizer(text)["input_ids"]
        with torch.no_grad():
            found = model.module(input_ids=torch.tensor([ids]), output_hidden_states=True).hidden_states[layer][0]
        vectors.append(found / found.norm(dim=1, keepdim=True))
        rows.append(ids)
    ends = (tokenizer.cls_token_id, tokenizer.sep_token_id)
    weights = [0.0 if token in ends else weight(token) for token in rows[1]]
    best = [max(float(a @ b) for b in vectors[0]) for a in vectors[1]]
    return sum(w * s for w, s in zip(weights, best, strict=True)) / sum(weights)


@pytest.mark.parametrize("idf", [False, True])
def test_scores_agree_with_definition(model, pairs, idf):
    found = bert_score(model, *pairs, idf=idf)
    assert found.layers == (0, 1, 2)
    rows = [set(ids) for ids in model.tokenizer(pairs[1])["input_ids"]]

    def weight(token):
        return math.log((len(rows) + 1) / (sum(token in row for row in rows) + 1)) if idf else 1.0

    for pair in (0, 7, 23):
        for layer in found.layers:
            for sides, score in ((pairs, found.recall), (pairs[::-1], found.precision)):
                expected = slow_recall(model, sides[0][pair], sides[1][pair], layer, weight)
                assert score[layer, pair] == pytest.approx(expected, abs=1e-5)
    p, r = found.precision, found.recall
    np.testing.assert_allclose(found.f, 2 * p * r / (p + r), atol=1e-6)


def test_batches_order_and_single_layers_change_nothing(model, pairs):
    whole = bert_score(model, *pairs)
    small = bert_score(model, *pairs, tokens_per_batch=30)
    np.testing.assert_allclose(whole.f, small.f, atol=1e-5)
    order = np.random.default_rng(0).permutation(24)
    moved = bert_score(model, *([side[i] for i in order] for side in pairs), layer=1)
    np.testing.assert_allclose(moved.f[0], whole.f[1, order], atol=1e-5)
    assert moved.blocks.tolist() == whole.blocks[order].tolist()


def test_a_sentence_agrees_with_itself_and_sides_can_be_swapped(model, pairs):
    same = bert_score(model, pairs[0], pairs[0])
    np.testing.assert_allclose([same.precision, same.recall, same.f], 1, atol=1e-5)
    there, back = bert_score(model, *pairs), bert_score(model, pairs[1], pairs[0])
    np.testing.assert_allclose(there.precision, back.recall, atol=1e-5)


@pytest.mark.parametrize("family", ["causal-lm", "translation"])
def test_other_layouts(matched_models, family):
    found = bert_score(matched_models[family], ["the cat", "a dog runs"], ["the cat", "old house"])
    assert found.f.shape == (3, 2)
    np.testing.assert_allclose(found.f[:, 0], 1, atol=1e-5)


def test_empty_sentences_score_nothing_and_are_told_of(model, pairs):
    with pytest.warns(UserWarning, match="1 sentences have no token"):
        found = bert_score(model, ["", pairs[0][0]], [pairs[1][0], pairs[1][1]])
    assert found.precision[:, 0].tolist() == [0, 0, 0]
    assert found.f[:, 0].tolist() == [0, 0, 0]
    assert (found.f[:, 1] != 0).all()


def test_an_idf_of_nothing_weighs_all_alike(model, pairs):
    text = pairs[0][0]
    with pytest.warns(UserWarning, match="idf is 0"):
        found = bert_score(model, [pairs[0][1]], [text], idf=True)
    assert np.isfinite(found.f).all()
    assert found.recall == pytest.approx(bert_score(model, [pairs[0][1]], [text]).recall)


def test_the_baseline_moves_random_pairs_to_zero(model, corpus):
    texts = [sentence.text for sentence in corpus]
    base = bert_baseline(model, texts, pairs=50)
    assert base.recall.shape == (3,)
    np.testing.assert_allclose(bert_score(model, texts[:5], texts[:5], rescale=base).f, 1, atol=1e-5)
    raw, moved = bert_score(model, texts[:5], texts[5:10]), bert_score(model, texts[:5], texts[5:10], rescale=base)
    np.testing.assert_allclose(moved.f, (raw.f - base.f[:, None]) / (1 - base.f[:, None]), atol=1e-6)
    one = bert_score(model, texts[:5], texts[5:10], layer=2, rescale=base)
    np.testing.assert_allclose(one.f[0], moved.f[2], atol=1e-5)
    again = bert_baseline(model, texts, pairs=50, tokens_per_batch=64)
    np.testing.assert_allclose(again.f, base.f, atol=1e-5)


@pytest.mark.parametrize("rescale", [False, True])
def test_intervals_stay_within_the_range_of_scores(model, pairs, rescale):
    same, other = pairs[0][:3], pairs[1][:1]
    few = TextPairs(name="few", candidates=(*same, *other), references=(*same, pairs[1][1]))
    rows = bert_score_tables(model, few, rescale=rescale, baseline_pairs=20)["bert_score_layers"]
    assert (rows["low"] < rows["value"]).all()
    assert (rows["value"] < rows["high"]).all()
    assert (rows["high"] <= 1).all()


def test_correlations_agree_with_numpy(model, pairs):
    found = bert_score(model, *pairs)
    human = found.f[1] + 0.01 * np.random.default_rng(3).normal(size=24)
    table = pearson_by_layer(found, human)
    assert table.columns.tolist() == BERT_SCORE.column_names
    for row in table.to_dict("records"):
        expected = np.corrcoef(getattr(found, row["score"])[row["layer"]], human)[0, 1]
        assert row["value"] == pytest.approx(expected, abs=1e-9)
        assert row["low"] <= row["value"] <= row["high"]
        assert abs(row["baseline"]) < 0.15
    of_f = table[table["score"] == "f"].set_index("layer")["value"]
    assert of_f.idxmax() == 1
    scaled = pearson_by_layer(found, 5 - 3 * human)
    np.testing.assert_allclose(scaled["value"], -table["value"], atol=1e-9)


def test_replicates_draw_pairs(model, pairs):
    """A replicate is the correlation over pairs that stand as often as their block was drawn."""
    found, human = bert_score(model, *pairs), np.arange(24.0)
    row = pearson_by_layer(found, human).iloc[2]
    times = replicate_weights()[0].astype(int)[found.blocks]
    drawn = np.corrcoef(np.repeat(found.f[0], times), np.repeat(human, times))[0, 1]
    assert row["replicates"][0] == pytest.approx(drawn, abs=1e-9)


def test_a_correlation_of_few_pairs_has_no_narrower_interval_than_fisher_s(model, pairs):
    found = bert_score(model, pairs[0][:10], pairs[1][:10])
    human = found.f[1] + 0.003 * np.random.default_rng(3).normal(size=10)
    for row in pearson_by_layer(found, human).to_dict("records"):
        fisher = np.tanh(np.arctanh(row["value"]) + np.array([-1, 1]) * 1.959964 / np.sqrt(7))
        assert -1 <= row["low"] <= fisher[0] + 1e-9 < row["value"] < fisher[1] - 1e-9 <= row["high"] <= 1


def test_bad_input_is_the_users_mistake(model, pairs, corpus):
    few = bert_score(model, pairs[0][:10], pairs[1][:10])
    four = bert_score(model, pairs[0][:4], pairs[1][:4])
    base = bert_baseline(model, list(pairs[0]), pairs=3)
    other = tiny.bert(corpus, seed=5)
    for call, message in (
        (lambda: bert_score(model, ["a"], []), "needs one reference"),
        (lambda: bert_score(model, [], []), "needs one reference"),
        (lambda: bert_score(model, "a", "b"), "lists of sentences"),
        (lambda: bert_score(model, ["a"], ["b"], layer=3), r"0\.\.2"),
        (lambda: bert_score(other, ["a"], ["b"], rescale=base), "another model"),
        (lambda: bert_score(model, ["a"], ["b"], idf=True, rescale=base), "another model"),
        (lambda: bert_baseline(model, ["a", "a"]), "different sentences"),
        (lambda: pearson_by_layer(few, [1.0, 2.0]), "one human score"),
        (lambda: pearson_by_layer(four, [1.0, 2.0, 3.0, 4.0]), "at least 10 pairs. Got 4 for 4 pairs"),
        (lambda: pearson_by_layer(few, [1.0] * 10), "differ"),
        (lambda: pearson_by_layer(few, [1.0, math.nan] * 5), "NaN"),
    ):
        with pytest.raises(UserError, match=message):
            call()


def test_broken_weights_are_told_of(model, pairs):
    broken = copy.deepcopy(model)
    next(broken.module.parameters()).data.fill_(math.nan)
    with warnings.catch_warnings(), pytest.raises(UserError, match="NaN"):
        bert_score(broken, pairs[0][:2], pairs[1][:2])
