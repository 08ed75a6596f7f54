"""The logit lens in every family: the model's own logits at the top, its head on the states below."""

import importlib.util
from pathlib import Path

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.models import left_padding, load_model, pad_rows, tap
from infoflow.representations import TunedLens, logit_lens

_SPEC = importlib.util.spec_from_file_location("families", Path(__file__).parents[1] / "models" / "conftest.py")
assert _SPEC is not None
assert _SPEC.loader is not None
families = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(families)

ROWS = [[5, 9, 30, 7, 12], [8, 6, 21], [11, 35, 3, 17]]


@pytest.fixture(scope="module", params=families.FAMILIES)
def model(request):
    return load_model(families.build(request.param))


@pytest.fixture(scope="module")
def gpt2():
    return load_model(families.build("gpt2"))


def given(model, side="right"):
    ids, mask = pad_rows(ROWS, model.pad_token_id, side)
    return {
        "input_ids": ids,
        "attention_mask": mask,
        "decoder_input_ids": torch.tensor([[3, 4, 5], [9, 8, 7], [6, 5, 4]]) if model.task == "seq2seq" else None,
    }


def whole_logits(model, inputs):
    with torch.no_grad():
        return model.module(**{name: value for name, value in inputs.items() if value is not None}).logits


def test_the_top_layer_is_the_models_own_prediction(model):
    inputs = given(model)
    readings = list(logit_lens(model, **inputs))
    assert [reading.layer for reading in readings] == list(range(len(model.anatomy.stacks[-1].layers) + 1))
    expected = whole_logits(model, inputs)
    rows = expected.flatten(0, 1) if model.task == "seq2seq" else expected[inputs["attention_mask"] != 0]
    torch.testing.assert_close(readings[-1].logits, rows, rtol=1e-4, atol=1e-4)
    assert all(not torch.allclose(reading.logits, rows, atol=1e-2) for reading in readings[:-1])


def test_padding_changes_nothing(model):
    sides = ["right"] if left_padding(model) == "refused" else ["right", "left"]
    for side in sides:
        padded = list(logit_lens(model, **given(model, side)))
        start = 0
        for index, row in enumerate(ROWS):
            decoder = given(model)["decoder_input_ids"]
            target = None if decoder is None else decoder[index : index + 1]
            for alone in logit_lens(model, torch.tensor([row]), None, target):
                part = padded[alone.layer].logits[start : start + len(alone.logits)]
                torch.testing.assert_close(part, alone.logits, rtol=1e-3, atol=1e-3)
            start += len(alone.logits)


def test_an_untrained_tuned_lens_is_the_logit_lens(model):
    inputs = given(model)
    readings = logit_lens(model, **inputs), logit_lens(model, **inputs, lens=TunedLens.of(model))
    for plain, tuned in zip(*readings, strict=True):
        assert torch.equal(plain.logits, tuned.logits)


def test_gpt2_by_hand(gpt2):
    """One final norm, then the tied embeddings."""
    ids = torch.tensor([ROWS[0]])
    with torch.no_grad(), tap(gpt2, hidden=True) as seen:
        gpt2.module(input_ids=ids)
    transformer = gpt2.module.transformer
    for reading in logit_lens(gpt2, ids):
        state = seen.hidden["decoder"][reading.layer][0]
        centred = state - state.mean(dim=-1, keepdim=True)
        normed = centred / (centred.square().mean(dim=-1, keepdim=True) + transformer.ln_f.eps).sqrt()
        expected = (normed * transformer.ln_f.weight + transformer.ln_f.bias) @ transformer.wte.weight.T
        torch.testing.assert_close(reading.logits, expected, rtol=1e-4, atol=1e-4)


def test_the_tuned_lens_comes_before_the_head(gpt2):
    ids, lens = torch.tensor([ROWS[0]]), TunedLens.of(gpt2)
    torch.nn.init.normal_(lens.translators[1].weight, std=0.3)
    torch.nn.init.normal_(lens.translators[1].bias)
    with torch.no_grad(), tap(gpt2, hidden=True) as seen:
        gpt2.module(input_ids=ids)
    state, linear = seen.hidden["decoder"][1][0], lens.translators[1]
    expected = gpt2.module.lm_head(gpt2.module.transformer.ln_f(state + state @ linear.weight.T + linear.bias))
    readings = list(logit_lens(gpt2, ids, lens=lens))
    torch.testing.assert_close(readings[1].logits, expected, rtol=1e-4, atol=1e-4)
    torch.testing.assert_close(readings[2].logits, list(logit_lens(gpt2, ids))[2].logits)


def test_positions_choose_rows(gpt2):
    ids = torch.tensor([ROWS[1], ROWS[2][:3]])
    chosen = torch.tensor([[False, True, False], [True, False, True]])
    whole = whole_logits(gpt2, {"input_ids": ids})
    torch.testing.assert_close(list(logit_lens(gpt2, ids, positions=chosen))[-1].logits, whole[chosen])
    for _ in logit_lens(gpt2, ids):
        assert torch.is_grad_enabled()
    with pytest.raises(UserError, match=r"shape of the tokens that are read, \[2, 3\]"):
        logit_lens(gpt2, ids, positions=chosen[:, :2])


def test_a_model_without_a_head_is_refused():
    with pytest.raises(UserError, match="no language-model head"):
        logit_lens(load_model(families.build("bert").bert), torch.tensor([ROWS[0]]))
