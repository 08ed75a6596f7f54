"""Relevance of heads over a corpus."""

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.corpus import Corpus
from infoflow.flow import measure
from infoflow.foundation import UserError, block_of, replicate_weights
from infoflow.heads import Relevance, relevance

KEYS = ["stack", "kind", "layer", "head"]


def by_hand(model, corpus, chosen, **options):
    """Shares of each prediction of the chosen sentences: a frame of heads by prediction, and each one's sentence."""
    values, sentences, keys = [], [], None
    target = model.target_tokenizer or model.tokenizer
    for row in chosen:
        sentence = corpus[int(row)]
        ids = torch.tensor([model.tokenizer(sentence.text)["input_ids"]])
        batch = {"input_ids": ids}
        if model.task == "seq2seq":
            whole = torch.tensor([target(sentence.translation)["input_ids"]])
            batch["decoder_input_ids"] = whole[:, :-1]
        steps = range(batch.get("decoder_input_ids", ids).shape[1])
        if model.task == "masked-lm":
            steps = steps[1:-1]  # not [CLS] and [SEP]
        for position in steps:
            frame = relevance(model, batch, position=position, **options)
            keys = frame[KEYS]
            values.append(frame["relevance"].to_numpy())
            sentences.append(corpus.content_ids[int(row)])
    return keys, np.array(values), np.array(sentences)


@pytest.mark.parametrize("objective", ["translation", "masked-lm", "causal-lm"])
def test_mean_over_predictions_with_intervals_over_sentences(matched_models, parallel_corpus, objective):
    model = matched_models[objective]
    corpus = parallel_corpus.select(np.arange(6))
    table = measure(model, corpus, [Relevance("gradient-x-input", sentences=6, normalise="abs")])["head_relevance"]
    keys, values, sentences = by_hand(model, corpus, range(6), method="gradient-x-input", normalise="abs")
    assert table[KEYS].to_numpy().tolist() == keys.to_numpy().tolist()
    np.testing.assert_allclose(table["value"], values.mean(0), rtol=1e-4)
    assert (table["count"] == len(values)).all()
    assert (table["baseline"] == 0.25).all()
    weights = replicate_weights()[:, block_of(sentences)]
    with np.errstate(invalid="ignore"):  # six sentences lie in six blocks: a replicate may draw none
        replicates = (weights @ values) / weights.sum(1, keepdims=True)
    np.testing.assert_allclose(np.stack(table["replicates"].to_list()).T, replicates, rtol=1e-4)
    assert (table["low"] <= table["value"]).all()
    assert (table["high"] >= table["value"]).all()


def test_sentences_are_chosen_by_hash(matched_models, parallel_corpus):
    model = matched_models["masked-lm"]
    order = np.random.default_rng(0).permutation(len(parallel_corpus))
    tables = [
        measure(model, corpus, [Relevance(method="rollout", sentences=5)])["head_relevance"]
        for corpus in (parallel_corpus, parallel_corpus.select(order))
    ]
    np.testing.assert_allclose(tables[0]["value"], tables[1]["value"], rtol=1e-6)
    more = measure(model, parallel_corpus, [Relevance(method="rollout", sentences=20)])["head_relevance"]
    assert more["count"].iloc[0] > tables[0]["count"].iloc[0]


@pytest.mark.parametrize("made", [tiny.bert, tiny.llama])
def test_at_most_64_predictions_of_a_long_text_are_explained(made):
    """Its share is one of those that chance draws; fewer texts are read than fit into the budget of short ones."""
    sentences = [one.text for one in tiny.trees(30)]
    texts = [" ".join(sentences[n : n + 6]) for n in (0, 6, 12)]
    model, corpus = made(tiny.trees(30)), Corpus.from_sentences(texts)
    few = Relevance(method="rollout", sentences=3)
    table = measure(model, corpus, [few])["head_relevance"]
    (length, *_) = sorted(len(model.tokenizer(text)["input_ids"]) for text in texts)
    assert length > 64
    assert (table["count"] <= 3 * 64**2 // length).all()
    _, values, _ = by_hand(model, corpus, range(3), method="rollout")
    spread = np.nanstd(values, 0) / np.sqrt(table["count"].to_numpy())
    assert (np.abs(table["value"] - np.nanmean(values, 0)) < 5 * spread + 1e-6).all()


def test_any_method_and_both_ways_to_normalise(matched_models, parallel_corpus):
    measures = [
        Relevance(method="gradient-x-input", sentences=3, normalise="abs"),
        Relevance(method="alti", sentences=3),
        Relevance(sentences=3, rule="ratio", bias="absorb", normalise="abs"),
    ]
    table = measure(matched_models["translation"], parallel_corpus, measures)["head_relevance"]
    assert table.groupby("method")["normalise"].first().to_dict() == {
        "alti": "signed", "gradient-x-input": "abs", "voita": "abs",
    }  # fmt: skip
    sums = table.groupby(["method", *KEYS[:3]])["value"].sum()
    np.testing.assert_allclose(sums, 1, atol=1e-9)


def test_what_cannot_be_measured_is_said(matched_models, parallel_corpus):
    with pytest.raises(UserError, match="sentences must be at least 1"):
        Relevance(sentences=0)
    with pytest.raises(UserError, match="method must be one of"):
        Relevance(method="lrp")
    with pytest.raises(UserError, match="rule must be one of"):
        Relevance(rule="gamma")
    empty = measure(matched_models["causal-lm"], parallel_corpus, [Relevance("logit-attribution", sentences=2)])
    assert len(empty["head_relevance"]) == 0  # post-norm: no direct path to the logits
