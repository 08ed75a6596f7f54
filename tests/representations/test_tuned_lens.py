"""The tuned lens: its formula, its training against the same steps written out, its file."""

import pytest
import torch
from safetensors.torch import save_file
from transformers import GPT2Config, GPT2LMHeadModel

from infoflow.foundation import UserError
from infoflow.models import load_model, readout, tap
from infoflow.representations import LensTraining, TunedLens, fit_tuned_lens, logit_lens

VOCABULARY, WIDTH, LAYERS = 30, 12, 2


def build(seed=0):
    torch.manual_seed(seed)
    config = GPT2Config(vocab_size=VOCABULARY, n_embd=WIDTH, n_layer=LAYERS, n_head=2, n_positions=16)
    module = GPT2LMHeadModel(config)
    for parameter in module.parameters():
        torch.nn.init.normal_(parameter, std=0.4)
    return load_model(module)


@pytest.fixture(scope="module")
def model():
    return build()


def states_of(model, num, seed):
    """(L+1, 8 num, D) states of random sentences."""
    ids = torch.randint(VOCABULARY, (num, 8), generator=torch.Generator().manual_seed(seed))
    with torch.no_grad(), tap(model, hidden=True) as seen:
        model.module(input_ids=ids)
    return torch.stack(seen.hidden["decoder"]).flatten(1, 2)


def divergence(model, lens, states, layer):
    """Mean KL(final || lens) by its definition."""
    head = lambda h: model.module.lm_head(model.module.transformer.ln_f(h))  # noqa: E731
    final, read = head(states[-1]).log_softmax(-1), head(lens(states[layer], layer)).log_softmax(-1)
    return (final.exp() * (final - read)).sum(dim=-1).mean()


def test_the_formula_is_that_of_the_authors():
    """`transform_hidden` of the tuned-lens package: h + Linear(h); no translator for the last layer."""
    lens = TunedLens(LAYERS, WIDTH)
    for parameter in lens.parameters():
        torch.nn.init.normal_(parameter)
    states = torch.randn(3, 5, WIDTH)
    for layer, linear in enumerate(lens.translators):
        expected = states + torch.einsum("oi,abi->abo", linear.weight, states) + linear.bias
        torch.testing.assert_close(lens(states, layer), expected)
    assert lens(states, LAYERS) is states


@pytest.mark.parametrize("logits", [None, 3 * VOCABULARY])
def test_training_is_the_published_optimiser_written_out(model, monkeypatch, logits):
    """SGD, Nesterov momentum .9, rate 1 (1 − .9) falling linearly to 0, weight decay 1e-3, clipped over all layers."""
    if logits:  # of three rows at a time
        monkeypatch.setattr("infoflow.representations._lens._LOGITS", logits)
    steps, batches = 4, [states_of(model, 2, seed) for seed in range(4)]
    found = fit_tuned_lens(readout(model), batches, LensTraining(steps=steps, clip=0.5))
    lens = TunedLens(LAYERS, WIDTH)
    values = list(lens.parameters())
    speeds = [torch.zeros_like(value) for value in values]
    for step, states in enumerate(batches):
        loss = sum(divergence(model, lens, states, layer) for layer in range(LAYERS))
        gradients = torch.autograd.grad(loss, values)
        norm = sum(gradient.square().sum() for gradient in gradients) ** 0.5
        assert norm > 0.5 or step > 0, "the clip must act"
        for value, gradient, speed in zip(values, gradients, speeds, strict=True):
            gradient = gradient * min(1, 0.5 / norm) + 1e-3 * value.detach()
            speed.mul_(0.9).add_(gradient)
            value.data -= 0.1 * (1 - step / steps) * (gradient + 0.9 * speed)
    for one, other in zip(found.parameters(), values, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-3, atol=1e-5)
    assert all(parameter.grad is None for parameter in model.module.parameters())


def test_training_lowers_the_divergence_on_other_text_and_repeats_itself(model):
    batches = [states_of(model, 4, seed) for seed in range(40)]
    before = {name: value.clone() for name, value in model.module.state_dict().items()}
    lens, again = (fit_tuned_lens(readout(model), batches, LensTraining(steps=40)) for _ in range(2))
    other = states_of(model, 40, seed=1000)
    with torch.no_grad():
        for layer in range(LAYERS):
            untrained = divergence(model, TunedLens(LAYERS, WIDTH), other, layer)
            assert divergence(model, lens, other, layer) < 0.8 * untrained
    assert all(torch.equal(one, two) for one, two in zip(lens.parameters(), again.parameters(), strict=True))
    assert all(torch.equal(before[name], value) for name, value in model.module.state_dict().items())


def test_a_half_precision_model_is_read_and_its_lens_trained_in_float32(model):
    half = build()
    half.module.to(torch.bfloat16)
    batches = [states_of(half, 4, seed) for seed in range(20)]
    lens = fit_tuned_lens(readout(half), batches, LensTraining(steps=20))
    assert all(parameter.dtype == torch.float32 for parameter in lens.parameters())
    ids = torch.randint(VOCABULARY, (20, 8), generator=torch.Generator().manual_seed(1000))
    plain, tuned = list(logit_lens(half, ids)), list(logit_lens(half, ids, lens=lens))
    final = plain[-1].logits.float().log_softmax(-1)
    for layer in range(LAYERS):
        read = [each[layer].logits.float().log_softmax(-1) for each in (plain, tuned)]
        before, after = [float((final.exp() * (final - one)).sum(dim=-1).mean()) for one in read]
        assert after < 0.9 * before


def test_too_few_batches_are_an_error(model):
    with pytest.raises(UserError, match=r"3 steps needs as many batches of states. Got 1"):
        fit_tuned_lens(readout(model), [states_of(model, 1, 0)], LensTraining(steps=3))
    with pytest.raises(UserError, match=r"steps of a lens must be at least 1. Got 0"):
        LensTraining(steps=0)


def test_a_lens_comes_back_from_its_file(model, tmp_path):
    lens = TunedLens.of(model)
    for parameter in lens.parameters():
        torch.nn.init.normal_(parameter)
    lens.save(tmp_path / "lens.safetensors", model)
    loaded = TunedLens.load(tmp_path / "lens.safetensors", model)
    assert loaded.num_layers == LAYERS
    assert all(torch.equal(one, two) for one, two in zip(lens.parameters(), loaded.parameters(), strict=True))


def test_files_that_are_no_lens_of_this_model_are_refused(model, tmp_path):
    TunedLens.of(model).save(tmp_path / "lens.safetensors", model)
    with pytest.raises(UserError, match="was trained on"):
        TunedLens.load(tmp_path / "lens.safetensors", build(seed=1))
    with pytest.raises(UserError, match="No tuned lens at"):
        TunedLens.load(tmp_path / "absent", model)
    save_file({"x": torch.ones(1)}, tmp_path / "other.safetensors")
    with pytest.raises(UserError, match="is not a tuned lens"):
        TunedLens.load(tmp_path / "other.safetensors", model)
    (tmp_path / "text").write_text("not tensors")
    with pytest.raises(UserError, match="is not a safetensors file"):
        TunedLens.load(tmp_path / "text", model)
