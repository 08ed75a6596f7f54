"""The tap changes nothing when it reads, exactly the gated heads when it gates, and leaves no trace."""

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.models import load_model, model_inputs, pad_rows, tap


def implementations(module):
    return [child.config._attn_implementation for child in module.modules() if hasattr(child, "config")]


def num_hooks(module):
    return sum(len(child._forward_hooks) + len(child._forward_pre_hooks) for child in module.modules())


def gates_of(model, value=1.0):
    gates = {}
    for one in model.anatomy.attentions():
        gates.setdefault((one.stack, one.kind), []).append(torch.full((one.num_heads,), value))
    return {key: torch.stack(rows) for key, rows in gates.items()}


def test_logits_equal_eager_attention(model, raw_inputs, eager):
    with torch.no_grad():
        with tap(model, hidden=True, attention=True, heads=True):
            tapped = model.module(**raw_inputs).logits
        with eager(model.module):
            expected = model.module(**raw_inputs).logits
    assert torch.equal(tapped, expected)


def test_reading_without_attention_changes_no_bit(model, raw_inputs):
    with torch.no_grad():
        expected = model.module(**raw_inputs).logits
        with tap(model, hidden=True, heads=True):
            assert torch.equal(model.module(**raw_inputs).logits, expected)


def test_attention_equals_eager_output_attentions(model, raw_inputs, eager):
    with torch.no_grad():
        with tap(model, attention=True) as seen:
            model.module(**raw_inputs)
        with eager(model.module):
            output = model.module(**raw_inputs, output_attentions=True)
    names = {("encoder", "self"): "attentions", ("decoder", "self"): "attentions"}
    if model.task == "seq2seq":
        names = {
            ("encoder", "self"): "encoder_attentions",
            ("decoder", "self"): "decoder_attentions",
            ("decoder", "cross"): "cross_attentions",
        }
    for key, weights in seen.attention.items():
        expected = output[names[key]]
        assert len(weights) == len(expected) == len(model.anatomy.stack(key[0]).layers)
        for layer, layer_expected in zip(weights, expected, strict=True):
            assert torch.equal(layer, layer_expected)
            torch.testing.assert_close(layer.sum(-1), torch.ones(layer.shape[:-1]))


def test_states_equal_hugging_face_hidden_states_below_the_top(model, raw_inputs):
    with torch.no_grad(), tap(model, hidden=True) as seen:
        output = model.module(**raw_inputs, output_hidden_states=True)
    prefixed = model.task == "seq2seq"
    for stack, states in seen.hidden.items():
        expected = output[f"{stack}_hidden_states" if prefixed else "hidden_states"]
        assert len(states) == len(expected) == len(model.anatomy.stack(stack).layers) + 1
        for state, layer_expected in zip(states[:-1], expected[:-1], strict=True):
            assert torch.equal(state, layer_expected)


def test_top_state_is_the_blocks_own_output(models, rows):
    """Hugging Face's last hidden state is after the final norm in pre-norm families; ours is before it."""
    model = models("llama")
    inputs = model_inputs(model, torch.tensor([rows[0]]))
    with torch.no_grad(), tap(model, hidden=True) as seen:
        output = model.module(**inputs, output_hidden_states=True)
    top = seen.hidden["decoder"][-1]
    assert not torch.allclose(top, output.hidden_states[-1])
    torch.testing.assert_close(model.module.model.norm(top), output.hidden_states[-1])


def test_heads_are_attention_times_values(model, raw_inputs):
    calls = []
    with torch.no_grad(), tap(model, heads=True, on_attention=lambda call: calls.append(call)) as seen:
        model.module(**raw_inputs)
    assert len(calls) == sum(1 for _ in model.anatomy.attentions())
    for call in calls:
        explicit = torch.einsum("bhts,bhsd->bthd", call.weights, call.value)
        torch.testing.assert_close(seen.heads[call.stack, call.kind][call.layer], explicit)


def test_zero_gate_equals_zeroed_columns_of_the_output_projection(model, models, family, raw_inputs):
    """One head per kind, another in every layer; for shared layers the same head throughout."""
    edited, gates = models(family, fresh=True), gates_of(model)
    for one in edited.anatomy.attentions():
        head = 1 if edited.anatomy.stack(one.stack).shared else one.layer % one.num_heads
        gates[one.stack, one.kind][one.layer, head] = 0
        part = one.output.head(head)[0]
        weight = edited.module.get_parameter(part.parameter)
        with torch.no_grad():
            weight.masked_fill_(part.mask(weight), 0)
    with torch.no_grad():
        expected = edited.module(**raw_inputs).logits
        with tap(model, gates=gates):
            gated = model.module(**raw_inputs).logits
        plain = model.module(**raw_inputs).logits
    torch.testing.assert_close(gated, expected, rtol=1e-5, atol=1e-5)
    assert not torch.allclose(gated, plain, atol=1e-3), "the gate must act"


