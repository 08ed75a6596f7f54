"""Who learned the task: sums that must equal the change of the loss, and each group's by its own path integral."""

import numpy as np
import pytest
import torch
from adaptation.toy_task import ToyTask, learn, toy_before, toy_module, toy_training, tune
from peft import LoraConfig, inject_adapter_in_model

from infoflow.adaptation import TuningAllocation, tuning_allocation
from infoflow.dynamics import RecordConfig, Recording
from infoflow.foundation import request_stop
from infoflow.training import TrainingHook, TrainingInterrupted


class Weights(TrainingHook):
    """Keeps all weights of every update."""

    name = "weights"

    def __init__(self):
        self.path = []

    def on_step_begin(self, step):
        if not self.path:
            self._keep(step)

    def on_step_end(self, step):
        self._keep(step)

    def _keep(self, step):
        self.path.append({name: p.detach().clone() for name, p in step.module.named_parameters()})


def loss_and_slopes(module, weights, task, data):
    for name, parameter in module.named_parameters():
        parameter.data.copy_(weights[name])
    module.eval()
    batch = data.batch(task, np.arange(len(data.source.lengths)), ("evaluation-noise", 0), 0)
    loss = task.example_losses(module, batch).mean()
    names = [name for name, p in module.named_parameters() if p.requires_grad]
    slopes = torch.autograd.grad(loss, [dict(module.named_parameters())[name] for name in names])
    return float(loss.detach()), dict(zip(names, slopes, strict=True))


def table_of(hook, tuning_seed=0):
    return tuning_allocation(Recording.of(hook._recorder), tuning_seed)


def recorded(tmp_path, module, **options):
    task, weights = ToyTask(), Weights()
    hook = TuningAllocation(task, toy_training(task), tokens=10**6, **options)
    learn(module, task, tmp_path / "run", updates=20, hooks=[hook, weights], learning_rate=1e-3, seed=3)
    return hook, weights.path


def test_groups_add_up_to_the_change_and_are_those_of_the_trapezoids(tmp_path):
    module, task = toy_module(toy_before(), 3), ToyTask()
    hook, path = recorded(tmp_path, module)
    table, data = table_of(hook, 3), toy_training(task)
    losses, slopes = zip(*(loss_and_slopes(module, weights, task, data) for weights in path), strict=True)
    assert table["value"].sum() == pytest.approx(table["total"][0])
    assert table["total"][0] == pytest.approx(losses[-1] - losses[0], rel=0.02)
    windows = Recording.of(hook._recorder).tables["allocation_windows"]
    residual = float((windows["residual"] * (windows["end"] - windows["begin"])).sum())
    assert abs(table["total"][0] - (losses[-1] - losses[0])) <= residual + 1e-6

    def allocated(chosen):
        return sum(
            float(((slopes[t][name] + slopes[t + 1][name]) / 2 * (path[t + 1][name] - path[t][name])).sum())
            for t in range(len(path) - 1)
            for name in path[0]
            if chosen(name)
        )

    of = table.set_index(["layer", "component"])["value"]
    assert of[-2, "task-head"] == pytest.approx(allocated(lambda n: "classifier" in n or "pooler" in n), abs=1e-6)
    assert of[1, "query"] == pytest.approx(allocated(lambda n: "layer.1.attention.self.query" in n), abs=1e-6)
    assert of[-1, "embeddings"] == pytest.approx(allocated(lambda n: "word_embeddings" in n), abs=1e-6)
    assert table["parameters"].sum() == sum(p.numel() for p in module.parameters())
    assert (table["tuning_seed"] == 3).all()


def test_a_finer_rule_is_nearer_to_the_change(tmp_path):
    fine = RecordConfig(rule="simpson", parameters=False, check_rules=False)
    module = toy_module(toy_before(), 3)
    hook, path = recorded(tmp_path, module, config=fine)
    data, task = toy_training(ToyTask()), ToyTask()
    change = loss_and_slopes(module, path[-1], task, data)[0] - loss_and_slopes(module, path[0], task, data)[0]
    assert table_of(hook)["total"][0] == pytest.approx(change, rel=1e-4)


