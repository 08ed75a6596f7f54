"""Features that are looked up: the same numbers as the body's, computed once."""

import numpy as np
import pytest
import torch
from adaptation.small_task import small_data, small_model, small_tokenizer

from infoflow.adaptation import TuneConfig, make_task, task_model, tune
from infoflow.corpus import Vocabulary
from infoflow.training import TrainConfig, TrainingData, TrainingHook, train


@pytest.fixture(scope="module")
def task():
    return make_task(small_data(24))


class _BodyEvaluates(TrainingHook):
    """Lets the body compute without dropout while the head trains with it."""

    def on_step_begin(self, step) -> None:
        step.module.base_model.eval()


@pytest.mark.parametrize("family", ["bert", "gpt2", "bart"])
def test_training_is_that_through_the_frozen_body(tmp_path, family):
    """The head's weights after tuning, looked up and not."""
    data, model = small_data(), small_model(family)
    settings = {"learning_rates": (1e-2,), "seeds": (0,), "head_epochs": 3, "batch_examples": 16, "device": "cpu"}
    (one,) = tune(model, data, TuneConfig(method="frozen", **settings), tmp_path).models
    found = dict(one.load().module.named_parameters())

    task = make_task(data)
    built, start = task_model(model, task), dict(task_model(model, task).named_parameters())
    body = f"{built.base_model_prefix}."
    head = {name for name in start if not name.startswith(body) or "pooler" in name}
    for name, parameter in built.named_parameters():
        parameter.requires_grad_(name in head)
    tokenizer = small_tokenizer()
    rows = task.rows(data.train, tokenizer, model.max_tokens or 128)
    config = TrainConfig(
        updates=9,
        batch_tokens=16 * int(np.max(rows.lengths)),
        batch_sentences=16,
        micro_tokens=8192,
        learning_rate=1e-2,
        warmup=0.1,
        betas=(0.9, 0.999),
        decay_norms=False,
        precision="fp32",
        device="cpu",
    )
    source = TrainingData(source=rows, vocabulary=Vocabulary.from_tokenizer(tokenizer))
    train(task, config, source, built, tmp_path / "through", hooks=[_BodyEvaluates()])
    for name, parameter in built.named_parameters():
        assert torch.allclose(found[name], parameter, atol=1e-5), name
    assert any(not torch.allclose(found[name], start[name], atol=1e-3) for name in head)


def test_features_are_shared_over_tasks_seeds_and_rates(tmp_path):
    data, other = small_data(), small_data(name="other")
    model = small_model()
    calls = []
    original = type(model.module.base_model).forward

    def counted(self, input_ids, *args, **options):
        calls.append(len(input_ids))
        return original(self, input_ids, *args, **options)

    config = TuneConfig(method="frozen", seeds=(0, 1), head_epochs=1, learning_rates=(1e-2, 1e-3))
    type(model.module.base_model).forward = counted
    try:
        tune(model, data, config, tmp_path)
        first = sum(calls)
        tune(model, other, config, tmp_path)
    finally:
        type(model.module.base_model).forward = original
    texts = [text for part in (data.train, data.dev, data.test) for text in part.column("text")]
    assert first == len(set(texts))
    assert sum(calls) == first


def test_features_outlive_a_kill_in_the_middle_of_an_entry(tmp_path):
    data, model = small_data(24), small_model()
    settings = {"learning_rates": (1e-2,), "head_epochs": 1, "batch_examples": 16, "device": "cpu"}
    for name in ("whole", "cut"):
        tune(model, data, TuneConfig(method="frozen", seeds=(0,), **settings), tmp_path / name)
    for index in (tmp_path / "cut").rglob("*.index"):
        index.write_bytes(index.read_bytes()[:-5])  # the last entry's record is cut off
    whole, cut = (
        tune(model, data, TuneConfig(method="frozen", seeds=(0, 1), **settings), tmp_path / name).models[1].load()
        for name in ("whole", "cut")
    )
    for one, other in zip(whole.module.parameters(), cut.module.parameters(), strict=True):
        assert torch.allclose(one, other, atol=1e-6)