def test_gate_gradient_is_gradient_times_head_output(model, raw_inputs):
    gates = {key: value.requires_grad_() for key, value in gates_of(model).items()}
    with tap(model, gates=gates, heads=True) as seen:
        loss = model.module(**raw_inputs).logits.square().mean()
        kept = [(key, layer, heads) for key, layers in seen.heads.items() for layer, heads in enumerate(layers)]
        gradients = torch.autograd.grad(loss, [*gates.values(), *(heads for *_, heads in kept)])
    by_gate = dict(zip(gates, gradients, strict=False))
    for (key, layer, heads), gradient in zip(kept, gradients[len(gates) :], strict=True):
        explicit = (heads * gradient).sum(dim=(0, 1, 3))
        torch.testing.assert_close(by_gate[key][layer], explicit, rtol=1e-4, atol=1e-6)


def test_gates_per_example_gate_each_sentence_alone(models, rows):
    model = models("bert")
    inputs = model_inputs(model, torch.tensor([rows[0][:4], rows[1]]))
    gates = torch.ones(3, 2, 4)
    gates[1, 0, 2] = 0
    shared = torch.ones(3, 4)
    shared[1, 2] = 0
    with torch.no_grad():
        plain = model.module(**inputs).logits
        with tap(model, gates={("encoder", "self"): gates}):
            own = model.module(**inputs).logits
        with tap(model, gates={("encoder", "self"): shared}):
            both = model.module(**inputs).logits
    torch.testing.assert_close(own[0], both[0])
    torch.testing.assert_close(own[1], plain[1])
    assert not torch.allclose(own[0], plain[0])


def test_everything_is_restored_also_after_an_error(model, raw_inputs):
    before, hooks = implementations(model.module), num_hooks(model.module)
    with torch.no_grad():
        expected = model.module(**raw_inputs).logits

    def fail(call):
        raise RuntimeError("halfway")

    with (
        pytest.raises(RuntimeError, match="halfway"),
        tap(model, hidden=True, attention=True, heads=True, gates=gates_of(model, 0.5), on_attention=fail),
    ):
        model.module(**raw_inputs)
    assert implementations(model.module) == before
    assert num_hooks(model.module) == hooks
    assert not model.module.training
    with torch.no_grad():
        assert torch.equal(model.module(**raw_inputs).logits, expected)


def test_the_users_own_attention_setting_survives(build_module, rows):
    module = build_module("bert")
    module.set_attn_implementation("eager")
    model = load_model(module)
    with tap(model, attention=True):
        model.module(**model_inputs(model, torch.tensor([rows[0]])))
        assert module.config._attn_implementation != "eager"
    assert module.config._attn_implementation == "eager"
    assert len(module(torch.tensor([rows[0]]), output_attentions=True).attentions) == 3


def test_an_error_halfway_does_not_shift_shared_layers(models, rows):
    """ALBERT's one block counts its calls; the next forward pass counts from 0 again."""
    model = models("albert")
    inputs = model_inputs(model, torch.tensor([rows[0]]))
    layers, calls = [], []

    def fail_once(call):
        layers.append(call.layer)
        calls.append(call)
        if len(calls) == 2:
            raise RuntimeError("halfway")

    with torch.no_grad(), tap(model, hidden=True, on_attention=fail_once) as seen:
        with pytest.raises(RuntimeError, match="halfway"):
            model.module(**inputs)
        output = model.module(**inputs, output_hidden_states=True)
    assert layers == [0, 1, 0, 1, 2]
    for state, expected in zip(seen.hidden["encoder"], output.hidden_states, strict=True):
        assert torch.equal(state, expected)


def test_gating_one_layer_of_a_shared_block_gates_that_layer_only(models, rows):
    model = models("albert")
    inputs = model_inputs(model, torch.tensor([rows[0]]))
    gates = torch.ones(3, 4)
    gates[1] = 0
    with torch.no_grad(), tap(model, hidden=True) as plain:
        model.module(**inputs)
        with tap(model, hidden=True, heads=True, gates={("encoder", "self"): gates}) as gated:
            model.module(**inputs)
    assert [bool(heads.any()) for heads in gated.heads["encoder", "self"]] == [True, False, True]
    # Both taps saw the gated pass: the outer one is around everything.
    assert torch.equal(plain.hidden["encoder"][3], gated.hidden["encoder"][3])


