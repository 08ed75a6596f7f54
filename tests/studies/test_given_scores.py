"""The loss of given models: against one forward pass for each token, batches, models without a head."""

import math

import numpy as np
import pytest
import torch

from infoflow.corpus import Corpus
from infoflow.studies import external_scores

pytestmark = pytest.mark.slow

TEXTS = ["the cat", "a dog runs", "the old house", "a cat runs", "the dog"]


def slow_loss(model):
    """Mean −log p over tokens that are not special, each predicted by a pass of its own."""
    tokenizer, losses, said = model.tokenizer, [], []
    special = set(tokenizer.all_special_ids)
    for text in TEXTS:
        ids = tokenizer(text)["input_ids"]
        places = [place for place, token in enumerate(ids) if token not in special]
        for index, place in enumerate(places):
            if model.task == "causal-lm" and place == 0:
                continue
            read = list(ids)
            if model.task == "causal-lm":
                read, at = ids[:place], place - 1
            else:
                at = place
                for hidden in places[index % 7 :: 7]:
                    read[hidden] = tokenizer.mask_token_id
            with torch.no_grad():
                logits = model.module(input_ids=torch.tensor([read])).logits[0, at]
            losses.append(-float(torch.log_softmax(logits.double(), 0)[ids[place]]))
            said.append(ids[place])
    shares = [said.count(token) / len(said) for token in set(said)]
    return float(np.mean(losses)), -sum(share * math.log(share) for share in shares), len(said)


@pytest.mark.parametrize("family", ["causal-lm", "masked-lm"])
def test_it_is_the_mean_loss_of_single_tokens(matched_models, family):
    model = matched_models[family]
    row = external_scores(model, Corpus.from_sentences(TEXTS, "own")).iloc[0]
    loss, entropy, count = slow_loss(model)
    assert row["value"] == pytest.approx(loss, rel=1e-4)
    assert row["baseline"] == pytest.approx(entropy, rel=1e-9)
    assert row["count"] == count
    assert row["low"] <= row["value"] <= row["high"]


def test_the_order_of_sentences_changes_nothing(matched_models):
    model = matched_models["causal-lm"]
    there, back = (external_scores(model, Corpus.from_sentences(texts, "own")) for texts in (TEXTS, TEXTS[::-1]))
    assert there["value"][0] == pytest.approx(back["value"][0], rel=1e-6)


def test_what_predicts_no_tokens_has_no_loss(matched_models):
    row = external_scores(matched_models["translation"], Corpus.from_sentences(TEXTS, "own")).iloc[0]
    assert math.isnan(row["value"])
    assert math.isnan(row["baseline"])
    assert row["count"] == 0
