"""Frozen slices of parameters: bit for bit as they were, whatever the optimiser does to the rest."""

import copy
import signal

import pytest
import torch
from safetensors.torch import load_file
from training.test_resume import StopAfter, assert_equal_weights, weights
from training.tiny import tiny_config, tiny_data, tiny_model

from infoflow.foundation import UserError
from infoflow.heads import head_slices
from infoflow.models import load_model
from infoflow.objectives import Translation
from infoflow.training import TrainingHook, TrainingInterrupted, frozen_slices, train

FROZEN = [("encoder", "self", 0, 1), ("encoder", "self", 1, 0)]
DECAY = {"weight_decay": 0.5, "clip": 0.05}  # much of both: what they did to a frozen weight would show


def masks(module) -> dict[str, torch.Tensor]:
    found: dict[str, torch.Tensor] = {}
    for piece in head_slices(load_model(module), FROZEN):
        parameter = module.get_parameter(piece.parameter)
        found[piece.parameter] = found.get(piece.parameter, torch.zeros(parameter.shape, dtype=torch.bool)) | (
            piece.mask(parameter)
        )
    return found


class Gradients(TrainingHook):
    """Keeps the clipped gradients of the last update."""

    def on_step_end(self, step) -> None:
        self.last = {name: p.grad.clone() for name, p in step.module.named_parameters() if p.grad is not None}


def run(out, module, *hooks: TrainingHook):
    with frozen_slices(module, head_slices(load_model(module), FROZEN)) as hook:
        return train(Translation(), tiny_config(**DECAY), tiny_data(), module, out, hooks=[hook, *hooks])


def test_frozen_heads_stay_to_the_bit_and_all_else_learns(tmp_path):
    module, seen = tiny_model(Translation()), Gradients()
    before, frozen = copy.deepcopy(dict(module.named_parameters())), masks(module)
    run(tmp_path / "run", module, seen)
    assert len(frozen) == 14  # two layers: weight and bias of query, key and value, and the output's weight
    for name, parameter in module.named_parameters():
        mask = frozen.get(name, torch.zeros(parameter.shape, dtype=torch.bool))
        assert torch.equal(parameter[mask], before[name][mask])
        assert (seen.last[name][mask] == 0).all()
        if name in frozen:
            assert not torch.equal(parameter[~mask], before[name][~mask])
    # clipped to the norm of what learns, not of what is frozen too
    norm = torch.stack([gradient.norm() for gradient in seen.last.values()]).norm()
    assert float(norm) == pytest.approx(DECAY["clip"], rel=1e-3)
    # no moment of the optimiser knows them
    (checkpoint,) = (tmp_path / "run" / "checkpoints").glob("step-00000014")
    moments = load_file(checkpoint / "training" / "optimizer.safetensors")
    for name, mask in frozen.items():
        assert (moments[f"{name}:exp_avg"][mask] == 0).all()
        assert (moments[f"{name}:exp_avg_sq"][mask] == 0).all()
        assert (moments[f"{name}:exp_avg_sq"][~mask] > 0).any()


def test_without_the_hook_they_would_change_and_gradients_pass_again_afterwards(tmp_path):
    module = tiny_model(Translation())
    before, frozen = copy.deepcopy(dict(module.named_parameters())), masks(module)
    run(tmp_path / "frozen", module)
    train(Translation(), tiny_config(**DECAY, seed=1), tiny_data(), module, tmp_path / "on")
    assert all((module.get_parameter(name) != before[name])[mask].any() for name, mask in frozen.items())


def test_an_interrupted_training_ends_with_the_same_bits(tmp_path):
    with pytest.raises(TrainingInterrupted):
        run(tmp_path / "cut", tiny_model(Translation()), StopAfter(7, signal.SIGTERM))
    result, whole = (run(tmp_path / name, tiny_model(Translation())) for name in ("cut", "whole"))
    assert_equal_weights(weights(result.model), weights(whole.model))


def test_a_run_is_continued_with_what_it_was_begun_with(tmp_path):
    arguments = Translation(), tiny_config(), tiny_data()
    with pytest.raises(TrainingInterrupted):
        train(*arguments, tiny_model(Translation()), tmp_path, hooks=[StopAfter(4, signal.SIGTERM)])
    module = tiny_model(Translation())
    with (
        frozen_slices(module, head_slices(load_model(module), FROZEN)) as hook,
        pytest.raises(UserError, match="previously frozen: none"),
    ):
        train(*arguments, module, tmp_path, hooks=[hook])
