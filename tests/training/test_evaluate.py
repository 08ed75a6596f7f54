"""Held-out loss: frozen noise, no dropout, the model left as it was."""

import pytest
import torch
from training.tiny import tiny_data, tiny_model

from infoflow.objectives import CausalLM, MaskedLM, Translation
from infoflow.training import evaluate


@pytest.mark.parametrize("objective", [CausalLM(), MaskedLM(), Translation()])
def test_evaluation_repeats_and_does_not_depend_on_batches(objective) -> None:
    model, data = tiny_model(objective), tiny_data()
    torch.manual_seed(0)
    before = torch.get_rng_state()
    first = evaluate(objective, model, data, micro_tokens=40)
    assert model.training
    assert torch.equal(torch.get_rng_state(), before)
    again = evaluate(objective, model, data, micro_tokens=10_000)
    assert again.counts == first.counts
    assert again.loss == pytest.approx(first.loss, rel=1e-5)
    assert first.losses == {objective.name: first.loss}


def test_noise_is_frozen_per_seed() -> None:
    model, data = tiny_model(MaskedLM()), tiny_data()
    assert evaluate(MaskedLM(), model, data, seed=1).loss == evaluate(MaskedLM(), model, data, seed=1).loss
    assert evaluate(MaskedLM(), model, data, seed=1).loss != evaluate(MaskedLM(), model, data, seed=2).loss


def test_bfloat16_is_close_and_restores_the_attention() -> None:
    model, data = tiny_model(Translation()), tiny_data()
    exact = evaluate(Translation(), model, data).loss
    assert evaluate(Translation(), model, data, precision="bf16").loss == pytest.approx(exact, rel=1e-2)
    assert model.config._attn_implementation == "sdpa"


@pytest.mark.parametrize("objective", [CausalLM, Translation])
def test_token_dropout_is_off(objective) -> None:
    model, data = tiny_model(objective()), tiny_data()
    clean = evaluate(objective(), model, data)
    assert evaluate(objective(token_dropout=0.9), model, data).loss == clean.loss
    assert objective(token_dropout=0.9).for_evaluation() == objective()


def test_masks_stay_in_evaluation() -> None:
    assert MaskedLM(rate=0.3).for_evaluation() == MaskedLM(rate=0.3)
