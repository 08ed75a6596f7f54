"""Gradient times input, CP-LRP, AttnLRP and Chefer against explicit rules."""

import importlib.util
from pathlib import Path

import pytest
import torch
from torch.autograd.functional import jacobian
from transformers import BertConfig, BertModel

from infoflow.foundation import UserError
from infoflow.heads import relevance, sentence_relevance, token_relevance
from infoflow.models import load_model, tap


@pytest.fixture(scope="module")
def build():
    """Tiny random models of every family, as the tests of models have them."""
    path = Path(__file__).parents[1] / "models" / "conftest.py"
    spec = importlib.util.spec_from_file_location("families", path)
    families = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(families)
    return lambda family: families.build(family).double()


IDS = torch.tensor([[5, 6, 7, 8]])


def without_biases(module):
    for name, parameter in module.named_parameters():
        if name.endswith("bias"):
            torch.nn.init.zeros_(parameter)
    return module


@pytest.mark.parametrize("family", ["gpt2", "bart", "encoder-decoder"])  # Llama norms in float32
def test_gradient_times_input_is_the_derivative_by_a_gate(build, family):
    model = load_model(build(family))
    batch = {"input_ids": IDS} | ({"decoder_input_ids": torch.tensor([[2, 9, 4]])} if family != "gpt2" else {})
    frame = relevance(model, batch, "gradient-x-input", position=2, target=11, normalise=None)
    step, found = 1e-5, []
    for row in frame.itertuples():
        numbers = []
        for change in (step, -step):
            layers = [one for one in model.anatomy.attentions() if (one.stack, one.kind) == (row.stack, row.kind)]
            gates = torch.ones(len(layers), layers[0].num_heads, dtype=torch.float64)
            gates[row.layer, row.head] += change
            with torch.no_grad(), tap(model, gates={(row.stack, row.kind): gates}):
                numbers.append(model.module(**batch).logits[0, 2, 11])
        found.append((numbers[0] - numbers[1]) / (2 * step))
    torch.testing.assert_close(torch.tensor(frame["relevance"].to_numpy()), torch.stack(found), rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("family", ["llama", "qwen3", "gpt2"])
def test_cp_lrp_conserves_the_logit_without_biases(build, family):
    model = load_model(without_biases(build(family)))
    tokens = token_relevance(model, {"input_ids": IDS}, "cp-lrp")
    with torch.no_grad():
        top = model.module(input_ids=IDS).logits[0].max(1).values
    sums = torch.tensor(tokens.groupby("position")["relevance"].sum().to_numpy())
    torch.testing.assert_close(sums, top, rtol=1e-6, atol=1e-8)


def test_attn_lrp_does_not_conserve_through_softmax(build):
    model = load_model(build("llama"))
    tokens = token_relevance(model, {"input_ids": IDS}, "attn-lrp", position=3)
    with torch.no_grad():
        top = model.module(input_ids=IDS).logits[0, 3].max()
    assert abs(tokens["relevance"].sum() - float(top)) > 0.01 * float(top)


def zero_rule(function, x, R):
    """A linear map without bias: R_i = Σ_o z_oi / Σ_i z_oi R_o, z_oi = J_oi x_i."""
    z = jacobian(function, x).reshape(R.numel(), x.numel()) * x.flatten()
    return (z / z.sum(1, keepdim=True) * R.flatten()[:, None]).sum(0).reshape(x.shape)


def rotated(x, cos, sin):
    half = x.shape[-1] // 2
    return x * cos + torch.cat([-x[..., half:], x[..., :half]], -1) * sin


def product_rule(terms, R):
    """R of a sum of products a · b, which both factors share equally: half of each product's part to each."""
    return terms / terms.sum(-1, keepdim=True) * R.unsqueeze(-1) / 2


def llama_layer_back(layer, x, cos, sin, R, variant):
    """One layer by explicit rules. Returns the heads' relevance and the input's."""
    own, heads = layer.self_attn, 4
    repeat = heads // 2
    normed = layer.input_layernorm(x)
    q_plain = own.q_proj(normed).unflatten(1, (heads, -1)).transpose(0, 1)
    k_plain = own.k_proj(normed).unflatten(1, (2, -1)).transpose(0, 1)
    v = own.v_proj(normed).unflatten(1, (2, -1)).transpose(0, 1).repeat_interleave(repeat, 0)
    q, k = rotated(q_plain, cos, sin), rotated(k_plain, cos, sin).repeat_interleave(repeat, 0)
    scores = q @ k.mT * own.scaling
    causal = torch.ones(scores.shape[1:]).tril().bool()
    weights = scores.masked_fill(~causal, -torch.inf).softmax(2)
    context = weights @ v
    attended = own.o_proj(context.transpose(0, 1).flatten(1))
    middle = x + attended
    normed_2 = layer.post_attention_layernorm(middle)
    gate, up = layer.mlp.gate_proj(normed_2), layer.mlp.up_proj(normed_2)
    hidden = layer.mlp.act_fn(gate) * up
    out = layer.mlp.down_proj(hidden)
    # back: sums share in proportion, norms with a constant deviation and activations pass
    total = middle + out
    R_out, R_skip = R * out / total, R * middle / total
    R_hidden = zero_rule(layer.mlp.down_proj, hidden, R_out)
    share = 0.5 if variant == "attn-lrp" else 0.0
    R_normed = zero_rule(layer.mlp.gate_proj, normed_2, share * R_hidden)
    R_middle = R_skip + R_normed + zero_rule(layer.mlp.up_proj, normed_2, (1 - share) * R_hidden)
    R_attended, R_x = R_middle * attended / middle, R_middle * x / middle
    R_context = zero_rule(own.o_proj, context.transpose(0, 1).flatten(1), R_attended)
    R_heads = R_context.unflatten(1, (heads, -1)).transpose(0, 1)
    # context_te = Σ_s A_ts v_se
    terms_HTeS = weights.unsqueeze(2) * v.mT.unsqueeze(1)
    parts_HTeS = product_rule(terms_HTeS, R_heads).nan_to_num(0)
    R_v = parts_HTeS.sum(1).mT
    R_states = torch.zeros_like(normed)
    if variant == "cp-lrp":
        R_v = 2 * R_v  # the weights are constants
    else:
        R_weights = parts_HTeS.sum(2)
        R_scores = scores * (R_weights - weights * R_weights.sum(2, keepdim=True))
        pairs_HTSf = q.unsqueeze(2) * k.unsqueeze(1) * own.scaling
        parts_HTSf = product_rule(pairs_HTSf, R_scores * causal)
        R_q = zero_rule(lambda u: rotated(u, cos, sin), q_plain, parts_HTSf.sum(2))
        R_k = parts_HTSf.sum(1).unflatten(0, (2, repeat)).sum(1)
        R_k = zero_rule(lambda u: rotated(u, cos, sin), k_plain, R_k)
        R_states = R_states + zero_rule(own.q_proj, normed, R_q.transpose(0, 1).flatten(1))
        R_states = R_states + zero_rule(own.k_proj, normed, R_k.transpose(0, 1).flatten(1))
    R_v = R_v.unflatten(0, (2, repeat)).sum(1)
    R_states = R_states + zero_rule(own.v_proj, normed, R_v.transpose(0, 1).flatten(1))
    return R_heads.sum((1, 2)), R_x + R_states


@pytest.mark.parametrize("variant", ["cp-lrp", "attn-lrp"])
def test_rules_on_llama_agree_with_explicit_propagation(build, variant):
    module = build("llama")
    model, decoder = load_model(module), module.model
    with torch.no_grad(), tap(model, hidden=True) as seen:
        logits = module(input_ids=IDS).logits[0]
        cos, sin = (part[0] for part in decoder.rotary_emb(seen.hidden["decoder"][0], torch.arange(4)[None]))
    states = [one[0] for one in seen.hidden["decoder"]]
    final = decoder.norm(states[-1]).detach()
    target = int(logits[2].argmax())
    R = torch.zeros_like(final)
    R[2] = final[2] * module.lm_head.weight[target].detach()
    heads = []
    with torch.no_grad():
        for layer, x in zip(reversed(decoder.layers), reversed(states[:-1]), strict=True):
            with torch.enable_grad():
                by_head, R = llama_layer_back(layer, x, cos, sin, R, variant)
            heads.insert(0, by_head.detach())
            R = R.detach()
    frame = relevance(model, {"input_ids": IDS}, variant, position=2, normalise=None)
    found = torch.tensor(frame["relevance"].to_numpy()).reshape(3, 4)
    torch.testing.assert_close(found, torch.stack(heads), rtol=1e-5, atol=1e-7)
    tokens = token_relevance(model, {"input_ids": IDS}, variant, position=2)
    torch.testing.assert_close(torch.tensor(tokens["relevance"].to_numpy()), R.sum(1), rtol=1e-5, atol=1e-7)


def positive_maps(module, batch, position):
    """Mean over heads of (∇A ∘ A)⁺ of every attention, from the model's own eager attention, and its sum by head."""
    module.set_attn_implementation("eager")
    output = module(**batch, output_attentions=True)
    y = output.logits[0, position].max()
    names = ("encoder_attentions", "decoder_attentions", "cross_attentions")
    maps = {}
    for name in names if "decoder_input_ids" in batch else ("attentions",):
        weights = output[name]
        gradients = torch.autograd.grad(y, weights, retain_graph=True, allow_unused=True)
        maps[name] = [(g * a).clamp(min=0)[0].detach() for g, a in zip(gradients, weights, strict=True)]
    return maps


def test_chefer_follows_its_rules_in_an_encoder(build):
    maps = positive_maps(build("bert"), {"input_ids": IDS}, 1)["attentions"]
    R = torch.eye(4, dtype=torch.float64)
    for layer in maps:
        R = R + layer.mean(0) @ R
    model = load_model(build("bert"))
    tokens = token_relevance(model, {"input_ids": IDS}, "chefer", position=1)
    torch.testing.assert_close(torch.tensor(tokens["relevance"].to_numpy()), R[1])
    frame = relevance(model, {"input_ids": IDS}, "chefer", position=1, normalise=None)
    by_head = torch.stack([layer.sum((1, 2)) for layer in maps])
    torch.testing.assert_close(torch.tensor(frame["relevance"].to_numpy()).reshape(3, 4), by_head)


def test_chefer_follows_its_rules_from_encoder_to_decoder(build):
    batch = {"input_ids": IDS, "decoder_input_ids": torch.tensor([[2, 8, 9]])}
    maps = positive_maps(build("bart"), batch, 2)
    source, target = torch.eye(4, dtype=torch.float64), torch.eye(3, dtype=torch.float64)
    across = torch.zeros(3, 4, dtype=torch.float64)
    for layer in maps["encoder_attentions"]:
        source = source + layer.mean(0) @ source

    def normed(R):
        rest = R - torch.eye(len(R))
        return (rest / rest.sum(1, keepdim=True)).nan_to_num(0) + torch.eye(len(R))

    for own, cross in zip(maps["decoder_attentions"], maps["cross_attentions"], strict=True):
        across = across + own.mean(0) @ across
        target = target + own.mean(0) @ target
        across = across + normed(target).T @ cross.mean(0) @ normed(source)
    tokens = token_relevance(load_model(build("bart")), batch, "chefer", position=2)
    torch.testing.assert_close(torch.tensor(tokens["relevance"].to_numpy()), torch.cat([across[2], target[2]]))


@pytest.mark.parametrize("method", ["gradient-x-input", "cp-lrp", "attn-lrp", "chefer", "voita"])
@pytest.mark.parametrize("family", ["bert", "bart"])
def test_padding_and_batches_change_nothing(build, family, method):
    model = load_model(build(family))
    short = {"input_ids": torch.tensor([[9, 12, 3]])}
    padded = {
        "input_ids": torch.tensor([[9, 12, 3, 0, 0], [5, 6, 7, 8, 9]]),
        "attention_mask": torch.tensor([[1, 1, 1, 0, 0], [1, 1, 1, 1, 1]]),
    }
    if family == "bart":
        short["decoder_input_ids"] = torch.tensor([[2, 7]])
        padded["decoder_input_ids"] = torch.tensor([[2, 7, 0], [2, 8, 9]])
    alone = token_relevance(model, short, method)
    together = token_relevance(model, padded, method)
    together = together[(together["sentence"] == 0) & ((together["stack"] == "decoder") | (together["token"] < 3))]
    together = together[(together["stack"] == "encoder") | (together["token"] < 2)]
    torch.testing.assert_close(
        torch.tensor(together["relevance"].to_numpy()),
        torch.tensor(alone["relevance"].to_numpy()),
        rtol=1e-6,
        atol=1e-9,
    )


def test_all_positions_are_the_mean_of_each(build):
    model = load_model(build("gpt2"))
    for method in ("voita", "gradient-x-input", "chefer"):
        each = [relevance(model, {"input_ids": IDS}, method, position=p)["relevance"] for p in range(4)]
        whole = relevance(model, {"input_ids": IDS}, method)["relevance"]
        torch.testing.assert_close(torch.tensor(sum(each) / 4), torch.tensor(whole))


def test_a_masked_lm_explains_its_labelled_tokens(build):
    model = load_model(build("bert"))
    labels = torch.tensor([[-100, 6, -100, 8]])
    found = token_relevance(model, {"input_ids": IDS, "labels": labels}, "gradient-x-input")
    assert sorted(set(found["position"])) == [1, 3]


def test_normalisation_sums_to_one_over_heads(build):
    model = load_model(build("encoder-decoder"))
    batch = {"input_ids": IDS, "decoder_input_ids": torch.tensor([[1, 8, 9]])}
    for normalise in ("signed", "abs"):
        frame = relevance(model, batch, "attn-lrp", normalise=normalise)
        sums = frame.groupby(["stack", "kind", "layer"])["relevance"].sum()
        assert len(sums) == 2 + 3 + 3
        assert (sums - 1).abs().max() < 1e-9
        assert normalise == "signed" or frame["relevance"].between(0, 1).all()


def test_a_model_without_head_takes_a_function_of_its_output():
    torch.manual_seed(0)
    sizes = {"hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2, "intermediate_size": 24}
    model = load_model(BertModel(BertConfig(vocab_size=40, **sizes), add_pooling_layer=False))
    with pytest.raises(UserError, match="no language-model head"):
        relevance(model, {"input_ids": IDS}, "gradient-x-input")

    def length(output):
        return output.last_hidden_state.square().sum(2)

    found = relevance(model, {"input_ids": IDS}, "gradient-x-input", position=0, output=length)
    assert found["relevance"].notna().all()
    with pytest.raises(UserError, match="one number per row"):
        relevance(model, {"input_ids": IDS}, "gradient-x-input", output=lambda output: output.last_hidden_state)


def test_mistakes_are_named(build):
    model = load_model(build("bart"))
    batch = {"input_ids": IDS, "decoder_input_ids": torch.tensor([[2, 8]])}
    for mistake, message in (
        ({"method": "lrp"}, "method must be one of voita"),
        ({"method": "voita", "rule": "gamma"}, "rule must be one of"),
        ({"method": "voita", "eps": 1}, "takes rule, softmax"),
        ({"method": "chefer", "rule": "ratio"}, "takes output"),
        ({"method": "voita", "position": 2}, r"position must lie in 0..1"),
        ({"method": "voita", "target": 99}, r"target is a token id in 0..39"),
        ({"method": "voita", "normalise": "max"}, "normalise must be"),
    ):
        with pytest.raises(UserError, match=message):
            relevance(model, batch, **mistake)
    with pytest.raises(UserError, match="decoder_input_ids"):
        relevance(model, {"input_ids": IDS})
    with pytest.raises(UserError, match=r"no rule for what model\.layers\.2\.self_attn"):
        relevance(load_model(build("qwen3")), {"input_ids": IDS}, "voita")


def test_a_sentence_may_be_given_as_text(matched_models):
    model = matched_models["causal-lm"]
    text = "the old cat sleeps"
    found = sentence_relevance(model, text, method="attn-lrp")
    ids = model.tokenizer(text, return_tensors="pt")
    same = sentence_relevance(model, ids, method="attn-lrp")
    assert all(torch.equal(found.heads[place], same.heads[place]) for place in found.heads)
