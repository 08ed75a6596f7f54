"""Padding changes nothing that a real token sees, alone or in a batch, on either side."""

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.models import left_padding, load_model, model_inputs, pad_rows, tap

COUNT_COLUMNS = ("marian", "bart", "mbart")


def run(model, ids, mask, targets=None):
    decoder = () if targets is None else pad_rows(targets, model.pad_token_id)
    with torch.no_grad(), tap(model, hidden=True, attention=True, heads=True) as seen:
        model.module(**model_inputs(model, ids, mask, *decoder))
    return seen


def test_real_tokens_do_not_see_the_padding(model, family, rows, side):
    targets = [row[::-1][:5] for row in rows] if model.task == "seq2seq" else None
    ids, mask = pad_rows(rows, model.pad_token_id, side)
    if side == "left" and family in COUNT_COLUMNS:
        with pytest.raises(UserError, match="Pad on the right"):
            run(model, ids, mask, targets)
        return
    batch = run(model, ids, mask, targets)
    for index, row in enumerate(rows):
        alone = run(model, torch.tensor([row]), None, targets and [targets[index]])
        source = mask[index].bool()
        places = {"encoder": source, "decoder": source}
        if targets:
            places["decoder"] = torch.arange(5) < len(targets[index])
        for stack, states in alone.hidden.items():
            for layer, state in enumerate(states):
                close(batch.hidden[stack][layer][index, places[stack]], state[0])
        for (stack, kind), layers in alone.heads.items():
            keys = places["encoder"] if kind == "cross" else places[stack]
            for layer, heads in enumerate(layers):
                close(batch.heads[stack, kind][layer][index, places[stack]], heads[0])
                weights = batch.attention[stack, kind][layer][index][:, places[stack]]
                close(weights[..., keys], alone.attention[stack, kind][layer][0])
                assert not weights[..., ~keys].any(), "padding must get no attention"


def close(value, expected):
    torch.testing.assert_close(value, expected, rtol=1e-5, atol=1e-5)


def test_how_families_take_left_padding(model, family):
    absolute = ("bert", "distilbert", "electra", "albert", "gpt2", "encoder-decoder")
    expected = "refused" if family in COUNT_COLUMNS else "positions" if family in absolute else "as is"
    assert left_padding(model) == expected


def test_absolute_positions_are_counted_from_the_mask(models, rows):
    inputs = model_inputs(models("bert"), *pad_rows(rows, 0, "left"))
    assert inputs["position_ids"][1].tolist() == [0, 0, 0, 0, 1, 2, 3]
    assert "position_ids" not in model_inputs(models("bert"), *pad_rows(rows, 0, "right"))
    assert "position_ids" not in model_inputs(models("llama"), *pad_rows(rows, 0, "left"))


def test_pad_rows():
    ids, mask = pad_rows([[5, 6, 7], [8]], 9, "left")
    assert ids.tolist() == [[5, 6, 7], [9, 9, 8]]
    assert mask.tolist() == [[1, 1, 1], [0, 0, 1]]
    assert pad_rows([[5, 6], [8]], 9)[0].tolist() == [[5, 6], [8, 9]]


def test_a_row_without_tokens_is_refused(models):
    with pytest.raises(UserError, match="at least one unmasked token"):
        model_inputs(models("bert"), torch.tensor([[4, 5], [0, 0]]), torch.tensor([[1, 1], [0, 0]]))


def test_a_translation_model_needs_decoder_input(models, rows):
    with pytest.raises(UserError, match="needs decoder input"):
        model_inputs(models("t5"), torch.tensor([rows[0]]))


def test_a_decoder_padded_left_is_refused(models, rows):
    ids, mask = pad_rows(rows, 0, "left")
    with pytest.raises(UserError, match="padded on the right"):
        model_inputs(models("t5"), ids, mask, ids, mask)


@pytest.mark.parametrize(
    ("family", "longest"),
    [("bert", 32), ("roberta", 31), ("gpt2", 32), ("opt", 32), ("bart", 32), ("marian", 32), ("t5", None)],
)
def test_longest_input(models, rows, family, longest):
    model = models(family)
    assert model.max_tokens == model.max_target_tokens == longest
    if longest is None:
        return
    fits, longer = torch.full((1, longest), 5), torch.full((1, longest + 1), 5)
    decoder = {"decoder_input_ids": fits} if model.task == "seq2seq" else {}
    with torch.no_grad():
        model.module(**model_inputs(model, fits, **decoder))
        with pytest.raises((IndexError, RuntimeError), match=r"out of|must match the existing size"):
            model.module(input_ids=longer, **decoder)
    with pytest.raises(UserError, match=f"at most {longest} tokens"):
        model_inputs(model, longer, **decoder)


def test_digest_follows_weights_and_configuration(build_module):
    first, second, other = (load_model(build_module("bert")) for _ in range(3))
    assert first.digest == second.digest
    with torch.no_grad():
        other.module.bert.encoder.layer[2].output.dense.bias[0] += 1e-6
    assert other.digest != first.digest
    module = build_module("bert")
    module.config.layer_norm_eps = 1e-3
    assert load_model(module).digest != first.digest
