"""Blocks run again without one token, against runs of the whole model with that token's key and value cut out."""

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.models import left_padding, model_inputs, pad_rows, rerun_blocks, tap, without_token

TARGETS = (2, 0, 4)  # one token of each of the three rows, none of them last


def cut_out(call, token):
    """The same call as if the token had no key and no value: its column is gone, not masked."""
    rest = [column for column in range(call.key.shape[2]) if column != token]
    bias = call.position_bias
    return call.edited(
        key=call.key[:, :, rest],
        value=call.value[:, :, rest],
        mask=None if call.mask is None else call.mask[..., rest],
        position_bias=None if bias is None else bias[..., rest],
    )


def whole_model(model, stack, layer, row, token, decoder=None):
    """Output of one block when the whole model runs, alone and unpadded, with the token cut out of that block only."""
    inputs = model_inputs(model, torch.tensor([row]), decoder_input_ids=decoder)

    def edit(call):
        here = (call.stack, call.kind, call.layer) == (stack, "self", layer)
        return cut_out(call, token) if here else None

    with torch.no_grad(), tap(model, hidden=True, on_attention=edit) as seen:
        model.module(**inputs)
    return seen.hidden[stack][layer + 1][0]


def batch(model, rows, side):
    if side == "left" and left_padding(model) == "refused":
        pytest.skip("the family takes no padding on the left")
    ids, mask = pad_rows(rows, model.pad_token_id, side)
    decoder = ids.flip(1)[:, :5].clamp(min=3) if model.task == "seq2seq" else None
    return model_inputs(model, ids, mask, decoder_input_ids=decoder), mask, decoder


def rerun(model, stack, inputs, token):
    with torch.no_grad():
        return rerun_blocks(model, stack, [lambda call: without_token(call, token)], lambda: model.module(**inputs))


def test_agrees_with_the_whole_model_in_every_block(any_model, rows, side):
    stack = any_model.anatomy.stacks[0]
    inputs, mask, decoder = batch(any_model, rows, side)
    starts = mask.argmax(dim=1)
    blocks = rerun(any_model, stack.name, inputs, starts + torch.tensor(TARGETS))
    with torch.no_grad(), tap(any_model, hidden=True, attention=True) as seen:
        any_model.module(**inputs)
    assert len(blocks) == len(stack.layers)
    for layer, block in enumerate(blocks):
        torch.testing.assert_close(block.kept, seen.hidden[stack.name][layer + 1], rtol=0, atol=0)
        for index, (row, token) in enumerate(zip(rows, TARGETS, strict=True)):
            alone = None if decoder is None else decoder[index : index + 1]
            expected = whole_model(any_model, stack.name, layer, row, token, alone)
            others = [place for place in range(len(row)) if place != token]
            found = block.edited[0][index, starts[index] :][others]
            torch.testing.assert_close(found, expected[others], rtol=1e-4, atol=2e-5)
            assert (found - block.kept[index, starts[index] :][others]).abs().max() > 1e-4


def test_decoder_loses_the_token_in_its_self_attention_alone(models, rows):
    model = models("marian")
    inputs, _, decoder = batch(model, rows, "right")
    token = torch.tensor([1, 2, 1])
    blocks = rerun(model, "decoder", inputs, token)
    for layer, block in enumerate(blocks):
        for index, row in enumerate(rows):
            expected = whole_model(model, "decoder", layer, row, int(token[index]), decoder[index : index + 1])
            others = [place for place in range(5) if place != token[index]]
            torch.testing.assert_close(block.edited[0][index][others], expected[others], rtol=1e-4, atol=2e-5)


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_nothing_before_the_token_changes_in_a_causal_model(models, name, rows):
    model = models(name)
    inputs, *_ = batch(model, rows, "right")
    for block in rerun(model, "decoder", inputs, torch.tensor(TARGETS)):
        for index, token in enumerate(TARGETS):
            assert torch.equal(block.edited[0][index, :token], block.kept[index, :token])
            assert not torch.equal(block.edited[0][index, token + 1], block.kept[index, token + 1])


def test_edits_do_not_see_each_other(model, rows):
    inputs, *_ = batch(model, rows, "right")
    stack = model.anatomy.stacks[0].name
    tokens = [torch.tensor(TARGETS), torch.tensor([0, 1, 2])]
    edits = [lambda call, token=token: without_token(call, token) for token in tokens]
    with torch.no_grad():
        together = rerun_blocks(model, stack, edits, lambda: model.module(**inputs))
    for index, token in enumerate(tokens):
        for both, alone in zip(together, rerun(model, stack, inputs, token), strict=True):
            assert torch.equal(both.edited[index], alone.edited[0])
            assert torch.equal(both.kept, alone.kept)


def test_a_sentence_of_one_token_stays_finite(model):
    inputs, *_ = batch(model, [[5], [5, 6, 7]], "right")
    for block in rerun(model, model.anatomy.stacks[0].name, inputs, torch.tensor([0, 1])):
        assert block.edited[0].isfinite().all()


def test_weights_are_renormalised_over_the_other_keys(models, rows):
    model = models("bert")
    inputs, *_ = batch(model, rows, "right")
    calls = []
    with torch.no_grad(), tap(model, on_attention=lambda call: calls.append(call)):
        model.module(**inputs)
    token = torch.tensor(TARGETS)
    edited = without_token(calls[0], token).weights
    expected = calls[0].weights.clone()
    expected[torch.arange(3), :, :, token] = 0
    torch.testing.assert_close(edited, expected / expected.sum(-1, keepdim=True))
    without_mask = without_token(calls[0].edited(mask=None), token).weights
    assert (without_mask[torch.arange(3), :, :, token] == 0).all()


def test_leaves_no_trace_also_after_an_error(models, rows):
    model = models("bert")
    inputs, *_ = batch(model, rows, "right")
    expected = model.module(**inputs).logits
    hooks = [dict(child._forward_hooks) for child in model.module.modules()]  # Transformers may have left its own

    def fail(call):
        raise RuntimeError("stop")

    with pytest.raises(RuntimeError, match="stop"):
        rerun_blocks(model, "encoder", [fail], lambda: model.module(**inputs))
    torch.testing.assert_close(model.module(**inputs).logits, expected, rtol=1e-6, atol=1e-6)  # MKL's last bit varies
    assert [dict(child._forward_hooks) for child in model.module.modules()] == hooks
    assert len(rerun(model, "encoder", inputs, torch.tensor(TARGETS))) == 3


def test_outer_taps_see_one_run(models, rows):
    model = models("bert")
    inputs, *_ = batch(model, rows, "right")
    with torch.no_grad():
        with tap(model, hidden=True) as alone:
            model.module(**inputs)
        with tap(model, hidden=True) as outer:
            blocks = rerun(model, "encoder", inputs, torch.tensor(TARGETS))
    for expected, found in zip(alone.hidden["encoder"], outer.hidden["encoder"], strict=True):
        torch.testing.assert_close(found, expected)
    assert outer.hidden["encoder"][1] is blocks[0].kept


def test_a_cache_is_refused(models):
    model = models("gpt2")
    ids = torch.tensor([[5, 6, 7]])
    with pytest.raises(UserError, match="use_cache=False"):
        rerun_blocks(
            model,
            "decoder",
            [lambda call: without_token(call, torch.tensor([0]))],
            lambda: model.module(ids, use_cache=True),
        )
