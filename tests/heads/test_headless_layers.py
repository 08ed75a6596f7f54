"""Models of which a layer, a kind of attention or everything was pruned away, against output projections of zeros."""

import copy
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
import torch
from transformers import LlamaConfig, LlamaForCausalLM

from infoflow.flow import PassOptions, measure
from infoflow.heads import all_heads, prune, relevance, token_relevance
from infoflow.models import load_model, model_inputs, tap
from infoflow.studies import AnalysisPlan, standard_measures

pytestmark = [pytest.mark.filterwarnings("ignore:PWCCA"), pytest.mark.slow]  # of few tokens
WHAT_HEADS_WRITE = ("voita", "gradient-x-input", "cp-lrp", "attn-lrp", "chefer", "alti")
OPTIONS = PassOptions(tokens_per_batch=400)
PLAN = AnalysisPlan(
    relevance_sentences=3, importance_sentences=4, ablation_sentences=4, probe_sentences=8, lens_steps=2, clusters=8
)
OF_HEADS = ["head_confidence", "head_entropy", "head_positional", "head_surface", "head_rare_token"]


def with_tokenizers(module, like):
    model = load_model(module, tokenizer=like.tokenizer)
    return replace(model, target_tokenizer=like.target_tokenizer)


def without(model, gone):
    """The model without the heads that `gone` picks, and the whole one whose heads there write nothing."""
    pruned = with_tokenizers(prune(model, [head for head in all_heads(model.anatomy) if gone(*head)]).module, model)
    silent = with_tokenizers(copy.deepcopy(model.module), model)
    for one in silent.anatomy.attentions():
        if all(gone(one.stack, one.kind, one.layer, head) for head in range(one.num_heads)):
            with torch.no_grad():
                silent.module.get_submodule(one.output_projection).weight.zero_()
    return pruned, silent


@pytest.fixture(params=["causal-lm", "masked-lm", "translation"])
def model(request, matched_models):
    return matched_models[request.param]


@pytest.mark.parametrize("method", WHAT_HEADS_WRITE)
def test_relevance_of_the_layer_above_is_as_if_its_heads_wrote_nothing(model, method):
    pruned, silent = without(model, lambda stack, kind, layer, head: layer == 0)
    ids = torch.tensor([[5, 9, 12, 7, 30]])
    inputs = model_inputs(model, ids, decoder_input_ids=ids[:, :4] if model.task == "seq2seq" else None)
    expected = relevance(silent, inputs, method, position=2, normalise=None)
    found = relevance(pruned, inputs, method, position=2, normalise=None)
    above = expected[expected["layer"] == 1].reset_index(drop=True)
    assert len(above) > 0
    pd.testing.assert_frame_equal(found.reset_index(drop=True)[list(above)], above, rtol=1e-4, atol=1e-6)


def test_direct_part_in_the_logit_of_the_layer_above():
    torch.manual_seed(0)
    config = LlamaConfig(
        num_hidden_layers=2, num_attention_heads=4, hidden_size=32, intermediate_size=64, vocab_size=60, bos_token_id=1
    )
    pruned, silent = without(load_model(LlamaForCausalLM(config).eval()), lambda stack, kind, layer, head: layer == 0)
    inputs = {"input_ids": torch.tensor([[5, 9, 12, 7, 30]])}
    tables = [relevance(one, inputs, "logit-attribution", position=2, normalise=None) for one in (silent, pruned)]
    above = [table[table["layer"] == 1].reset_index(drop=True) for table in tables]
    assert len(above[0]) == 4
    pd.testing.assert_frame_equal(*above, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("method", ["rollout", "flow"])
@pytest.mark.parametrize("gone_below", [4, 1], ids=["no head below", "three heads of four below"])
def test_tokens_pass_layers_with_fewer_heads(matched_models, method, gone_below):
    pruned, _ = without(matched_models["causal-lm"], lambda stack, kind, layer, head: layer == 0 and head < gone_below)
    inputs = {"input_ids": torch.tensor([[5, 9, 12, 7, 30]])}
    with torch.no_grad(), tap(pruned, attention=True) as seen:
        pruned.module(**inputs)
    below, above = (weights[0].sum(0) / max(1, weights.shape[1]) for weights in seen.attention["decoder", "self"])
    identity = torch.eye(5)
    below, above = ((identity + below) / 2 if gone_below < 4 else identity), (identity + above) / 2
    expected = (above @ below)[2] if method == "rollout" else most_flow(above, below)[2]
    found = token_relevance(pruned, inputs, method, position=2, normalise=None)["relevance"].to_numpy()
    np.testing.assert_allclose(found / found.sum(), expected, atol=1e-5)


def most_flow(above, below):
    """Maximum flow through two layers, each row's shares: by every position between, the narrower of two edges."""
    flow = torch.minimum(above[:, :, None], below[None]).sum(1)
    return flow / flow.sum(1, keepdim=True)


def test_without_any_head_a_prediction_comes_from_its_own_token(matched_models):
    pruned, _ = without(matched_models["masked-lm"], lambda *head: True)
    inputs = {"input_ids": torch.tensor([[5, 9, 12, 7, 30]])}
    for method in ("rollout", "flow"):
        found = token_relevance(pruned, inputs, method, position=2, normalise=None)["relevance"]
        np.testing.assert_allclose(found, [0, 0, 1, 0, 0], atol=1e-6)
    assert len(relevance(pruned, inputs, "rollout", position=2)) == 0


def test_every_standard_measure_runs(model, parallel_corpus):
    corpus = parallel_corpus.select(range(24))
    last = model.anatomy.stacks[0].layers[-1].index
    pruned, _ = without(model, lambda stack, kind, layer, head: layer == last)
    tables = measure(pruned, corpus, standard_measures(PLAN), OPTIONS)
    whole = measure(model, corpus, [each for each in standard_measures(PLAN) if each.name in OF_HEADS], OPTIONS)
    for name in OF_HEADS:  # the encoder's layers below see what they saw before
        first, second = (
            table[
                (table["stack"] == model.anatomy.stacks[0].name) & (table["kind"] == "self") & (table["layer"] < last)
            ]
            for table in (tables[name], whole[name])
        )
        assert len(first) > 0
        pd.testing.assert_frame_equal(first.reset_index(drop=True), second.reset_index(drop=True), rtol=1e-5)
        assert (tables[name]["layer"] < last).all()


def test_a_model_without_any_head_is_measured(model, parallel_corpus):
    corpus = parallel_corpus.select(range(24))
    pruned, _ = without(model, lambda *head: True)
    tables = measure(pruned, corpus, standard_measures(PLAN), OPTIONS)
    assert len(tables["mutual_information"]) > 0
    assert [len(tables[name]) for name in OF_HEADS] == [0] * len(OF_HEADS)
