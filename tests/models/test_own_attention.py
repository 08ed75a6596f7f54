"""Families with attention code of their own: read, gated and edited as those that call the attention function."""

import pytest
import torch
import transformers

from infoflow.foundation import UserError
from infoflow.models import accepts, load_model, remove_heads, tap, without_token

_SIZES = {
    "vocab_size": 40,
    "hidden_size": 16,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "intermediate_size": 24,
    "max_position_embeddings": 32,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_GPT = {"vocab_size": 40, "n_embd": 16, "n_layer": 3, "n_head": 4, "n_positions": 32} | {
    "bos_token_id": 1,
    "eos_token_id": 2,
}
_DISENTANGLED = {"relative_attention": True, "pos_att_type": ["c2p", "p2c"], "max_relative_positions": 8}
_FALCON = _SIZES | {"multi_query": False, "new_decoder_architecture": False}
_FAMILIES = {
    "megatron-bert": ("MegatronBertForMaskedLM", "MegatronBertConfig", _SIZES),
    "rembert": ("RemBertForMaskedLM", "RemBertConfig", _SIZES | {"input_embedding_size": 8}),
    "roformer": ("RoFormerForMaskedLM", "RoFormerConfig", _SIZES),
    "mpnet": ("MPNetForMaskedLM", "MPNetConfig", _SIZES),
    "big-bird": ("BigBirdForMaskedLM", "BigBirdConfig", _SIZES),
    "deberta": ("DebertaForMaskedLM", "DebertaConfig", _SIZES | _DISENTANGLED),
    "deberta-v2": ("DebertaV2ForMaskedLM", "DebertaV2Config", _SIZES | _DISENTANGLED),
    "bloom": ("BloomForCausalLM", "BloomConfig", {"vocab_size": 40, "hidden_size": 16, "n_layer": 3, "n_head": 4}),
    "falcon": ("FalconForCausalLM", "FalconConfig", _FALCON),
    "falcon-grouped": (
        "FalconForCausalLM",
        "FalconConfig",
        _FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2},
    ),
    "falcon-one-key": ("FalconForCausalLM", "FalconConfig", _FALCON | {"multi_query": True}),
    "gpt-j": ("GPTJForCausalLM", "GPTJConfig", _GPT | {"rotary_dim": 4}),
    "codegen": ("CodeGenForCausalLM", "CodeGenConfig", _GPT | {"n_ctx": 32, "rotary_dim": 4}),
    "openai-gpt": ("OpenAIGPTLMHeadModel", "OpenAIGPTConfig", _GPT),
    "gpt-neo": (
        "GPTNeoForCausalLM",
        "GPTNeoConfig",
        {"vocab_size": 40, "hidden_size": 16, "num_layers": 3, "num_heads": 4, "max_position_embeddings": 32}
        | {"attention_types": [[["global", "local"], 1], [["global"], 1]], "window_size": 3, "intermediate_size": 24},
    ),
    "mpt": ("MptForCausalLM", "MptConfig", {"vocab_size": 40, "d_model": 16, "n_layers": 3, "n_heads": 4}),
    "xglm": (
        "XGLMForCausalLM",
        "XGLMConfig",
        {"vocab_size": 40, "d_model": 16, "ffn_dim": 24, "num_layers": 3, "attention_heads": 4, "pad_token_id": 0},
    ),
    "mvp": (
        "MvpForConditionalGeneration",
        "MvpConfig",
        {"vocab_size": 40, "d_model": 16, "encoder_layers": 3, "decoder_layers": 3, "encoder_ffn_dim": 24}
        | {"decoder_ffn_dim": 24, "encoder_attention_heads": 4, "decoder_attention_heads": 4, "pad_token_id": 0}
        | {"decoder_start_token_id": 2, "max_position_embeddings": 32},
    ),
}
_NO_PRODUCT = {"deberta", "deberta-v2"}  # scores of content and position in one
_EXACT = {"rtol": 1e-5, "atol": 1e-5}


def build(family):
    class_name, config_name, settings = _FAMILIES[family]
    torch.manual_seed(0)
    module = getattr(transformers, class_name)(getattr(transformers, config_name)(**settings))
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


@pytest.fixture(params=_FAMILIES, scope="module")
def family(request):
    return request.param


@pytest.fixture(scope="module")
def model(family):
    return load_model(build(family))


