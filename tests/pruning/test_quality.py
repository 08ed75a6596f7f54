"""Quality by a user's own function: a classifier's accuracy, against weights set to zero by hand."""

import copy

import numpy as np
import pytest
import torch
from transformers import BertConfig, BertForSequenceClassification

from infoflow.corpus import generate_grammar, train_tokenizer
from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.pruning import greedy_pruning, quality


@pytest.fixture(scope="module")
def corpus():
    return generate_grammar(60, seed=3)


@pytest.fixture(scope="module")
def classifier(corpus):
    tokenizer = train_tokenizer((sentence.text for sentence in corpus), vocab_size=120)
    torch.manual_seed(0)
    config = BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=2,
        num_attention_heads=4,
        intermediate_size=32,
        initializer_range=0.5,
        num_labels=3,
    )
    return load_model(BertForSequenceClassification(config), tokenizer=tokenizer)


def hits(model, corpus):
    """Whether each sentence's class is its number of words modulo three."""
    found = []
    for sentence in corpus:
        tokens = model.require_tokenizer()(sentence.text, return_tensors="pt")
        with torch.no_grad():
            logits = model.module(input_ids=tokens["input_ids"], attention_mask=tokens["attention_mask"]).logits
        found.append(float(logits.argmax() == len(sentence.text.split()) % 3))
    return np.array(found)


def silenced(model, heads):
    """A copy of the model whose output projections read nothing of the heads."""
    other = copy.deepcopy(model.module)
    for layer, head in heads:
        projection = other.bert.encoder.layer[layer].attention.output.dense
        projection.weight.data[:, 4 * head : 4 * head + 4] = 0
    return load_model(other, tokenizer=model.tokenizer)


@pytest.mark.parametrize("by", ["confidence", "random"])
def test_a_classifiers_accuracy_along_the_curve(classifier, corpus, by):
    tables = greedy_pruning(classifier, corpus, corpus, by=by, keep=[8, 5, 2, 0], metric=hits)
    curve, heads = tables["pruning"], tables["pruned_heads"]
    assert set(curve["metric"]) == {"hits"}
    assert curve["kept"].tolist() == [8, 5, 2, 0]
    for row in curve.itertuples():
        gone = heads[(heads["point"] == row.point) & ~heads["alive"]]
        by_hand = hits(silenced(classifier, zip(gone["layer"], gone["head"], strict=True)), corpus)
        assert row.value == pytest.approx(by_hand.mean(), abs=1e-12)
        assert row.baseline == pytest.approx(hits(classifier, corpus).mean(), abs=1e-12)
    assert curve["value"].nunique() > 1


def test_a_metric_that_is_none(classifier, corpus):
    with pytest.raises(UserError, match="metric must be loss, bleu or a function"):
        quality(classifier, corpus, frozenset(), "accuracy")