def test_taps_nest(models, rows):
    """The inner tap sees what the outer one changed, and leaving it leaves the outer one alone."""
    model = models("gpt2")
    inputs = model_inputs(model, torch.tensor([rows[0]]))
    gates = torch.ones(3, 4)
    gates[2, 1] = 0
    with torch.no_grad(), tap(model, gates={("decoder", "self"): gates}, attention=True) as outer:
        gated = model.module(**inputs).logits
        with tap(model, heads=True, attention=True) as inner:
            assert torch.equal(model.module(**inputs).logits, gated)
        assert not inner.heads["decoder", "self"][2][:, :, 1].any()
        assert torch.equal(inner.attention["decoder", "self"][2], outer.attention["decoder", "self"][2])
        outer.clear()
        model.module(**inputs)
        assert len(outer.attention["decoder", "self"]) == 3
    assert model.module.config._attn_implementation == "sdpa"


def test_edited_weights_replace_attention(models, rows):
    """Attention of every head to itself only: each head's output is its own value."""
    model = models("llama")
    inputs = model_inputs(model, torch.tensor([rows[0]]))
    values = {}

    def diagonal(call):
        values[call.layer] = call.value
        return call.edited(weights=torch.eye(call.weights.shape[-1]).expand_as(call.weights))

    with torch.no_grad(), tap(model, heads=True, attention=True, on_attention=diagonal) as seen:
        model.module(**inputs)
    for layer, heads in enumerate(seen.heads["decoder", "self"]):
        torch.testing.assert_close(heads, values[layer].transpose(1, 2))
        assert torch.equal(seen.attention["decoder", "self"][layer][0, 0], torch.eye(7))


def test_removing_a_key_renormalises_the_others(models, rows):
    model = models("t5")  # scaling 1 and a position bias must survive the recomputation
    inputs = model_inputs(model, torch.tensor([rows[0]]), decoder_input_ids=torch.tensor([rows[1]]))
    before, after = {}, {}

    def remove_third(call):
        lost = torch.zeros(call.key.shape[2])
        lost[2] = torch.finfo(lost.dtype).min
        edited = call.edited(mask=lost if call.mask is None else call.mask + lost)
        if call.layer == 0 and call.kind == "self" and call.stack == "encoder":
            before["weights"], after["weights"] = call.weights, edited.weights
        return edited

    with torch.no_grad(), tap(model, on_attention=remove_third):
        model.module(**inputs)
    expected = before["weights"].clone()
    expected[..., 2] = 0
    torch.testing.assert_close(after["weights"], expected / expected.sum(-1, keepdim=True))


def test_edited_heads_replace_the_output(models, rows):
    model = models("bart")
    inputs = model_inputs(model, torch.tensor([rows[0]]), decoder_input_ids=torch.tensor([rows[1]]))
    sites = []

    def zero_cross(call):
        sites.append((call.stack, call.kind, call.layer))
        return torch.zeros_like(call.heads) if call.kind == "cross" else None

    with torch.no_grad():
        with tap(model, on_heads=zero_cross):
            edited = model.module(**inputs).logits
        with tap(model, gates={("decoder", "cross"): torch.zeros(3, 2)}):
            gated = model.module(**inputs).logits
    torch.testing.assert_close(edited, gated)
    assert len(sites) == len(set(sites)) == 2 + 3 + 3


def test_dropout_in_training_is_that_of_eager_attention(models, raw_inputs, family, eager):
    model = models(family, fresh=True)
    model.module.train()
    torch.manual_seed(3)
    with tap(model, attention=True):
        tapped = model.module(**raw_inputs).logits
    torch.manual_seed(3)
    with eager(model.module):
        expected = model.module(**raw_inputs).logits
    assert torch.equal(tapped, expected)


def test_attention_is_in_the_autograd_graph(model, raw_inputs, eager):
    with tap(model, attention=True, hidden=True) as seen:
        loss = model.module(**raw_inputs).logits.square().mean()
    tensors = [weights for layers in seen.attention.values() for weights in layers]
    tensors += [state for states in seen.hidden.values() for state in states]
    gradients = torch.autograd.grad(loss, tensors, allow_unused=True)
    missing = [index for index, gradient in enumerate(gradients) if gradient is None]
    assert not missing
    assert all(gradient.isfinite().all() for gradient in gradients)


