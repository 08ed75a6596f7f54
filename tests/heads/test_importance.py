"""Importance of heads against explicit loops: one sentence, one gate, one backward pass at a time."""

from dataclasses import replace

import numpy as np
import pytest
import torch

from infoflow.corpus import Corpus
from infoflow.flow import NO_LABEL, PassOptions, Reader, measure
from infoflow.foundation import UserError
from infoflow.heads import Ablation, Entropy, Importance, PruningCurve, SentenceScorer, importance
from infoflow.models import load_model, tap

TASKS = ("causal-lm", "masked-lm", "translation")
KEYS = ["stack", "kind", "layer", "head"]


@pytest.fixture(params=TASKS)
def model(request, matched_models):
    model = matched_models[request.param]
    double = load_model(model.module.double(), tokenizer=model.tokenizer)
    yield replace(double, target_tokenizer=model.target_tokenizer)
    model.module.float()


@pytest.fixture
def corpus(parallel_corpus):
    return parallel_corpus.select(range(14))


def sentences(model, corpus):
    """Each sentence alone, as the measure reads it, and its labels."""
    reader = Reader(model, corpus, max_length=512, seed=0, decoder=model.task == "seq2seq")
    scorer = SentenceScorer(reader)
    batches = [scorer.batch(np.array([row])) for row in range(len(corpus))]
    return [batch for batch in batches if (batch.labels != NO_LABEL).any()]


def logits_and_inputs(model, batch):
    streams = batch.padded.streams
    source = streams[model.anatomy.stacks[0].name]
    inputs = {"input_ids": source.input_ids}
    if model.task == "seq2seq":
        inputs["decoder_input_ids"] = streams["decoder"].input_ids
    return model.module(**inputs).logits


def gate_derivatives(model, batch):
    """dL/dgate of every head by one gate (L, H) for the one sentence; L is the summed loss of the full logits."""
    gates = {}
    for one in model.anatomy.attentions():
        gates.setdefault((one.stack, one.kind), []).append(torch.ones(one.num_heads, dtype=torch.float64))
    gates = {key: torch.stack(rows).requires_grad_() for key, rows in gates.items()}
    with tap(model, gates=gates):
        logits = logits_and_inputs(model, batch)
    loss = torch.nn.functional.cross_entropy(
        logits.flatten(0, 1), batch.labels.flatten(), ignore_index=NO_LABEL, reduction="sum"
    )
    grads = torch.autograd.grad(loss, list(gates.values()))
    return torch.cat([grad.flatten() for grad in grads]).numpy()


def by_loop(model, corpus, mean):
    values = []
    for batch in sentences(model, corpus):
        count = int((batch.labels != NO_LABEL).sum())
        if count:
            values.append(np.abs(gate_derivatives(model, batch)) / (count if mean else 1))
    return np.mean(values, axis=0), len(values)


@pytest.mark.parametrize("loss", ["mean", "sum"])
def test_paper_convention_agrees_with_one_sentence_at_a_time(model, corpus, loss):
    table = importance(model, corpus, example_loss=loss)
    expected, count = by_loop(model, corpus, loss == "mean")
    np.testing.assert_allclose(table["value"], expected, rtol=1e-6)
    assert set(table["count"]) == {count}
    assert not table.duplicated(KEYS).any()
    assert (table["low"] <= table["value"] + 1e-12).all()


def test_token_convention_agrees_with_each_token(model, corpus):
    """Derivative by a gate of each token, from the chain rule on the head's own output."""
    table = importance(model, corpus, convention="token")
    sums, counts = {}, {}
    for batch in sentences(model, corpus):
        with tap(model, heads=True, on_heads=lambda call: call.heads + 0.0) as seen:
            logits = logits_and_inputs(model, batch)
        loss = torch.nn.functional.cross_entropy(
            logits.flatten(0, 1), batch.labels.flatten(), ignore_index=NO_LABEL, reduction="sum"
        )
        for (stack, kind), layers in seen.heads.items():
            for layer, heads in enumerate(layers):
                (grad,) = torch.autograd.grad(loss, heads, retain_graph=True)
                for head in range(heads.shape[2]):
                    key = (stack, kind, layer, head)
                    for token in range(heads.shape[1]):
                        product = (heads[0, token, head] * grad[0, token, head]).sum().item()
                        sums[key] = sums.get(key, 0.0) + abs(product)
                    counts[key] = counts.get(key, 0) + heads.shape[1]
    found = table.set_index(KEYS)
    for key, total in sums.items():
        assert found.loc[key, "value"] == pytest.approx(total / counts[key], rel=1e-6)
        assert found.loc[key, "count"] == counts[key]


