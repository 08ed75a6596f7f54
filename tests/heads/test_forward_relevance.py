"""ALTI, rollout and direct logit attribution against explicit loops."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest
import torch

from infoflow.foundation import UserError
from infoflow.heads import alti_contributions, attention_flow, attention_rollout, relevance, token_relevance
from infoflow.heads._relevance._mixing import sublayers
from infoflow.models import load_model, tap

IDS = torch.tensor([[5, 6, 7, 8]])
STEPS = torch.tensor([[2, 9, 4]])


@pytest.fixture(scope="module")
def build():
    """Tiny random models of every family, as the tests of models have them."""
    path = Path(__file__).parents[1] / "models" / "conftest.py"
    spec = importlib.util.spec_from_file_location("families", path)
    families = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(families)
    return lambda family: families.build(family).double()


def batch_of(family):
    return {"input_ids": IDS} | ({"decoder_input_ids": STEPS} if family in ("bart", "mbart", "encoder-decoder") else {})


def states_after_attention(model, batch):
    """Outputs of every attention sublayer, from hooks on what comes after: the norm, or the next norm's input."""
    module, found, hooks = model.module, {}, []
    for one in model.anatomy.attentions():
        block = module.get_submodule(model.anatomy.stack(one.stack).layers[one.layer].block)
        place = (one.stack, one.kind, one.layer)

        def keep(place=place, inputs=False):
            def hook(module, args, output):
                found[place] = (args[0] if inputs else output)[0].detach()

            return hook

        if hasattr(block, "ln_2"):  # GPT-2 is pre-norm
            hooks.append(block.ln_2.register_forward_hook(keep(inputs=True)))
        elif hasattr(block, "attention"):  # BERT is post-norm
            part = block.attention if one.kind == "self" else block.crossattention
            hooks.append(part.output.LayerNorm.register_forward_hook(keep()))
        else:  # BART is post-norm; mBART is pre-norm
            names = ["self_attn_layer_norm", *(["encoder_attn_layer_norm"] if one.stack == "decoder" else [])]
            names.append("final_layer_norm")
            index = 0 if one.kind == "self" else 1
            before = type(module).__name__.startswith("MBart")
            norm = getattr(block, names[index + before])
            hooks.append(norm.register_forward_hook(keep(inputs=before)))
    with torch.no_grad():
        module(**batch)
    for hook in hooks:
        hook.remove()
    return found


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart", "mbart", "encoder-decoder"])
def test_alti_terms_and_biases_add_up_to_the_output(build, family):
    model = load_model(build(family))
    batch = batch_of(family)
    outputs = states_after_attention(model, batch)
    found = sublayers(model, batch)
    assert len(found) == len(outputs)
    for one in found:
        summed = one.terms(slice(None)).sum(1)
        if one.output.bias is not None:
            summed = summed + one.linearised(one.output.bias.expand_as(summed))
        if one.norm is not None and one.norm.bias is not None:
            summed = summed + one.norm.bias
        torch.testing.assert_close(summed, outputs[one.place])
        torch.testing.assert_close(one.made, outputs[one.place])


def alti_by_hand(module, layers, attentions, states, cross=None):
    """Contribution matrix and head contributions of BERT's attention sublayers, number by number."""
    maps, by_head = [], []
    for layer, A, x in zip(layers, attentions, states, strict=True):
        own, norm = layer.attention, layer.attention.output.LayerNorm
        v = own.self.value(x).unflatten(1, (4, -1))
        W = own.output.dense.weight.T.unflatten(0, (4, -1))
        z = x + sum(A[h] @ v[:, h] @ W[h] for h in range(4)) + own.output.dense.bias
        y = norm(z)

        def lin(part, i, z=z, norm=norm):
            return (part - part.mean()) * norm.weight / (z[i].var(unbiased=False) + norm.eps).sqrt()

        n = len(x)
        c, heads = np.zeros((n, n)), np.zeros((n, 4))
        for i in range(n):
            for j in range(n):
                part = sum(A[h, i, j] * v[j, h] @ W[h] for h in range(4)) + (x[i] if i == j else 0)
                c[i, j] = max(0.0, float(y[i].abs().sum() - (y[i] - lin(part, i)).abs().sum()))
            for h in range(4):
                part = lin(sum(A[h, i, j] * v[j, h] @ W[h] for j in range(n)), i)
                heads[i, h] = max(0.0, float(y[i].abs().sum() - (y[i] - part).abs().sum())) / c[i].sum()
            c[i] /= c[i].sum()
        maps.append(c)
        by_head.append(heads)
    return maps, by_head


