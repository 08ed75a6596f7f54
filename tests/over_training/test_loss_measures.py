"""Loss by position, gains in context and agreement with n-grams: each against one sentence at a time."""

import copy
import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from support.ngram_loops import Loops
from support.predicted_tokens import OBJECTIVES, sentence_by_sentence, sequences_of
from transformers.modeling_outputs import CausalLMOutput

from infoflow.corpus import Corpus
from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError, block_of, replicate_weights
from infoflow.models import load_model
from infoflow.over_training import InContextLearning, LossByPosition, NgramAgreement, in_context_gain


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_by_position_is_the_mean_over_tokens_at_a_place(matched_models, parallel_corpus, objective):
    model = matched_models[objective]
    table = measure(model, parallel_corpus, [LossByPosition()])["loss_by_position"].set_index("position")
    found = sentence_by_sentence(model, parallel_corpus)
    texts, counted = sequences_of(model, parallel_corpus)
    slow = Loops(texts, len(found[0][0]), 1, counted=counted)
    assert sorted({place for _, _, place, *_ in found}) == table.index.tolist()
    blocks = block_of(np.array([sentence for *_, sentence in found]))
    for place, row in table.iterrows():
        at = np.array([one[2] == place for one in found])
        losses = np.array([-logs[label] for logs, label, *_ in found])
        assert row["value"] == pytest.approx(losses[at].mean(), rel=1e-5)
        assert row["count"] == at.sum()
        unigram = [-math.log(slow.q(token, ())) for _, token, where, *_ in found if where == place]
        assert row["baseline"] == pytest.approx(np.mean(unigram))
        weights = replicate_weights()[:, blocks[at]]
        with np.errstate(invalid="ignore"):
            expected = (weights @ losses[at]) / weights.sum(1)
        np.testing.assert_allclose(row["replicates"], expected, rtol=1e-5)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_ngram_agreement_is_the_mean_of_sums_over_the_vocabulary(matched_models, parallel_corpus, objective):
    model = matched_models[objective]
    table = measure(model, parallel_corpus, [NgramAgreement(samples=0)])["ngram_agreement"]
    values = table.set_index(["order", "context", "measure"])
    found = sentence_by_sentence(model, parallel_corpus)
    texts, counted = sequences_of(model, parallel_corpus)
    size = len(found[0][0])
    orders = 2 if objective == "masked-lm" else 3
    slow = {"before": Loops(texts, size, orders, counted=counted)}
    if objective == "masked-lm":
        slow["after"] = Loops([t[::-1] for t in texts], size, 2, counted=[c[::-1] for c in counted])
    kinds = {(n, "before") for n in range(1, orders + 1)} | ({(2, "after")} if objective == "masked-lm" else set())
    assert {(n, context) for n, context, _ in values.index} == kinds
    for n, context in kinds:
        sums, uniform = [], []
        for logs, _, _, before, after, _ in found:
            near = before if context == "before" else [after]
            if objective == "masked-lm" and n == 2 and near[0] == -1:
                continue
            q = slow[context].distribution(tuple(near[: n - 1][::-1]))
            sums.append(((q * (np.log(q) - logs)).sum(), (np.exp(logs) * (logs - np.log(q))).sum()))
            uniform.append(((q * np.log(q * size)).sum(), -np.log(size * q).mean()))
        for column, name in enumerate(("kl_from_ngram", "kl_to_ngram")):
            row = values.loc[(n, context, name)]
            assert row["value"] == pytest.approx(np.mean(sums, axis=0)[column], rel=1e-4)
            assert row["baseline"] == pytest.approx(np.mean(uniform, axis=0)[column])
            assert row["count"] == len(sums)


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_batches_and_the_order_of_lines_change_nothing(matched_models, parallel_corpus, objective):
    model = matched_models[objective]
    measures = [LossByPosition(), NgramAgreement(samples=12)]
    order = np.random.default_rng(0).permutation(len(parallel_corpus))
    first = measure(model, parallel_corpus, measures)
    small = measure(model, parallel_corpus.select(order), measures, PassOptions(tokens_per_batch=16))
    for name, table in first.items():
        for column in ("value", "low", "high", "baseline"):
            np.testing.assert_allclose(table[column], small[name][column], rtol=1e-4, atol=1e-6)


def test_counts_come_from_the_training_corpus(matched_models, parallel_corpus):
    model = matched_models["causal-lm"]
    part = parallel_corpus.select(np.arange(5))
    own = measure(model, part, [LossByPosition()])["loss_by_position"]
    known = measure(model, part, [LossByPosition()], ranks_from=parallel_corpus)["loss_by_position"]
    assert (own["value"] == known["value"]).all()
    assert not np.allclose(own["baseline"], known["baseline"])
    named = measure(model, part, [NgramAgreement(samples=0)], ranks_from=parallel_corpus)["ngram_agreement"]
    assert set(named["corpus"]) == {parallel_corpus.name}


@pytest.mark.parametrize("objective", OBJECTIVES)
def test_loss_on_drawn_texts(matched_models, parallel_corpus, objective):
    table = measure(matched_models[objective], parallel_corpus, [NgramAgreement(samples=40)])["ngram_agreement"]
    drawn = table[table["measure"] == "loss_on_samples"]
    assert drawn["order"].tolist() == ([1, 2] if objective == "masked-lm" else [1, 2, 3])
    size = len(sentence_by_sentence(matched_models[objective], parallel_corpus)[0][0])
    np.testing.assert_allclose(drawn["baseline"], math.log(size))
    # Weights are random: the loss is near that of the uniform model, on whatever text.
    np.testing.assert_allclose(drawn["value"], math.log(size), rtol=0.25)
    if objective != "masked-lm":
        assert drawn["count"].nunique() == 1