def test_batch_convention_follows_run_bertology(model, corpus):
    """One batch that holds everything, in the library script's own steps."""
    table = importance(model, corpus, convention="batch", options=PassOptions(tokens_per_batch=10_000))
    batches = sentences(model, corpus)
    total = sum(gate_derivatives(model, batch) for batch in batches)
    scored = sum(int((batch.labels != NO_LABEL).sum()) for batch in batches)
    tokens = {name: sum(b.padded.streams[name].real.sum() for b in batches) for name in batches[0].padded.streams}
    raw = np.abs(total) / scored / np.array([float(tokens[stack]) for stack in table["stack"]])
    head_importance = raw.reshape(-1, 4)
    head_importance = head_importance / ((head_importance**2).sum(-1) ** 0.5 + 1e-20)[:, None]
    expected = (head_importance - head_importance.min()) / (head_importance.max() - head_importance.min())
    np.testing.assert_allclose(table["value"], expected.ravel(), rtol=1e-5, atol=1e-9)


def test_batch_size_matters_for_the_batch_convention_alone(model, corpus):
    for convention, invariant in (("paper", True), ("token", True), ("batch", False)):
        small, large = (
            importance(model, corpus, convention=convention, options=PassOptions(tokens_per_batch=budget))
            for budget in (16, 4000)
        )
        same = np.allclose(small["value"], large["value"], rtol=1e-6, atol=0)
        assert same == invariant, convention
        if invariant:
            np.testing.assert_allclose(list(small["replicates"]), list(large["replicates"]), rtol=1e-6)


def test_layer_normalisation_and_one_minus(model, corpus):
    plain = importance(model, corpus)
    normalised = importance(model, corpus, normalise="layer")
    norms = normalised.groupby(["stack", "kind", "layer"])["value"].agg(lambda v: float(np.sqrt((v**2).sum())))
    np.testing.assert_allclose(norms, 1.0)
    ratio = plain["value"] / normalised["value"]
    assert ratio.groupby([plain["stack"], plain["kind"], plain["layer"]]).std().max() < 1e-9
    others = importance(model, corpus, one_minus=True, example_loss="sum")
    expected, count = 0, 0
    for batch in sentences(model, corpus):
        if (batch.labels != NO_LABEL).any():
            by_layer = gate_derivatives(model, batch).reshape(-1, 4)
            expected, count = expected + np.abs(by_layer.sum(1, keepdims=True) - by_layer), count + 1
    np.testing.assert_allclose(others["value"], (expected / count).ravel(), rtol=1e-6)


def test_sentences_are_chosen_by_hash_and_weights_get_no_gradient(matched_models, parallel_corpus):
    model = matched_models["translation"]
    some = importance(model, parallel_corpus, sentences=9)
    assert set(some["count"]) == {9}
    again = importance(model, parallel_corpus, sentences=9, options=PassOptions(tokens_per_batch=40))
    np.testing.assert_allclose(some["value"], again["value"], rtol=1e-3)
    assert all(parameter.grad is None for parameter in model.module.parameters())


def test_refuses_what_has_no_loss(matched_models, parallel_corpus):
    with pytest.raises(UserError, match="convention must be one of paper, token, batch"):
        Importance("michel")
    with pytest.raises(UserError, match="normalise must be"):
        Importance(normalise="global")
    model = matched_models["masked-lm"]
    headless = load_model(model.module.bert, tokenizer=model.tokenizer)
    with pytest.raises(UserError, match="no language-model head"):
        importance(headless, parallel_corpus)


def test_beside_others_it_is_skipped_where_no_translation_is_there(matched_models, parallel_corpus, tmp_path):
    (tmp_path / "alone.txt").write_text("".join(f"{text}\n" for text in parallel_corpus.column("text")))
    model, alone = matched_models["translation"], Corpus.from_text(tmp_path / "alone.txt")
    measured = measure(model, alone, [Entropy(), Importance(), Ablation(), PruningCurve()])
    assert len(measured["head_entropy"])
    for name in ("head_importance", "head_ablation", "head_pruning_curve"):
        assert measured[name].empty
        assert "value" in measured[name]
    with pytest.raises(UserError, match=r"needs translations to read, and .* has none"):
        importance(model, alone)
