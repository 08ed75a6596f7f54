"""The token mean of a whole update, however it is split."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from support.forked import run_together
from training.tiny import SHAPE, tiny_config, tiny_data, tiny_model

from infoflow.objectives import CausalLM, MaskedLM, Translation
from infoflow.training import ModelConfig, Updater, make_accelerator, read_log, train

NO_DROPOUT = ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=32, dropout=0.0)
SCRIPT = Path(__file__).parent / "tiny.py"


def gradients(objective, micro_tokens: int, rows: np.ndarray) -> tuple[dict[str, torch.Tensor], int]:
    model = tiny_model(objective, NO_DROPOUT)
    config = tiny_config(micro_tokens=micro_tokens, clip=0.0)
    updater = Updater(objective, model, tiny_data(), config, make_accelerator("cpu"))
    batches = updater.batches(rows, epoch=0)
    updater.accumulate(batches, rows, update=1, stop=False)
    return {name: p.grad for name, p in model.named_parameters() if p.grad is not None}, len(batches)


@pytest.mark.parametrize("objective", [CausalLM(), MaskedLM(), Translation()])
def test_splitting_an_update_differently_gives_the_same_gradient(objective) -> None:
    rows = np.arange(25)
    whole, one = gradients(objective, 10_000, rows)
    split, many = gradients(objective, 60, rows)
    assert one == 1
    assert many > 4
    for name, value in whole.items():
        torch.testing.assert_close(split[name], value, rtol=1e-4, atol=1e-6)


@pytest.mark.parametrize("objective", [CausalLM(), MaskedLM(), Translation()])
def test_gradient_is_that_of_the_mean_over_supervised_tokens(objective) -> None:
    """The slow way: full logits of one sentence at a time, all losses in one list, their mean."""
    rows = np.arange(12)
    model, data = tiny_model(objective, NO_DROPOUT), tiny_data()
    losses = []
    for row in rows:
        batch = data.batch(objective, np.array([row]), ("training-noise", 0), 0)
        inputs = {"input_ids": batch.input_ids}
        if batch.decoder_input_ids is not None:
            inputs["decoder_input_ids"] = batch.decoder_input_ids
        log_probabilities = model(**inputs).logits.log_softmax(-1)
        for position, label in enumerate(batch.labels[0].tolist()):
            if label != -100:
                losses.append(-log_probabilities[0, position, label])
    torch.stack(losses).mean().backward()
    found, _ = gradients(objective, 60, rows)
    for name, parameter in model.named_parameters():
        torch.testing.assert_close(found[name], parameter.grad, rtol=1e-4, atol=1e-6)


@pytest.mark.slow
def test_two_processes_make_the_update_of_one(tmp_path: Path) -> None:
    objective = Translation()
    run_together(SCRIPT, tmp_path / "two", "--objective", objective.name, "--dropout", "0", "--validate")
    one = train(objective, tiny_config(), tiny_data(), tiny_model(objective, NO_DROPOUT), tmp_path / "one")
    weights = load_file(tmp_path / "two" / "model" / "model.safetensors")
    for name, value in load_file(one.model / "model.safetensors").items():
        torch.testing.assert_close(weights[name], value, rtol=1e-3, atol=1e-5)
    one_found, other_found = (json.loads((tmp_path / "two" / f"validation-{rank}.json").read_text()) for rank in (0, 1))
    assert one_found == other_found
    assert one_found.keys() == {objective.name}
    one_log, two_log = (read_log(tmp_path / folder / "log.jsonl") for folder in ("one", "two"))
    two_log = [line for line in two_log if "validation" not in line]
    for name in ("loss", "gradient_norm", "source_tokens", "target_tokens", "supervised_tokens"):
        assert [line[name] for line in two_log] == pytest.approx([line[name] for line in one_log], rel=1e-3)


def test_training_learns(tmp_path: Path) -> None:
    """Forty sentences are memorised: the loss falls well below that of a uniform guess."""
    data = tiny_data(40)
    config = tiny_config(updates=150, save_every=0)
    result = train(CausalLM(), config, data, tiny_model(CausalLM(), SHAPE), tmp_path, validation=data)
    assert result.validation_losses["causal-lm"] < 0.7 * np.log(60)