def test_alti_agrees_with_loops(build):
    module = build("bert")
    model = load_model(module)
    with torch.no_grad(), tap(model, hidden=True, attention=True) as seen:
        module(input_ids=IDS)
    attentions = [layer[0] for layer in seen.attention["encoder", "self"]]
    states = [state[0] for state in seen.hidden["encoder"]][:-1]
    with torch.no_grad():
        maps, by_head = alti_by_hand(module, module.bert.encoder.layer, attentions, states)
    contributions = alti_contributions(model, {"input_ids": IDS})[0]
    for layer, expected in enumerate(maps):
        np.testing.assert_allclose(contributions["encoder", "self", layer], expected, atol=1e-10)
    tokens = token_relevance(model, {"input_ids": IDS}, "alti", position=2)["relevance"]
    np.testing.assert_allclose(tokens, (maps[2] @ maps[1] @ maps[0])[2], atol=1e-10)
    heads = relevance(model, {"input_ids": IDS}, "alti", position=2, normalise=None)["relevance"]
    reaching = [maps[2] @ maps[1], maps[2], np.eye(4)]
    expected = [(reach @ head)[2] for reach, head in zip(reaching, by_head, strict=True)]
    np.testing.assert_allclose(heads.to_numpy().reshape(3, 4), np.stack(expected), atol=1e-10)


def test_rollout_is_the_public_function_for_tokens(build):
    for family in ("bert", "gpt2"):
        model = load_model(build(family))
        with torch.no_grad(), tap(model, attention=True) as seen:
            model.module(input_ids=IDS)
        (weights,) = seen.attention.values()
        tokens = token_relevance(model, {"input_ids": IDS}, "rollout", position=3)["relevance"]
        np.testing.assert_allclose(tokens, attention_rollout(weights)[-1, 0, 3], atol=1e-12)


def test_flow_is_the_public_function_for_tokens(build):
    model = load_model(build("bert"))
    with torch.no_grad(), tap(model, attention=True) as seen:
        model.module(input_ids=IDS)
    tokens = token_relevance(model, {"input_ids": IDS}, "flow", position=1)["relevance"]
    np.testing.assert_allclose(tokens, attention_flow(seen.attention["encoder", "self"])[0, 1], atol=1e-12)
    with pytest.raises(UserError, match="no relevance of heads"):
        relevance(model, {"input_ids": IDS}, "flow")
    with pytest.raises(UserError, match="single stacks"):
        token_relevance(load_model(build("bart")), batch_of("bart"), "flow")


def test_rollout_from_decoder_to_encoder_agrees_with_products(build):
    model = load_model(build("bart"))
    with torch.no_grad(), tap(model, attention=True) as seen:
        model.module(**batch_of("bart"))
    mean = {key: [layer[0].mean(0).numpy() for layer in layers] for key, layers in seen.attention.items()}
    source = np.eye(4)
    for A in mean["encoder", "self"]:
        source = (A / 2 + np.eye(4) / 2) @ source
    rolled = np.concatenate([np.zeros((3, 4)), np.eye(3)], axis=1)  # source tokens, target tokens
    for own, cross in zip(mean["decoder", "self"], mean["decoder", "cross"], strict=True):
        rolled = (own / 2 + np.eye(3) / 2) @ rolled
        rolled = rolled / 2 + cross / 2 @ np.concatenate([source, np.zeros((4, 3))], axis=1)
    tokens = token_relevance(model, batch_of("bart"), "rollout", position=1)["relevance"]
    np.testing.assert_allclose(tokens, rolled[1], atol=1e-12)


