"""Masked LM with a question about two segments: layout, both terms against Hugging Face's own model."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from objectives.zoo import VOCABULARY, check_pure, mixed
from transformers import BertForPreTraining

from infoflow.architectures import ModelConfig, build
from infoflow.foundation import UserError, stream
from infoflow.objectives import Example, MaskedLM, NextSentence, SentenceOrder

SHAPE = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64)
OBJECTIVES = [(NextSentence(), "is_random", "next-sentence"), (SentenceOrder(), "is_swapped", "sentence-order")]


def pair(first: int, second: int, label: int, name: str, seed: int = 0) -> Example:
    texts = (mixed(first, seed)[1:-1], mixed(second, seed + 1)[1:-1])
    return Example(texts=texts, labels={name: np.array(label)})


@pytest.mark.parametrize(("objective", "label", "question"), OBJECTIVES)
@settings(deadline=None, max_examples=40)
@given(first=st.integers(1, 30), second=st.integers(1, 30), answer=st.integers(0, 1), seed=st.integers(0, 10**6))
def test_two_segments_in_one_frame(objective, label, question, first, second, answer, seed) -> None:
    example = pair(first, second, answer, label, seed)
    result = check_pure(objective, example, seed)
    clean = np.concatenate([[2], example.texts[0], [3], example.texts[1], [3]])
    assert np.array_equal(result.input_ids[~result.selected], clean[~result.selected])
    assert np.array_equal(result.labels, np.where(result.selected, clean, -100))
    assert result["token_type_ids"].tolist() == [0] * (first + 2) + [1] * (second + 1)
    assert int(result["pair"]) == answer
    assert not result.selected[[0, first + 1, -1]].any()
    # The masks are those of the masked LM on the whole sequence.
    masked = objective.masked_lm.corrupt(Example(texts=(clean,)), stream("pure", seed), VOCABULARY)
    assert np.array_equal(masked.input_ids, result.input_ids)


def test_bert_s_masks_and_albert_s() -> None:
    assert NextSentence().masked_lm == MaskedLM()
    assert NextSentence(selection="static").masked_lm == MaskedLM(selection="static")
    assert [NextSentence(selection="static").noise_epoch(n) for n in (0, 9, 10)] == [0, 9, 0]
    assert SentenceOrder().masked_lm == MaskedLM(selection="n-gram")
    assert NextSentence().on_text() == MaskedLM()


@pytest.mark.parametrize(("objective", "label", "question"), OBJECTIVES)
@torch.no_grad()
def test_both_terms_equal_those_of_bert_for_pretraining_pair_by_pair(objective, label, question) -> None:
    module = build("bert", "encoder-pair", SHAPE, VOCABULARY).eval()
    theirs = BertForPreTraining(module.encoder.config).eval()
    theirs.bert.load_state_dict(module.encoder.bert.state_dict(), strict=False)
    theirs.cls.predictions.load_state_dict(module.encoder.cls.predictions.state_dict())
    theirs.bert.pooler.dense.load_state_dict(module.pooler.state_dict())
    theirs.cls.seq_relationship.load_state_dict(module.pair_head.state_dict())
    shapes = [(12, 5), (1, 1), (20, 30), (4, 9)]
    examples = [
        objective.corrupt(pair(a, b, n % 2, label, n), stream("pair", n), VOCABULARY) for n, (a, b) in enumerate(shapes)
    ]
    batch = objective.collate(examples, VOCABULARY)
    found = objective.loss(module, batch, batch.noise)
    tokens, answers, count = 0.0, 0.0, 0
    for number, one in enumerate(examples):
        output = theirs(
            input_ids=torch.tensor(one.input_ids[None]), token_type_ids=torch.tensor(one["token_type_ids"][None])
        )
        log_p = output.prediction_logits[0].double().log_softmax(-1)
        for place, wanted in enumerate(one.labels.tolist()):
            if wanted != -100:
                tokens, count = tokens - float(log_p[place, wanted]), count + 1
        answers -= float(output.seq_relationship_logits[0].double().log_softmax(-1)[number % 2])
    assert float(found["masked-lm"].total) == pytest.approx(tokens, rel=1e-5)
    assert float(found[question].total) == pytest.approx(answers, rel=1e-5)
    assert {name: term.count for name, term in found.items()} == {"masked-lm": count, question: 4}
    assert objective.counts(batch) == {"masked-lm": count, question: 4}
    assert objective.term_weights == {"masked-lm": 1.0, question: 1.0}
    guesses = objective.guesses(batch, np.full(120, 2.0))
    assert guesses == pytest.approx({"masked-lm": 2.0 * count, question: 4 * np.log(2)})
    (asked,) = objective.answers(module, batch, batch.noise).values()
    assert asked.truth.tolist() == [0, 1, 0, 1]
    probability = 1 / (1 + np.exp(-asked.scores.astype(np.float64)))
    assert -np.log(np.where(asked.truth == 1, probability, 1 - probability)).sum() == pytest.approx(answers, rel=1e-5)


@pytest.mark.parametrize(("objective", "label", "question"), OBJECTIVES)
def test_single_sentences_and_pairs_without_the_answer_are_refused(objective, label, question) -> None:
    with pytest.raises(UserError, match="reads pairs of segments"):
        objective.corrupt(Example(texts=(mixed(9),)), stream("single"), VOCABULARY)
    with pytest.raises(UserError, match=label):
        objective.corrupt(pair(3, 3, 0, "another"), stream("single"), VOCABULARY)
