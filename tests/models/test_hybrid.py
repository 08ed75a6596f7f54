"""Hybrid models: heads where there are heads, also behind gates; the other blocks have states only."""

import numpy as np
import pytest
import torch
import transformers

from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError
from infoflow.heads import Confidence, relevance
from infoflow.models import load_model, tap
from infoflow.studies import AnalysisPlan, standard_measures

pytestmark = pytest.mark.filterwarnings("ignore:PWCCA")  # of few tokens

_IDS = torch.tensor([[5, 9, 12, 7, 30, 11]])
_SIZES = {
    "vocab_size": 400, "hidden_size": 32, "intermediate_size": 48, "num_attention_heads": 4, "num_key_value_heads": 2,
    "max_position_embeddings": 64, "pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "num_hidden_layers": 3,
}  # fmt: skip
CASES = {
    "JambaForCausalLM": _SIZES | {
        "attn_layer_period": 2, "attn_layer_offset": 1, "expert_layer_period": 4, "expert_layer_offset": 3,
        "use_mamba_kernels": False, "mamba_dt_rank": 2, "mamba_d_state": 4,
    },
    "Qwen3NextForCausalLM": _SIZES | {
        "head_dim": 8, "layer_types": ["linear_attention", "full_attention", "linear_attention"],
        "linear_key_head_dim": 8, "linear_value_head_dim": 8, "linear_num_key_heads": 2, "linear_num_value_heads": 4,
        "num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16, "shared_expert_intermediate_size": 16,
    },
}  # fmt: skip
OPTIONS = PassOptions(tokens_per_batch=400)
PLAN = AnalysisPlan(
    relevance_sentences=3, importance_sentences=4, ablation_sentences=4, probe_sentences=8, lens_steps=2, clusters=8
)


@pytest.fixture(scope="module", params=CASES)
def model(request):
    family = getattr(transformers, request.param)
    torch.manual_seed(0)
    module = family(family.config_class(**CASES[request.param])).eval()
    for parameter in module.parameters():
        if parameter.dim() > 1:
            torch.nn.init.normal_(parameter, std=0.2)
    return load_model(module)


def logit(model, gates=None):
    """The likeliest token's logit at position 3, with the heads of layer 1 multiplied by hand."""
    (attention,) = model.anatomy.attentions()
    projection = model.module.get_submodule(attention.output_projection)
    if gates is None:
        gates = torch.ones(4)

    def before(_, args):
        return (args[0] * gates.repeat_interleave(args[0].shape[-1] // 4), *args[1:])

    handle = projection.register_forward_pre_hook(before)
    try:
        with torch.no_grad():
            return model.module(_IDS).logits[0, 3]
    finally:
        handle.remove()


def test_only_the_attending_block_has_heads(model):
    (stack,) = model.anatomy.stacks
    assert [sorted(layer.attentions) for layer in stack.layers] == [[], ["self"], []]
    assert [layer.other_paths for layer in stack.layers] == [True, False, True]
    assert model.anatomy.head_numbers() == {("decoder", "self"): [0, 4, 0]}
    assert next(iter(model.anatomy.attentions())).gated == (type(model.module).__name__ == "Qwen3NextForCausalLM")


def test_states_and_attention_are_those_of_transformers(model):
    with torch.no_grad(), tap(model, hidden=True, attention=True, heads=True) as seen:
        model.module(_IDS)
    model.module.set_attn_implementation("eager")
    with torch.no_grad():
        own = model.module(_IDS, output_hidden_states=True, output_attentions=True)
    for ours, theirs in zip(seen.hidden["decoder"][:-1], own.hidden_states[:-1], strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-5, atol=1e-5)
    (weights,) = [one for one in own.attentions if one is not None and one.dim() == 4]
    assert [one.shape[1] for one in seen.attention["decoder", "self"]] == [0, 4, 0]
    assert [one.shape[2] for one in seen.heads["decoder", "self"]] == [0, 4, 0]
    torch.testing.assert_close(seen.attention["decoder", "self"][1], weights, rtol=1e-5, atol=1e-6)


def test_gates_by_layer_reach_the_right_heads(model):
    gates = torch.ones(3, 4)
    gates[1] = torch.tensor([0.0, 2.0, 1.0, -1.0])
    with torch.no_grad(), tap(model, gates={("decoder", "self"): gates}):
        found = model.module(_IDS).logits[0, 3]
    torch.testing.assert_close(found, logit(model, gates[1]), rtol=1e-5, atol=1e-5)


def test_gradient_relevance_is_the_slope_of_the_logit(model):
    found = relevance(model, {"input_ids": _IDS}, "gradient-x-input", position=3, normalise=None)
    target, step = int(logit(model).argmax()), 1e-2
    slopes = []
    for head in range(4):
        change = step * torch.eye(4)[head]
        slopes.append(float(logit(model, 1 + change)[target] - logit(model, 1 - change)[target]) / (2 * step))
    assert found["layer"].tolist() == [1] * 4
    np.testing.assert_allclose(found["relevance"], slopes, rtol=2e-2, atol=2e-3)


@pytest.mark.slow
def test_every_standard_measure_runs_and_names_the_layer_with_heads(model, parallel_corpus, matched_models):
    corpus = parallel_corpus.select(range(24))
    read = load_model(model.module, tokenizer=matched_models["causal-lm"].tokenizer)
    tables = measure(read, corpus, standard_measures(PLAN), OPTIONS)
    of_heads = [name for name, table in tables.items() if "head" in table.columns and len(table)]
    assert {"head_confidence", "head_importance", "head_ablation", "head_positional"} <= set(of_heads)
    for name in of_heads:
        assert set(tables[name]["layer"]) == {1}, name
        assert set(tables[name]["head"]) <= set(range(4)), name
    assert set(tables["layer_distance"]["layer"]) == {0, 1, 2}


def test_confidence_of_arrays_is_that_of_the_measure(model, parallel_corpus, matched_models):
    corpus = parallel_corpus.select(range(1))
    tokenizer = matched_models["causal-lm"].tokenizer
    read = load_model(model.module, tokenizer=tokenizer)
    table = measure(read, corpus, [Confidence(exclude_keys=(), exclude_queries=())], OPTIONS)["head_confidence"]
    ids = torch.tensor([tokenizer(corpus[0].text)["input_ids"]])
    with torch.no_grad(), tap(read, attention=True) as seen:
        read.module(ids)
    weights = seen.attention["decoder", "self"][1]
    expected = Confidence().of(weights[None], torch.ones(ids.shape, dtype=torch.bool))[0]
    np.testing.assert_allclose(table["value"], expected, rtol=1e-5)


def test_methods_that_need_every_path_say_so(model):
    for method in ("alti", "rollout"):
        with pytest.raises(UserError, match=r"outside attention.*in blocks 0, 2 of the decoder"):
            relevance(model, {"input_ids": _IDS}, method, position=3)
    with pytest.raises(UserError):
        relevance(model, {"input_ids": _IDS}, "voita", position=3)