def test_float64_with_left_padding_has_no_nan(build_module, rows):
    """Llama-type eager attention gives NaN here: it casts the lowest float64 to float32's minus infinity."""
    model = load_model(build_module("llama").double())
    inputs = model_inputs(model, *pad_rows(rows, 0, "left"))
    with torch.no_grad(), tap(model, attention=True, hidden=True) as seen:
        assert model.module(**inputs).logits.isfinite().all()
    weights = seen.attention["decoder", "self"][0]
    assert weights.dtype == torch.float64
    torch.testing.assert_close(weights.sum(-1), torch.ones(weights.shape[:-1], dtype=torch.float64))


@pytest.mark.parametrize("name", ["bert", "llama", "t5"])
def test_half_precision_computes_as_eager_and_shows_float32_weights(build_module, rows, name, eager):
    model = load_model(build_module(name).bfloat16())
    decoder = {"decoder_input_ids": torch.tensor([rows[1]])} if name == "t5" else {}
    inputs = model_inputs(model, torch.tensor([rows[0]]), **decoder)
    with torch.no_grad():
        with tap(model, attention=True) as seen:
            tapped = model.module(**inputs).logits
        with eager(model.module):
            expected = model.module(**inputs).logits
    assert torch.equal(tapped, expected)
    for weights in seen.attention.values():
        assert weights[0].dtype == torch.float32
        torch.testing.assert_close(weights[0].sum(-1), torch.ones(weights[0].shape[:-1]))


def test_layers_dropped_in_training_leave_no_trace_of_an_earlier_pass(models, rows):
    model = models("bart", fresh=True)
    inputs = model_inputs(model, torch.tensor([rows[0]]), decoder_input_ids=torch.tensor([rows[1]]))
    with tap(model, hidden=True) as seen:
        model.module(**inputs)
        model.module.train()
        model.module.model.encoder.layerdrop = 1.0
        model.module(**inputs)
    assert "encoder" not in seen.hidden
    assert all(len(state) for state in seen.hidden["decoder"])


def test_a_boolean_four_dimensional_mask_masks(models, rows):
    model = models("bert")
    ids = torch.tensor([rows[0]])
    allowed = torch.ones(1, 1, 7, 7, dtype=torch.bool).tril()
    with torch.no_grad():
        expected = model.module(input_ids=ids, attention_mask=allowed).logits
        with tap(model, attention=True) as seen:
            tapped = model.module(input_ids=ids, attention_mask=allowed).logits
    torch.testing.assert_close(tapped, expected, rtol=1e-5, atol=1e-5)
    assert not seen.attention["encoder", "self"][0].triu(1).any()


def test_generate_runs_under_the_tap(models, rows):
    model = models("encoder-decoder")
    inputs = {"input_ids": torch.tensor([rows[0]]), "num_beams": 2, "max_new_tokens": 4, "min_new_tokens": 4}
    inputs |= {"decoder_start_token_id": 1, "eos_token_id": 2, "pad_token_id": 0}
    with torch.no_grad():
        expected = model.module.generate(**inputs)
        with tap(model, hidden=True, attention=True) as seen:
            assert torch.equal(model.module.generate(**inputs), expected)
    assert seen.attention["decoder", "cross"][0].shape == (2, 4, 1, 7)
    assert seen.attention["decoder", "self"][2].shape == (2, 4, 1, 4)
    assert len(seen.hidden["encoder"]) == 3


@pytest.mark.parametrize(
    ("gates", "message"),
    [
        ({("encoder", "cross"): torch.ones(3, 4)}, "must name a stack and kind"),
        ({("encoder", "self"): torch.ones(2, 4)}, "3 layers of 4 heads"),
        ({("encoder", "self"): torch.ones(3, 5)}, "3 layers of 4 heads"),
        ({("encoder", "self"): torch.ones(3, 1, 1, 4)}, "3 layers of 4 heads"),
    ],
)
def test_gates_that_do_not_fit_are_refused(models, gates, message):
    with pytest.raises(UserError, match=message), tap(models("bert"), gates=gates):
        pass


def test_gates_of_another_batch_size_are_refused(models, rows):
    model = models("bert")
    inputs = model_inputs(model, torch.tensor([rows[0][:4], rows[1]]))
    gates = {("encoder", "self"): torch.ones(3, 3, 4)}
    with pytest.raises(UserError, match="3 rows of gates for 2 sentences"), tap(model, gates=gates):
        model.module(**inputs)


def test_activation_checkpointing_in_training_is_refused(models):
    model = models("bert", fresh=True)
    model.module.train()
    model.module.gradient_checkpointing_enable()
    with pytest.raises(UserError, match="gradient_checkpointing_disable"), tap(model, hidden=True):
        pass
