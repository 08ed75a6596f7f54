"""Longformer's and LED's bands against their own code, and against softmaxes that are written out token by token."""

import math

import pytest
import torch
import transformers

from infoflow.foundation import UserError
from infoflow.models import load_model, remove_heads, tap

_EXACT = {"rtol": 1e-5, "atol": 1e-5}
_WINDOWS = [4, 8, 4]
_LENGTHS = (11, 7)


def build(family, **settings):
    torch.manual_seed(0)
    if family == "longformer":
        config = transformers.LongformerConfig(
            vocab_size=40, hidden_size=16, num_hidden_layers=3, num_attention_heads=4, intermediate_size=24,
            max_position_embeddings=40, attention_window=list(_WINDOWS), pad_token_id=0, **settings,
        )  # fmt: skip
        module = transformers.LongformerForMaskedLM(config)
    else:
        config = transformers.LEDConfig(
            vocab_size=40, d_model=16, encoder_layers=3, decoder_layers=2, encoder_attention_heads=4,
            decoder_attention_heads=4, encoder_ffn_dim=24, decoder_ffn_dim=24, attention_window=list(_WINDOWS),
            max_encoder_position_embeddings=40, max_decoder_position_embeddings=40, pad_token_id=0, **settings,
        )  # fmt: skip
        module = transformers.LEDForConditionalGeneration(config)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


def batch(family, global_tokens=()):
    """Two rows of 11 and 7 tokens, neither of which is whole windows."""
    ids = torch.randint(3, 40, (2, max(_LENGTHS)), generator=torch.Generator().manual_seed(1))
    mask = torch.ones_like(ids)
    ids[1, _LENGTHS[1] :] = mask[1, _LENGTHS[1] :] = 0
    inputs = {"input_ids": ids, "attention_mask": mask}
    if family == "led":
        inputs |= {"decoder_input_ids": ids[:, :5].clamp(min=3), "use_cache": False}
    if global_tokens:
        inputs["global_attention_mask"] = torch.zeros_like(ids)
        for row, token in global_tokens:
            inputs["global_attention_mask"][row, token] = 1
    return inputs


@pytest.fixture(params=["longformer", "led"])
def family(request):
    return request.param


@pytest.fixture(params=[(), ((0, 0), (1, 0)), ((0, 0), (0, 5), (1, 3))], ids=["local", "first", "several"])
def global_tokens(request):
    return request.param


def test_logits_and_states_are_those_of_the_familys_own_code(family, global_tokens):
    inputs, model = batch(family, global_tokens), load_model(build(family))
    with torch.no_grad():
        expected = build(family)(**inputs, output_hidden_states=True)
        with tap(model, hidden=True, attention=True) as seen:
            found = model.module(**inputs)
    real = inputs["attention_mask"].bool()
    states = expected["hidden_states" if family == "longformer" else "encoder_hidden_states"]
    assert len(seen.hidden["encoder"]) == len(states) == 4
    for mine, its in zip(seen.hidden["encoder"], states, strict=True):
        torch.testing.assert_close(mine[real], its[real], **_EXACT)
    chosen = real if family == "longformer" else slice(None)
    torch.testing.assert_close(found.logits[chosen], expected.logits[chosen], **_EXACT)


