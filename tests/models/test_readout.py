"""The readout against a slow one: a whole forward pass in which the last block's output is replaced."""

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.models import load_model, readout, tap


def tapped(model, inputs):
    with torch.no_grad(), tap(model, hidden=True) as seen:
        logits = model.module(**inputs).logits
    return seen.hidden[model.anatomy.stacks[-1].name], logits


def by_replacement(model, inputs, states):
    """Every block runs; the last one's output is then exchanged."""
    last, calls = model.anatomy.stacks[-1].layers[-1], []

    def exchange(block, args, output):
        calls.append(block)
        if len(calls) < sum(layer.block == last.block for layer in model.anatomy.stacks[-1].layers):
            return output  # a shared block (ALBERT) is the last one only in its last call
        return states if isinstance(output, torch.Tensor) else (states, *output[1:])

    handle = model.module.get_submodule(last.block).register_forward_hook(exchange)
    with torch.no_grad():
        logits = model.module(**inputs).logits
    handle.remove()
    return logits


def test_the_last_states_give_the_models_own_logits(model, raw_inputs):
    states, logits = tapped(model, raw_inputs)
    with torch.no_grad():
        torch.testing.assert_close(readout(model)(states[-1]), logits, rtol=1e-5, atol=1e-5)


def test_every_layer_is_read_as_if_the_last_block_had_returned_it(model, raw_inputs):
    read = readout(model)
    for states in tapped(model, raw_inputs)[0]:
        with torch.no_grad():
            expected = by_replacement(model, raw_inputs, states)
            torch.testing.assert_close(read(states), expected, rtol=1e-5, atol=1e-5)
            torch.testing.assert_close(read(states[1, 2]), expected[1, 2], rtol=1e-5, atol=1e-5)


def test_it_is_differentiable_in_the_states_and_leaves_the_model_alone(model, raw_inputs):
    read, states = readout(model), tapped(model, raw_inputs)[0][-1][0, :2]
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    direction = torch.randn(states.shape, generator=torch.Generator().manual_seed(3))
    point = states.clone().requires_grad_()
    gradient = torch.autograd.grad(read(point).square().sum(), point)[0]
    with torch.no_grad():
        step = 1e-3 * direction
        difference = read(states + step).square().double().sum() - read(states - step).square().double().sum()
    assert float((gradient * direction).sum()) == pytest.approx(float(difference) / 2e-3, rel=0.05)
    assert all(parameter.grad is None for parameter in model.module.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.module.state_dict().items())
    assert not any("forward" in vars(child) for child in model.module.modules())
    torch.testing.assert_close(tapped(model, raw_inputs)[0][-1][0, :2], states)


def test_no_block_runs(model):
    calls = []
    read = readout(model)
    names = [attention.module for attention in model.anatomy.attentions()]
    handles = [
        model.module.get_submodule(name).register_forward_hook(lambda *args: calls.append(args)) for name in names
    ]
    read(torch.ones(3, model.anatomy.stacks[-1].width))
    for handle in handles:
        handle.remove()
    assert not calls


def test_blocks_come_back_after_an_error(models, rows):
    model = models("gpt2")
    read = readout(model)
    with pytest.raises(RuntimeError):
        read(torch.ones(2, 5))  # the width is 16
    assert not any("forward" in vars(child) for child in model.module.modules())


def test_a_model_without_a_head_is_refused(build_module):
    with pytest.raises(UserError, match="no language-model head"):
        readout(load_model(build_module("bert").bert))


def test_logits_that_see_more_than_the_last_block_are_refused(models):
    model = models("llama", fresh=True)
    embedded = []
    model.module.model.embed_tokens.register_forward_hook(lambda module, args, output: embedded.append(output))
    model.module.lm_head.register_forward_pre_hook(lambda module, args: (args[0] + embedded[-1],))
    with pytest.raises(UserError, match="do not follow from its last block's output alone"):
        readout(model)