def test_adapters_are_a_group_of_their_own(tmp_path):
    module = toy_module(toy_before(), 3)
    config = LoraConfig(r=2, target_modules=["query", "value"], init_lora_weights=True)
    module = inject_adapter_in_model(config, module)
    for name, parameter in module.named_parameters():
        parameter.requires_grad = "lora_" in name or "classifier" in name
    hook, path = recorded(tmp_path, module)
    table = table_of(hook)
    assert set(table.component) == {"adapter", "task-head"}
    assert set(table[table.component == "adapter"].layer) == {0, 1, 2}
    data, task = toy_training(ToyTask()), ToyTask()
    change = loss_and_slopes(module, path[-1], task, data)[0] - loss_and_slopes(module, path[0], task, data)[0]
    assert table["value"].sum() == pytest.approx(change, rel=0.05)


def test_a_head_alone_learns_all(tmp_path):
    module = toy_module(toy_before(), 3)
    for name, parameter in module.named_parameters():
        parameter.requires_grad = "classifier" in name
    hook, path = recorded(tmp_path, module)
    table, task = table_of(hook), ToyTask()
    assert table[["layer", "component"]].values.tolist() == [[-2, "task-head"]]
    losses = [loss_and_slopes(module, weights, task, toy_training(task))[0] for weights in (path[0], path[-1])]
    assert table["value"].item() == pytest.approx(losses[1] - losses[0], rel=0.02)


def test_an_interrupted_training_allocates_what_an_uninterrupted_one_does(tmp_path):
    class Stop(TrainingHook):
        name = "stop"

        def on_step_end(self, step):
            if step.update == 7:
                request_stop()

    task = ToyTask()
    hooks = [TuningAllocation(task, toy_training(task), tokens=10**6) for _ in range(3)]
    whole = {"updates": 12, "learning_rate": 1e-3, "seed": 3, "save_every": 3}
    tune(toy_module(toy_before(), 3), task, tmp_path / "whole", hooks=hooks[:1], **whole)
    with pytest.raises(TrainingInterrupted):
        tune(toy_module(toy_before(), 3), task, tmp_path / "parts", hooks=[hooks[1], Stop()], **whole)
    tune(toy_module(toy_before(), 3), task, tmp_path / "parts", hooks=hooks[2:], **whole)
    first, second = (table_of(hooks[place])["value"].to_numpy(float) for place in (0, 2))
    np.testing.assert_array_equal(first, second)


def test_what_was_written_says_the_same(tmp_path):
    hook, _ = recorded(tmp_path, toy_module(toy_before(), 3), out=tmp_path / "recording")
    written = tuning_allocation(Recording.read(tmp_path / "recording"))
    np.testing.assert_allclose(written["value"].astype(float), table_of(hook)["value"].astype(float))


def test_training_is_the_same_without_it(tmp_path):
    first, second = (toy_module(toy_before(), 3) for _ in range(2))
    recorded(tmp_path / "with", first)
    tune(second, ToyTask(), tmp_path / "without", updates=20, learning_rate=1e-3, seed=3)
    for (name, a), b in zip(first.named_parameters(), second.parameters(), strict=True):
        assert torch.equal(a, b), name


def test_dropout_and_half_precision_are_neither_in_the_way_nor_disturbed(tmp_path):
    ends = []
    for name, hooked in (("with", True), ("without", False)):
        module, task = toy_module(toy_before(), 3), ToyTask()
        for child in module.modules():
            if isinstance(child, torch.nn.Dropout):
                child.p = 0.3
        hooks = [TuningAllocation(task, toy_training(task), tokens=500)] if hooked else []
        tune(module, task, tmp_path / name, updates=4, hooks=hooks, precision="bf16")
        ends.append({name: p.detach().clone() for name, p in module.named_parameters()})
    assert all(torch.equal(kept, ends[1][name]) for name, kept in ends[0].items())