def test_weights_are_those_of_the_familys_own_code(family, global_tokens):
    """It returns them by global token and distance, and those of global tokens apart."""
    inputs, model = batch(family, global_tokens), load_model(build(family))
    with torch.no_grad():
        expected = build(family)(**inputs, output_attentions=True)
        with tap(model, attention=True) as seen:
            model.module(**inputs)
    start = "" if family == "longformer" else "encoder_"
    most = max((sum(row == token[0] for token in global_tokens) for row in (0, 1)), default=0)
    for layer, (weights, banded) in enumerate(
        zip(seen.attention["encoder", "self"], expected[f"{start}attentions"], strict=True)
    ):
        dense = torch.zeros_like(weights)
        side = _WINDOWS[layer] // 2
        for row, length in enumerate(_LENGTHS):
            mine = [token for at, token in global_tokens if at == row]
            for query in range(length):
                for offset in range(-side, side + 1):
                    if 0 <= query + offset < length:
                        dense[row, :, query, query + offset] += banded[row, :, query, most + side + offset]
                for place, token in enumerate(mine):
                    dense[row, :, query, token] += banded[row, :, query, place]
            for place, token in enumerate(mine):
                # (B, H, S, G), padded by transformers to whole windows
                theirs = expected["global_attentions" if family == "longformer" else "encoder_global_attentions"]
                dense[row, :, token] = theirs[layer][row, :, : weights.shape[3], place]
            torch.testing.assert_close(weights[row, :, :length], dense[row, :, :length], **_EXACT)


def test_heads_are_softmaxes_written_out(global_tokens):
    """Token by token, from the states before the layer."""
    inputs, model = batch("longformer", global_tokens), load_model(build("longformer"))
    with torch.no_grad(), tap(model, hidden=True, heads=True) as seen:
        model.module(**inputs)
        for layer, window in enumerate(_WINDOWS):
            attention = model.module.longformer.encoder.layer[layer].attention.self
            states = seen.hidden["encoder"][layer]
            for row, length in enumerate(_LENGTHS):
                central = {token for at, token in global_tokens if at == row}
                for query in range(length):
                    ends = "_global" if query in central else ""
                    q, k, v = (
                        getattr(attention, part + ends)(states[row, :length]).unflatten(1, (4, 4))
                        for part in ("query", "key", "value")
                    )
                    keys = [
                        key
                        for key in range(length)
                        if abs(key - query) <= window // 2 or key in central or query in central
                    ]
                    for head in range(4):
                        scores = torch.stack([q[query, head] @ k[key, head] for key in keys]) / math.sqrt(4)
                        expected = scores.softmax(0) @ v[keys, head]
                        found = seen.heads["encoder", "self"][layer][row, query, head]
                        torch.testing.assert_close(found, expected, **_EXACT)


def test_edited_weights_and_gates_act(family, global_tokens):
    inputs, model = batch(family, global_tokens), load_model(build(family))
    place, kept = ("encoder", "self", 1), {}

    def double(call):
        if (call.stack, call.kind, call.layer) == place:
            kept["heads"] = 2 * call.context().transpose(1, 2)
            return call.edited(weights=2 * call.weights)
        return None

    def by_hand(call):
        return kept["heads"] if (call.stack, call.kind, call.layer) == place else None

    gates = {key: [torch.ones(4)] * len(layers) for key, layers in _layers(model).items()}
    gates["encoder", "self"] = [torch.ones(4), torch.full((4,), 2.0), torch.ones(4)]
    with torch.no_grad():
        with tap(model, on_attention=double):
            edited = model.module(**inputs).logits
        with tap(model, on_heads=by_hand):
            expected = model.module(**inputs).logits
        with tap(model, gates=gates):
            gated = model.module(**inputs).logits
        assert (edited - model.module(**inputs).logits).abs().max() > 1e-4
    torch.testing.assert_close(edited, expected, **_EXACT)
    torch.testing.assert_close(gated, expected, **_EXACT)


def _layers(model):
    found = {}
    for one in model.anatomy.attentions():
        found.setdefault((one.stack, one.kind), []).append(one.layer)
    return found


def test_gradients_reach_weights_and_global_projections():
    inputs, model = batch("longformer", ((0, 0), (1, 0))), load_model(build("longformer"))
    leaves = []

    def open_leaf(call):
        leaves.append(torch.zeros_like(call.weights, requires_grad=True))
        return call.edited(weights=call.weights + leaves[-1])

    with tap(model, on_attention=open_leaf):
        model.module(**inputs).logits[:, :7].tanh().sum().backward()
    assert len(leaves) == 3
    assert all(leaf.grad.abs().max() > 1e-6 for leaf in leaves)
    attention = model.module.longformer.encoder.layer[0].attention.self
    assert all(getattr(attention, f"{part}_global").weight.grad.abs().max() > 0 for part in ("query", "key", "value"))


