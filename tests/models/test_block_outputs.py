"""Lower blocks passed over, for several variants at once, against whole runs of each variant alone."""

import pytest
import torch

from infoflow.models import first_block, model_inputs, pad_rows, recorded_blocks, skipped_blocks, tap


def padded(model, rows):
    ids, mask = pad_rows(rows, model.pad_token_id)
    decoder = ids.flip(1)[:, :5].clamp(min=3) if model.task == "seq2seq" else None
    return model_inputs(model, ids, mask, decoder_input_ids=decoder)


def repeated(inputs, variants):
    return {name: v.repeat(variants, 1) if isinstance(v, torch.Tensor) else v for name, v in inputs.items()}


def without(call, layer, stack, heads):
    if (call.stack, call.layer) != (stack, layer):
        return None
    changed = call.heads.clone()
    size = len(changed) // len(heads)
    for variant, head in enumerate(heads):
        changed[variant * size : (variant + 1) * size, :, head] = 0
    return changed


def test_agrees_with_whole_runs_from_every_block_on(any_model, rows):
    inputs = padded(any_model, rows)
    with torch.no_grad(), recorded_blocks(any_model) as recorded:
        clean = any_model.module(**inputs).logits
    for stack in any_model.anatomy.stacks:
        for layer in range(len(stack.layers)):
            together = run_upper(any_model, recorded, inputs, stack.name, layer, heads=(0, 1))
            for variant, head in enumerate((0, 1)):
                alone = run_whole(any_model, inputs, stack.name, layer, head)
                torch.testing.assert_close(together[variant], alone, rtol=1e-4, atol=2e-5)
                assert (alone - clean).abs().max() > 1e-5
    with torch.no_grad():
        assert torch.equal(any_model.module(**inputs).logits, clean)


def run_upper(model, recorded, inputs, stack, layer, heads):
    start = first_block(model, stack, layer)
    with (
        torch.no_grad(),
        skipped_blocks(model, recorded, *start, len(heads)),
        tap(model, on_heads=lambda call: without(call, layer, stack, heads)),
    ):
        logits = model.module(**repeated(inputs, len(heads))).logits
    return logits.unflatten(0, (len(heads), -1))


def run_whole(model, inputs, stack, layer, head):
    with torch.no_grad(), tap(model, on_heads=lambda call: without(call, layer, stack, (head,))):
        return model.module(**inputs).logits


def test_lower_blocks_do_not_run_and_come_back_after_an_error(models, rows):
    model = models("bert")
    inputs = padded(model, rows)
    with torch.no_grad(), recorded_blocks(model) as recorded:
        model.module(**inputs)
    seen = []

    def fail():
        with skipped_blocks(model, recorded, "encoder", 2, 1), tap(model, on_heads=lambda c: seen.append(c.layer)):
            model.module(**inputs)
            raise RuntimeError("halfway")

    with torch.no_grad(), pytest.raises(RuntimeError, match="halfway"):
        fail()
    assert seen == [2]
    with torch.no_grad(), tap(model, on_heads=lambda c: seen.append(c.layer)):
        model.module(**inputs)
    assert seen == [2, 0, 1, 2]


def test_the_first_attention_is_not_computed_again(model, rows):
    inputs = padded(model, rows)
    with torch.no_grad(), recorded_blocks(model) as recorded:
        model.module(**inputs)
    for stack in (one for one in model.anatomy.stacks if not one.shared):
        ran = []
        with (
            torch.no_grad(),
            skipped_blocks(model, recorded, stack.name, 1, 1),
            tap(model, on_attention=lambda call, ran=ran: ran.append((call.stack, call.kind, call.layer))),
        ):
            model.module(**inputs)
        own = [layer for name, kind, layer in ran if (name, kind) == (stack.name, "self")]
        assert own == list(range(2, len(stack.layers)))
        assert ran


def test_the_first_attention_runs_where_it_is_asked_to(any_model, rows):
    """What changes in its weights is then seen, as in a whole run."""
    inputs = padded(any_model, rows)
    with torch.no_grad(), recorded_blocks(any_model) as recorded:
        any_model.module(**inputs)

    def uniform(call):
        if (call.stack, call.kind, call.layer) != (name, "self", 1):
            return None
        return call.edited(weights=torch.full_like(call.weights, 1 / call.weights.shape[-1]))

    for stack in any_model.anatomy.stacks:
        name = stack.name
        with torch.no_grad(), tap(any_model, on_attention=uniform):
            whole = any_model.module(**inputs).logits
            with skipped_blocks(any_model, recorded, *first_block(any_model, name, 1), 1, keep_heads=False):
                upper = any_model.module(**inputs).logits
        torch.testing.assert_close(upper, whole, rtol=1e-4, atol=2e-5)


def test_heads_that_a_gate_halves_are_halved_once(model, rows):
    inputs = padded(model, rows)
    gates = {
        (stack.name, kind): [torch.full((layer.attentions[kind].num_heads,), 0.5) for layer in stack.layers]
        for stack in model.anatomy.stacks
        for kind in stack.kinds
    }
    with torch.no_grad(), tap(model, gates=gates):
        with recorded_blocks(model) as recorded:
            whole = model.module(**inputs).logits
        last = model.anatomy.stacks[-1]
        with skipped_blocks(model, recorded, *first_block(model, last.name, 1), 1):
            upper = model.module(**inputs).logits
    torch.testing.assert_close(upper, whole, rtol=1e-4, atol=2e-5)


def test_shared_layers_start_at_the_first(models):
    assert first_block(models("albert"), "encoder", 2) == ("encoder", 0)
    assert first_block(models("bert"), "encoder", 2) == ("encoder", 2)