@pytest.fixture(scope="module")
def inputs(model):
    ids = torch.tensor([[5, 6, 7, 8, 9, 10, 2], [11, 5, 12, 13, 14, 9, 2]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    return inputs | ({"decoder_input_ids": ids[:, :5]} if model.task == "seq2seq" else {"use_cache": False})


def run(model, inputs, **more):
    return model.module(**{name: value for name, value in inputs.items() if _takes(model, name)}, **more)


def _takes(model, name):
    return accepts(model.module, name)


def plain(family, inputs, **more):
    """What transformers computes, in a model that infoflow has not seen."""
    module = build(family)
    module.config._attn_implementation_internal = "eager"  # Falcon looks here, and cannot be told otherwise
    names = {name: value for name, value in inputs.items() if name != "use_cache"}
    with torch.no_grad():
        module(**names)  # BigBird's first pass puts in the attention for short sentences
        return module(**names, **more)


def num_hooks(model):
    """Those of transformers, which stay where states were asked for once, counted."""
    return sum(len(child._forward_hooks) + len(child._forward_pre_hooks) for child in model.module.modules())


def own(output, key):
    stack, kind = key
    if "encoder_attentions" in output:
        return output["cross_attentions" if kind == "cross" else f"{stack}_attentions"]
    return output["attentions"]


def test_every_attention_is_code_of_the_familys_own(model):
    codes = [one.own for one in model.anatomy.attentions()]
    assert all(code is not None and code.num_heads == 4 for code in codes)


def test_logits_states_and_attention_are_those_of_plain_transformers(family, model, inputs):
    expected = plain(family, inputs, output_hidden_states=True, output_attentions=True)
    with torch.no_grad(), tap(model, hidden=True, attention=True, heads=True) as seen:
        found = run(model, inputs)
    torch.testing.assert_close(found.logits, expected.logits, **_EXACT)
    for stack, states in seen.hidden.items():
        theirs = expected["hidden_states" if "hidden_states" in expected else f"{stack}_hidden_states"]
        for mine, its in zip(states[:-1], theirs[:-1], strict=True):  # behind the last may be a norm
            torch.testing.assert_close(mine, its, **_EXACT)
    for key, weights in seen.attention.items():
        theirs = own(expected, key)
        assert len(weights) == len(theirs) == 3
        for layer, its in zip(weights, theirs, strict=True):
            torch.testing.assert_close(layer, its, **_EXACT)
            torch.testing.assert_close(layer.sum(-1), torch.ones(layer.shape[:-1]))


def test_watching_changes_no_bit(model, inputs):
    hooks = num_hooks(model)
    with torch.no_grad(), tap(model, on_attention=lambda call: None):
        watched = run(model, inputs).logits
        with tap(model, attention=True):
            twice = run(model, inputs).logits
    assert torch.equal(watched, twice)
    with torch.no_grad():
        torch.testing.assert_close(run(model, inputs).logits, watched, **_EXACT)
    assert num_hooks(model) == hooks


def test_weights_times_values_are_the_heads(model, inputs):
    calls = {}
    with torch.no_grad(), tap(model, heads=True, on_attention=lambda call: calls.update({call.site: call})) as seen:
        run(model, inputs)
    assert len(calls) == sum(1 for _ in model.anatomy.attentions())
    for site, call in calls.items():
        heads = seen.heads[site.stack, site.kind][site.layer]
        torch.testing.assert_close((call.weights @ call.value).transpose(1, 2), heads, **_EXACT)


def test_a_gated_head_is_a_head_whose_columns_are_zero(model, inputs):
    attention = next(one for one in model.anatomy.attentions() if one.layer == 1)
    gates = {}
    for one in model.anatomy.attentions():
        gates.setdefault((one.stack, one.kind), []).append(torch.ones(one.num_heads))
    gates[attention.stack, attention.kind][1][2] = 0
    with torch.no_grad(), tap(model, gates=gates):
        gated = run(model, inputs).logits
    projection = model.module.get_submodule(attention.output_projection)
    rows = slice(2 * attention.head_dim, 3 * attention.head_dim)
    weight = projection.weight.detach()
    before = weight.clone()
    (weight if attention.transposed else weight.T)[rows] = 0
    with torch.no_grad():
        zeroed = run(model, inputs).logits
    weight.copy_(before)
    torch.testing.assert_close(gated, zeroed, **_EXACT)
    with torch.no_grad():
        assert (run(model, inputs).logits - gated).abs().max() > 1e-4


def test_edited_attention_is_what_the_values_are_weighted_by(model, inputs):
    """Against heads' outputs that are written by hand."""
    attention = next(one for one in model.anatomy.attentions() if one.layer == 1)
    name, seen = (attention.stack, attention.kind, 1), []

    def first_token(call):
        if (call.stack, call.kind, call.layer) != name:
            return None
        seen.append(call.value)
        weights = torch.zeros_like(call.weights)
        weights[..., 0] = 1
        return call.edited(weights=weights)

    def by_hand(call):
        if (call.stack, call.kind, call.layer) != name:
            return None
        return seen[0][:, :, :1].transpose(1, 2).expand_as(call.heads).contiguous()

    with torch.no_grad():
        with tap(model, on_attention=first_token):
            edited = run(model, inputs).logits
        with tap(model, on_heads=by_hand):
            expected = run(model, inputs).logits
        torch.testing.assert_close(edited, expected, **_EXACT)
        assert (edited - run(model, inputs).logits).abs().max() > 1e-4


def test_a_hidden_token_gets_no_attention_and_the_rest_its_share(model, inputs):
    token, seen = torch.tensor([2, 3]), {}

    def hide(call):
        if call.kind == "self" and call.layer == 0:
            seen["before"] = call.weights
            call = without_token(call, token)
            seen["after"] = call.weights
            return call
        return None

    with torch.no_grad(), tap(model, on_attention=hide):
        run(model, inputs)
    kept = seen["before"].clone()
    for row, column in enumerate(token.tolist()):
        kept[row, :, :, column] = 0
    kept = kept / kept.sum(-1, keepdim=True)
    later = slice(3, None)  # a causal query that sees the hidden token alone has no meaning
    torch.testing.assert_close(seen["after"][:, :, later], kept[:, :, later], **_EXACT)


def test_queries_and_keys_make_the_weights_where_scores_are_products(family, model, inputs):
    calls = []
    with torch.no_grad(), tap(model, on_attention=lambda call: calls.append(call)):
        run(model, inputs)
    for call in calls:
        if family in _NO_PRODUCT:
            assert call.query is None
            assert call.key is None
            again = call.edited(mask=call.mask)
        else:
            again = call.edited(query=call.query.clone())
            hidden = call.query @ call.key.mT * call.scaling + call.mask
            torch.testing.assert_close(hidden.softmax(-1), call.weights, **_EXACT)
        torch.testing.assert_close(again.weights, call.weights, **_EXACT)


def test_padding_changes_nothing_or_is_refused(model, inputs):
    ids = inputs["input_ids"][:, :5]
    batch = {"input_ids": torch.cat([ids, torch.zeros(2, 2, dtype=torch.long)], dim=1)}
    batch["input_ids"][1] = inputs["input_ids"][1]
    batch["attention_mask"] = torch.tensor([[1] * 5 + [0] * 2, [1] * 7])
    alone = {"input_ids": ids[:1], "attention_mask": torch.ones(1, 5, dtype=torch.long)}
    if model.task == "seq2seq":
        batch["decoder_input_ids"], alone["decoder_input_ids"] = ids, ids[:1]
    assert model.pads
    seen = {}
    for name, given in (("beside", batch), ("alone", alone)):
        with torch.no_grad(), tap(model, hidden=True, attention=True) as tapped:
            run(model, given)
        seen[name] = tapped.hidden["encoder" if model.task != "causal-lm" else "decoder"], tapped.attention
    for beside, single in zip(seen["beside"][0], seen["alone"][0], strict=True):
        torch.testing.assert_close(beside[:1, :5], single, **_EXACT)
    for key, layers in seen["alone"][1].items():
        for beside, single in zip(seen["beside"][1][key], layers, strict=True):
            torch.testing.assert_close(beside[:1, :, :5, :5], single, **_EXACT)


def test_gradients_by_attention_are_differences_of_the_output(model, inputs):
    """Central differences along one direction; several families compute norms in float32 in any precision."""
    torch.manual_seed(1)
    leaves, steps, width = {}, {}, 1e-2

    def output(edit):
        with tap(model, on_attention=edit):
            return run(model, inputs).logits.tanh().double().sum()

    def open_leaf(call):
        leaves[call.site] = torch.zeros_like(call.weights, requires_grad=True)
        return call.edited(weights=call.weights + leaves[call.site])

    gradients = torch.autograd.grad(output(open_leaf), list(leaves.values()))
    for site, leaf in leaves.items():
        steps[site] = torch.randn_like(leaf)
    slope = sum((gradient * steps[site]).sum() for site, gradient in zip(leaves, gradients, strict=True))
    with torch.no_grad():
        low, high = (output(lambda call, h=h: call.edited(weights=call.weights + h * steps[call.site]))
                     for h in (-width, width))  # fmt: skip
    assert slope.abs() > 1e-2
    torch.testing.assert_close((high - low) / (2 * width), slope.double(), rtol=1e-2, atol=1e-3)


def test_gradients_reach_weights_that_are_kept(model, inputs):
    """As Chefer's relevance takes them: the heads are made from these very tensors."""
    with tap(model, attention=True) as seen:
        logits = run(model, inputs).logits
    kept = [layer for layers in seen.attention.values() for layer in layers]
    assert all(gradient.abs().max() > 1e-6 for gradient in torch.autograd.grad(logits.tanh().sum(), kept))


def test_heads_of_falcon_with_alibi_are_not_read():
    """Without SDPA its own code adds the bias a second time."""
    config = transformers.FalconConfig(**_FALCON | {"alibi": True})
    assert "does not compute the same" in load_model(transformers.FalconForCausalLM(config).eval()).anatomy.unread


@pytest.mark.parametrize(
    ("name", "settings", "reason"),
    [
        ("SqueezeBertForMaskedLM", {"embedding_size": 16}, "no linear output projection"),
        ("FunnelForMaskedLM", {"block_sizes": [1, 1], "d_model": 16, "n_head": 4, "d_head": 4}, "queries for 5 tokens"),
    ],
)
def test_what_cannot_be_read_is_refused_with_its_reason(name, settings, reason):
    family = getattr(transformers, name)
    config = family.config_class(**(_SIZES | settings if "d_model" not in settings else {"vocab_size": 40} | settings))
    with pytest.raises(UserError, match=reason):
        load_model(family(config).eval())


def test_heads_can_be_ablated_but_not_removed():
    model = load_model(build("gpt-j"))
    with pytest.raises(UserError, match="its own code"):
        remove_heads(model.module, model.anatomy, {("decoder", "self", 0): [1]})


def test_an_error_inside_an_attention_leaves_nothing_behind():
    model = load_model(build("gpt-j"))
    inputs, hooks = {"input_ids": torch.tensor([[5, 6, 7]]), "use_cache": False}, num_hooks(model)

    def fail(call):
        raise RuntimeError("inside")

    with pytest.raises(RuntimeError, match="inside"), tap(model, on_attention=fail):
        model.module(**inputs)
    with torch.no_grad(), tap(model, attention=True) as seen:
        model.module(**inputs)
    assert [layer.shape for layer in seen.attention["decoder", "self"]] == [(1, 4, 3, 3)] * 3
    assert num_hooks(model) == hooks


def test_weights_are_those_before_dropout_and_dropout_still_acts():
    config = transformers.GPTJConfig(
        **_GPT | {"rotary_dim": 4, "attn_pdrop": 0.5, "resid_pdrop": 0.0, "embd_pdrop": 0.0}
    )
    torch.manual_seed(0)
    model = load_model(transformers.GPTJForCausalLM(config))
    inputs, calls = {"input_ids": torch.tensor([[5, 6, 7, 8]]), "use_cache": False}, []

    def keep(call):
        calls.append(call)
        return call.edited(weights=call.weights.clone())

    with torch.no_grad(), tap(model, heads=True, on_attention=keep) as seen:
        model.module(**inputs)
        plain = seen.heads["decoder", "self"][0]
        model.module.train()
        model.module(**inputs)
        dropped = seen.heads["decoder", "self"][0]
        model.module.eval()
    torch.testing.assert_close(calls[3].weights, calls[0].weights)  # both of layer 0
    assert calls[3].dropout == 0.5
    torch.testing.assert_close((calls[0].weights @ calls[0].value).transpose(1, 2), plain, **_EXACT)
    assert (dropped - plain).abs().max() > 1e-3
    # A row of one weight is dropped whole, or doubled.
    assert all(torch.equal(row, torch.zeros_like(row)) or torch.allclose(row, 2 * kept)
               for row, kept in zip(dropped[0, 0], plain[0, 0], strict=True))  # fmt: skip


@pytest.mark.parametrize("family", ["gpt-j", "bloom", "deberta-v2", "mpt"])
def test_half_precision_shows_float32_weights(family):
    model = load_model(build(family).bfloat16())
    ids = torch.tensor([[5, 6, 7, 8, 2]])
    inputs = {"input_ids": ids, "attention_mask": torch.ones_like(ids)}
    with torch.no_grad():
        with tap(model, attention=True, on_attention=lambda call: call.edited(weights=call.weights.clone())) as seen:
            edited = model.module(**inputs).logits
        expected = model.module(**inputs).logits
    assert all(layer.dtype == torch.float32 for layers in seen.attention.values() for layer in layers)
    torch.testing.assert_close(edited.float(), expected.float(), rtol=0.1, atol=0.1)


def test_generation_with_a_cache_is_followed():
    """Every step attends from one token to all before it."""
    model, shapes = load_model(build("gpt-j")), []
    with torch.no_grad(), tap(model, on_attention=lambda call: shapes.append(tuple(call.weights.shape))):
        model.module.generate(
            torch.tensor([[5, 6, 7]]), max_new_tokens=3, min_new_tokens=3, do_sample=False, pad_token_id=0
        )
    assert shapes == [(1, 4, 3, 3)] * 3 + [(1, 4, 1, 4)] * 3 + [(1, 4, 1, 5)] * 3
