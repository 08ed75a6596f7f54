"""The gradient of the loss by attention to special tokens, against differences and against loops."""

import numpy as np
import pytest
import torch
from support import tiny_heads as tiny

from infoflow.flow import PassOptions
from infoflow.foundation import UserError
from infoflow.heads import SentenceScorer, SpecialGradient, attention_gradients
from infoflow.models import tap

ROWS = np.arange(6)


@pytest.fixture(scope="module")
def corpus():
    return tiny.trees(12)


@pytest.fixture(scope="module", params=["bert", "llama"])
def reader(request, corpus):
    return tiny.reader_of(getattr(tiny, request.param)(corpus), corpus)


def test_gradients_are_slopes_of_the_loss(reader):
    scorer = SentenceScorer(reader)
    batch = scorer.batch(np.array([0, 1]))
    gradients = attention_gradients(scorer, batch)
    stack = reader.source_stack
    for layer, b, head, i, j in ((0, 0, 1, 4, 0), (1, 1, 2, 3, 2), (0, 1, 0, 6, 6)):
        losses = []
        for step in (1e-3, -1e-3):

            def nudge(call, step=step, place=(b, head, i, j), layer=layer):
                weights = call.weights.clone()
                if call.layer == layer and weights.shape[0] == 2:
                    weights[place] += step
                return call.edited(weights=weights)

            with torch.no_grad(), tap(scorer.model, on_attention=nudge):
                losses.append(float((scorer.losses(batch) / batch.counts.clamp(min=1))[b]))
        slope = (losses[0] - losses[1]) / 2e-3
        assert float(gradients[(stack, "self"), layer][b, head, i, j]) == pytest.approx(slope, abs=3e-3)


def test_agree_with_definition(reader):
    measure = SpecialGradient(others=3, sentences=12)
    frame = measure.table.conform(measure.run(reader, PassOptions()))
    scorer, stack = SentenceScorer(reader), reader.source_stack
    causal = reader.model.anatomy.stacks[0].causal
    tokenizer = reader.model.tokenizer
    frequent = set(np.argsort(-reader.frequencies[stack], kind="stable")[:3].tolist())
    sums, pairs = {}, {}
    for row in range(12):
        batch = scorer.batch(np.array([row]))
        if int(batch.counts) == 0:
            continue
        ids = batch.padded.streams[stack].input_ids[0].tolist()
        for (_, layer), gradient in attention_gradients(scorer, batch).items():
            for head in range(gradient.shape[1]):
                for i in range(len(ids)):
                    for j in range(i + 1 if causal else len(ids)):
                        kind = "sep" if ids[j] == tokenizer.sep_token_id else "other" if ids[j] in frequent else None
                        sums[layer, head, kind] = sums.get((layer, head, kind), 0) + abs(float(gradient[0, head, i, j]))
                        pairs[layer, head, kind] = pairs.get((layer, head, kind), 0) + 1
    for r in frame.itertuples():
        assert r.value == pytest.approx(sums[r.layer, r.head, "sep"] / pairs[r.layer, r.head, "sep"], rel=1e-4)
        assert r.baseline == pytest.approx(sums[r.layer, r.head, "other"] / pairs[r.layer, r.head, "other"], rel=1e-4)
        assert r.count == pairs[r.layer, r.head, "sep"]


def test_batches_change_nothing(reader):
    whole = SpecialGradient(sentences=12).run(reader, PassOptions())
    small = SpecialGradient(sentences=12).run(reader, PassOptions(tokens_per_batch=60))
    np.testing.assert_allclose(whole["value"], small["value"], rtol=1e-3)
    np.testing.assert_allclose(whole["low"], small["low"], rtol=1e-3)


def test_frozen_parameters_and_an_encoder_decoder(matched_models, parallel_corpus):
    model = matched_models["translation"]
    wanted = [parameter.requires_grad for parameter in model.module.parameters()]
    model.module.requires_grad_(False)
    reader = tiny.reader_of(model, parallel_corpus, decoder=True)
    frame = SpecialGradient(sentences=8).run(reader, PassOptions())
    # The decoder never reads a SEP: it only predicts the one that ends a target.
    assert {(r.stack, r.kind) for r in frame.itertuples()} == {("encoder", "self"), ("decoder", "cross")}
    assert frame.loc[frame["kind"] == "cross", "value"].gt(0).all()
    for parameter, flag in zip(model.module.parameters(), wanted, strict=True):
        parameter.requires_grad_(flag)


def test_what_does_not_apply_is_said(corpus):
    model = tiny.llama(corpus)
    assert "no BOS token" in SpecialGradient(role="bos").refusal(model)
    assert SpecialGradient().refusal(model) is None
    with pytest.raises(UserError, match="role must be one of"):
        SpecialGradient(role="dot")
