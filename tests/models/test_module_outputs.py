"""What a block's feed-forward part and attention put out can be read and replaced."""

from dataclasses import replace

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.models import feed_forward_outputs, module_outputs, tap, without_edges

IDS = torch.tensor([[5, 6, 7, 8], [9, 5, 4, 3]])
FAMILIES = ("bert", "roberta", "distilbert", "albert", "gpt2", "llama", "opt", "gemma2")


@pytest.mark.parametrize("family", FAMILIES)
def test_every_layer_is_shown_once_and_reading_changes_nothing(models, family):
    model = models(family)
    stack = model.anatomy.reads
    names, seen = feed_forward_outputs(model, stack.name), []
    with torch.no_grad():
        plain = model.module(IDS).logits
        for _ in range(2):  # a second pass counts anew
            seen.clear()
            with module_outputs(model, names, lambda layer, output: seen.append((layer, output.reshape(-1).numel()))):
                shown = model.module(IDS).logits
    assert [layer for layer, _ in seen] == list(range(len(stack.layers)))
    assert {size for _, size in seen} == {IDS.numel() * stack.width}
    assert (shown == plain).all()


@pytest.mark.parametrize("family", FAMILIES)
def test_replacing_the_output_of_a_layer_acts_from_its_block_on(models, family):
    model = models(family)
    name = model.anatomy.reads.name
    names = feed_forward_outputs(model, name)
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(IDS)
        plain = [state.clone() for state in seen.hidden[name]]
        with module_outputs(model, names, lambda layer, output: torch.zeros_like(output) if layer == 1 else None):
            model.module(IDS)
    same = [bool((a == b).all()) for a, b in zip(plain, seen.hidden[name], strict=True)]
    assert same == [True, True, *[False] * (len(plain) - 2)]


def test_it_is_the_feed_forward_part_written_out(models):
    model, seen = models("bert"), {}
    names = feed_forward_outputs(model, "encoder")
    with torch.no_grad(), module_outputs(model, names, lambda layer, output: seen.update({layer: output})):
        model.module(IDS)
        block = model.module.bert.encoder.layer[0]
        states = block.attention(model.module.bert.embeddings(IDS))[0]
        w1, w2 = block.intermediate.dense, block.output.dense
        expected = torch.nn.functional.gelu(states @ w1.weight.T + w1.bias) @ w2.weight.T + w2.bias
    assert torch.allclose(seen[0], expected, atol=1e-5)


def test_leaves_no_trace_also_after_an_error(models):
    model = models("bert")
    with torch.no_grad():
        plain = model.module(IDS).logits
        with (
            pytest.raises(ZeroDivisionError),
            module_outputs(model, feed_forward_outputs(model, "encoder"), lambda layer, output: 1 / 0),
        ):
            model.module(IDS)
        assert (model.module(IDS).logits == plain).all()


def test_a_block_without_feed_forward_output_is_said(models):
    model = models("bert")
    bare = replace(model, anatomy=replace(model.anatomy, parameter_groups=()))
    with pytest.raises(UserError, match="Block 0 has no feed-forward output"):
        feed_forward_outputs(bare, "encoder")


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_forbidden_edges_get_no_weight_and_the_rest_is_renormalised(models, family):
    model = models(family)
    forbidden = torch.zeros(2, 4, 4, dtype=torch.bool)
    forbidden[0, 3, 1] = forbidden[1, 2, 0] = True
    with torch.no_grad(), tap(model, attention=True) as seen:
        model.module(IDS)
    plain = next(iter(seen.attention.values()))[0].clone()
    with torch.no_grad(), tap(model, on_attention=lambda call: without_edges(call, forbidden), attention=True) as seen:
        model.module(IDS)
    expected = torch.where(forbidden[:, None], 0.0, plain)
    expected = expected / expected.sum(dim=-1, keepdim=True)
    found = next(iter(seen.attention.values()))[0]
    assert torch.allclose(found, expected, atol=1e-6)
    assert (found[forbidden[:, None].expand_as(found)] == 0).all()