def long_texts(parallel_corpus, num=40):
    """Texts of 74 tokens and one short one."""
    words = [word for sentence in parallel_corpus for word in sentence.text.split()]
    texts = [" ".join(words[start % 50 : start % 50 + 70]) for start in range(num)]
    return Corpus.from_sentences([*texts, "the cat"], name="long")


def wide(matched_models):
    """A causal LM with places for long texts."""
    config = type(matched_models["causal-lm"].module.config)(
        **{**matched_models["causal-lm"].module.config.to_dict(), "max_position_embeddings": 256, "n_positions": 256}
    )
    torch.manual_seed(0)
    module = type(matched_models["causal-lm"].module)(config).eval()
    return replace(load_model(module, tokenizer=matched_models["causal-lm"].tokenizer), name="wide")


def test_gain_between_places_of_long_texts(matched_models, parallel_corpus):
    model, corpus = wide(matched_models), long_texts(parallel_corpus)
    table = measure(model, corpus, [InContextLearning(sequences=0)])["in_context_learning"]
    (row,) = table.to_dict("records")
    found = sentence_by_sentence(model, corpus)
    lengths = {sentence: max(p for _, _, p, _, _, s in found if s == sentence) for *_, sentence in found}
    long = [one for one in found if lengths[one[-1]] >= row["j"]]
    places = range(1, max(lengths.values()) + 1)
    means = [np.mean([-logs[label] for logs, label, p, *_ in long if p == place]) for place in places]
    assert row["measure"] == "gain"
    assert row["i"] == round(row["length"] * 0.1)
    assert row["value"] == pytest.approx(in_context_gain(means, row["i"], row["j"]), rel=1e-4)
    assert row["count"] == sum(length >= row["j"] for length in lengths.values()) >= 30


def test_repeat_gain_against_one_text_at_a_time(matched_models, parallel_corpus):
    seen = []
    model = matched_models["causal-lm"]
    hook = model.module.register_forward_pre_hook(
        lambda module, args, inputs: seen.append(inputs["input_ids"]), with_kwargs=True
    )
    options = InContextLearning(sequences=6, length=5)
    (row,) = measure(model, parallel_corpus, [options])["in_context_learning"].to_dict("records")
    hook.remove()
    repeated, other = seen[-2:]
    assert (repeated[:, 1:6] == repeated[:, 6:11]).all()
    assert (other[:, 1:6] != other[:, 6:11]).any()
    assert (other[:, 1:6] == repeated[:, 1:6]).all()
    gains = []
    for ids in (repeated, other):
        gains.append([])
        for text in ids:
            with torch.no_grad():
                logs = torch.log_softmax(model.module(text[None]).logits[0].double(), -1)
            loss = {place: -float(logs[place - 1, text[place]]) for place in range(1, 11)}
            gains[-1].append(np.mean([loss[p] for p in (2, 3, 4, 5)]) - np.mean([loss[p] for p in (7, 8, 9, 10)]))
    assert row["value"] == pytest.approx(np.mean(gains[0]), rel=1e-4)
    assert row["baseline"] == pytest.approx(np.mean(gains[1]), rel=1e-4)
    assert (row["measure"], row["i"], row["j"], row["length"], row["count"]) == ("repeat_gain", -1, -1, 5, 6)


def test_a_model_that_copies_gains_by_repetition(matched_models, parallel_corpus):
    """Logits that point at what followed the last occurrence of the token."""

    def copying(input_ids, **_):
        logits = torch.zeros(*input_ids.shape, 60)
        for row, text in enumerate(input_ids.tolist()):
            for place, token in enumerate(text):
                if token in text[:place]:
                    last = max(at for at in range(place) if text[at] == token)
                    logits[row, place, text[last + 1]] = 50.0
        return CausalLMOutput(logits=logits)

    model = matched_models["causal-lm"]
    model = replace(model, module=copy.deepcopy(model.module))
    model.module.forward = copying
    options = InContextLearning(sequences=6, length=5)
    (row,) = measure(model, parallel_corpus, [options])["in_context_learning"].to_dict("records")
    assert row["value"] == pytest.approx(math.log(60), rel=1e-6)
    assert row["baseline"] <= 0  # where texts share a token, what follows it is another one


def test_what_cannot_be_measured_is_said(matched_models, parallel_corpus):
    with pytest.raises(UserError, match="no token has more context"):
        measure(matched_models["masked-lm"], parallel_corpus, [InContextLearning()])
    with pytest.raises(UserError, match="no texts of 64 tokens"):
        measure(matched_models["translation"], parallel_corpus, [InContextLearning()])
    wrong = ((LossByPosition, {"sentences": 0}), (NgramAgreement, {"order": 6}), (InContextLearning, {"length": 1}))
    for kind, settings in wrong:
        with pytest.raises(UserError, match="Got"):
            kind(**settings)
    one = Corpus.from_sentences(["the cat"], name="text only")
    with pytest.raises(UserError, match="translations"):
        measure(matched_models["translation"], one, [LossByPosition()])