@pytest.mark.parametrize("family", ["gpt2", "llama"])
def test_logit_attribution_and_the_rest_add_up_to_the_logit(build, family):
    """Heads are what the logit loses, along the linearised norm, when each head's output is taken from the stream."""
    module = build(family)
    model = load_model(module)
    with torch.no_grad(), tap(model, hidden=True, heads=True) as seen:
        logits = module(input_ids=IDS).logits[0]
    norm = module.transformer.ln_f if family == "gpt2" else module.model.norm
    z = seen.hidden["decoder"][-1][0, 2]
    target = int(logits[2].argmax())

    def read(stream):
        if family == "gpt2":
            scale = (z.var(unbiased=False) + norm.eps).sqrt()
            return (stream - stream.mean()) / scale * norm.weight @ module.lm_head.weight[target]
        return stream / (z.square().mean() + norm.variance_epsilon).sqrt() * norm.weight @ module.lm_head.weight[target]

    expected = []
    for one in model.anatomy.attentions():
        projection = module.get_submodule(one.output_projection)
        weight = projection.weight if one.transposed else projection.weight.T
        context = seen.heads["decoder", "self"][one.layer][0, 2]
        for head in range(4):
            written = context[head] @ weight.unflatten(0, (4, -1))[head]
            expected.append(float((read(z) - read(z - written)).detach()))
    frame = relevance(model, {"input_ids": IDS}, "logit-attribution", position=2, normalise=None)
    np.testing.assert_allclose(frame["relevance"], expected, rtol=1e-5, atol=1e-7)


def test_what_has_no_answer_says_so(build):
    bert = load_model(build("bert"))
    with pytest.raises(UserError, match="Direct logit attribution needs heads"):
        relevance(bert, {"input_ids": IDS}, "logit-attribution")
    with pytest.raises(UserError, match="has no relevance of tokens"):
        token_relevance(load_model(build("gpt2")), {"input_ids": IDS}, "logit-attribution")
    with pytest.raises(UserError, match="ALTI needs attention modules"):
        relevance(load_model(build("gemma2")), {"input_ids": IDS}, "alti")


def test_a_position_that_is_padding_leaves_its_sentence_out(build):
    model = load_model(build("bert"))
    two = {
        "input_ids": torch.tensor([[5, 6, 7, 8], [9, 4, 0, 0]]),
        "attention_mask": torch.tensor([[1] * 4, [1, 1, 0, 0]]),
    }
    found = relevance(model, two, "rollout", position=3)["relevance"]
    np.testing.assert_allclose(
        found, relevance(model, {"input_ids": IDS}, "rollout", position=3)["relevance"], atol=1e-9
    )
    with pytest.raises(UserError, match="no position whose prediction counts"):
        relevance(model, {name: value[1:] for name, value in two.items()}, "rollout", position=3)


def test_half_precision_is_refused(build):
    model = load_model(build("bert").to(torch.bfloat16))
    with pytest.raises(UserError, match="needs a model in float32"):
        relevance(model, {"input_ids": IDS}, "alti")


def test_alti_of_a_padded_sentence_is_that_of_the_sentence(build):
    model = load_model(build("bert"))
    padded = {"input_ids": torch.tensor([[5, 6, 7, 8, 0]]), "attention_mask": torch.tensor([[1, 1, 1, 1, 0]])}
    for method in ("alti", "rollout"):
        alone = relevance(model, {"input_ids": IDS}, method, normalise=None)["relevance"]
        together = relevance(model, padded, method, normalise=None)["relevance"]
        np.testing.assert_allclose(together, alone, atol=1e-9)