def test_the_first_token_is_global_where_the_configuration_says_so(tmp_path):
    inputs = batch("longformer", ((0, 0), (1, 0)))
    build("longformer", first_token_is_global=True).save_pretrained(tmp_path)
    model = load_model(tmp_path)
    given = {name: inputs[name] for name in ("input_ids", "attention_mask")}
    with torch.no_grad():
        expected = build("longformer")(**inputs).logits
        found = model.module(**given).logits
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(found[real], expected[real], **_EXACT)


def test_heads_can_be_ablated_but_not_removed():
    model = load_model(build("longformer"))
    with pytest.raises(UserError, match="banded or block attention"):
        remove_heads(model.module, model.anatomy, {("encoder", "self", 0): [1]})


# -- LongT5


def long_t5(**settings):
    torch.manual_seed(0)
    config = transformers.LongT5Config(
        vocab_size=40, d_model=16, d_kv=4, num_heads=4, d_ff=24, num_layers=3, num_decoder_layers=2, local_radius=2,
        pad_token_id=0, decoder_start_token_id=0, **settings,
    )  # fmt: skip
    module = transformers.LongT5ForConditionalGeneration(config)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.3)
    return module.eval()


def test_long_t5_is_what_its_own_code_computes():
    """Eleven tokens are four blocks of three, the last one not full."""
    inputs, model = batch("led"), load_model(long_t5())
    with torch.no_grad():
        expected = long_t5()(**inputs, output_hidden_states=True, output_attentions=True)
        with tap(model, hidden=True, attention=True, heads=True) as seen:
            found = model.module(**inputs)
    torch.testing.assert_close(found.logits, expected.logits, **_EXACT)
    real = inputs["attention_mask"].bool()
    for mine, its in zip(seen.hidden["encoder"][:-1], expected.encoder_hidden_states[:-1], strict=True):
        torch.testing.assert_close(mine[real], its[real], **_EXACT)
    for weights, blocked in zip(seen.attention["encoder", "self"], expected.encoder_attentions, strict=True):
        assert blocked.shape == (2, 4, 4, 3, 9)  # (B, N, H, 3, 9)
        dense = torch.zeros_like(weights)
        for query in range(11):
            for key in range(11):
                if abs(query - key) <= 2:
                    place = key - (query // 3 - 1) * 3
                    dense[:, :, query, key] = blocked[:, query // 3, :, query % 3, place]
        for row, length in enumerate(_LENGTHS):
            torch.testing.assert_close(weights[row, :, :length], dense[row, :, :length], **_EXACT)


def test_long_t5_s_heads_can_be_gated_and_its_weights_edited():
    inputs, model = batch("led"), load_model(long_t5())
    gates = {key: [torch.ones(4)] * len(layers) for key, layers in _layers(model).items()}
    gates["encoder", "self"] = [torch.ones(4), torch.zeros(4), torch.ones(4)]

    def none(call):
        here = (call.stack, call.kind, call.layer) == ("encoder", "self", 1)
        return call.edited(weights=torch.zeros_like(call.weights)) if here else None

    with torch.no_grad():
        with tap(model, gates=gates):
            gated = model.module(**inputs).logits
        with tap(model, on_attention=none):
            edited = model.module(**inputs).logits
        assert (edited - model.module(**inputs).logits).abs().max() > 1e-4
    torch.testing.assert_close(edited, gated, **_EXACT)
    with pytest.raises(UserError, match="banded or block attention"):
        remove_heads(model.module, model.anatomy, {("encoder", "self", 0): [1]})


def test_heads_of_long_t5_with_summaries_of_blocks_are_not_read():
    model = load_model(long_t5(encoder_attention_type="transient-global", global_block_size=4))
    assert "The encoder of LongT5ForConditionalGeneration never calls" in model.anatomy.unread
