"""Gemma 3n: four residual streams, and blocks that attend to the keys and values of a lower one."""

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.heads import PatternScores, relevance
from infoflow.models import load_model, model_inputs, pad_rows, readout, rerun_others, tap
from infoflow.routes import RouteImportance


@pytest.fixture
def given(models, rows):
    model = models("gemma3n")
    return model, model_inputs(model, *pad_rows(rows, model.pad_token_id))


def streams_read(module, inputs):
    """What each block reads, by a hook of its own: (stream, sentence, token, width)."""
    found = []
    handles = [
        layer.register_forward_pre_hook(lambda block, args: found.append(args[0])) for layer in module.model.layers
    ]
    with torch.no_grad():
        module(**inputs)
    for handle in handles:
        handle.remove()
    return found


def test_a_state_is_all_streams_one_after_the_other(given):
    model, inputs = given
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(**inputs)
    for state, streams in zip(seen.hidden["decoder"], streams_read(model.module, inputs), strict=False):
        assert torch.equal(state, torch.cat(list(streams), dim=-1))
    assert model.anatomy.predicts.width == 4 * 16
    assert len(seen.hidden["decoder"]) == 4


def test_the_readout_of_the_last_state_gives_the_logits(given):
    model, inputs = given
    with torch.no_grad(), tap(model, hidden=True) as seen:
        logits = model.module(**inputs).logits
    read = readout(model)(seen.hidden["decoder"][-1])
    real = inputs["attention_mask"].bool()
    torch.testing.assert_close(read[real], logits[real], rtol=1e-4, atol=1e-5)


def test_tokens_meet_only_in_attention(models):
    for family in ("gemma3n", "gemma4"):
        assert not any(layer.other_paths for layer in models(family).anatomy.predicts.layers)


def test_blocks_of_another_model_leave_shared_keys_as_they_are(given, build_module):
    model, inputs = given
    other = build_module("gemma3n")
    with torch.no_grad():
        for parameter in other.parameters():
            parameter.mul_(1.5)
        expected = model.module(**inputs).logits
        found = []
        rerun_others(model, [load_model(other)], "decoder", lambda: found.append(model.module(**inputs).logits))
    assert torch.equal(found[0], expected)


def test_what_takes_heads_for_parts_of_the_state_is_refused(given):
    model, _ = given
    assert "mix 4 residual streams" in RouteImportance().why_not(model)
    assert PatternScores().why_not(model) is None
    with pytest.raises(UserError, match="has another architecture"):
        relevance(model, {"input_ids": torch.tensor([[5, 6, 7]])}, "alti")
