"""Features that are looked up: the same numbers as the body's, computed once."""

import copy

import numpy as np
import pytest
import torch
from adaptation.small_task import small_data, small_model, small_tokenizer
from adaptation.test_task_model import FAMILIES, _texts

from infoflow.adaptation import TuneConfig, make_task, task_model, tune
from infoflow.adaptation._feature_store import FeatureStore
from infoflow.adaptation._frozen_body import frozen_body
from infoflow.adaptation._task_model import fresh_model
from infoflow.adaptation._task_parts import task_vocabulary
from infoflow.training import TrainConfig, TrainingData, TrainingHook, train


@pytest.fixture(scope="module")
def task():
    return make_task(small_data(24))


def _padded() -> dict[str, torch.Tensor]:
    ids = _texts((3, 7))
    ids[1, 4], ids[1, 5:] = 2, 0
    return {"input_ids": ids, "attention_mask": (ids != 0).long()}


@pytest.mark.parametrize("family", FAMILIES)
def test_the_head_says_the_same_on_looked_up_states(family, task, tmp_path):
    module = task_model(small_model(family), task).eval()
    body = module.base_model
    expected = module(**_padded()).logits
    with frozen_body(module, FeatureStore(tmp_path)):
        assert torch.allclose(module(**_padded()).logits, expected, atol=1e-6)
        body.forward = None  # from now on everything is looked up
        assert torch.allclose(module(**_padded()).logits, expected, atol=1e-6)
        backwards = {name: value.flip(0) for name, value in _padded().items()}
        assert torch.allclose(module(**backwards).logits, expected.flip(0), atol=1e-6)
    assert module.base_model is body


def test_segments_tell_texts_apart(task, tmp_path):
    module = task_model(small_model(), task).eval()
    ids = _texts((1, 6))
    kinds = torch.tensor([[0, 0, 0, 1, 1, 1]])
    expected = [module(input_ids=ids, token_type_ids=one).logits for one in (torch.zeros_like(ids), kinds)]
    with frozen_body(module, FeatureStore(tmp_path)):
        found = [module(input_ids=ids, token_type_ids=one).logits for one in (torch.zeros_like(ids), kinds)]
    assert all(torch.allclose(one, other, atol=1e-6) for one, other in zip(found, expected, strict=True))
    assert not torch.allclose(*expected)


class _BodyEvaluates(TrainingHook):
    """Lets the body compute without dropout while the head trains with it."""

    def on_step_begin(self, step) -> None:
        step.module.base_model.eval()


def test_training_is_that_through_the_frozen_body(tmp_path):
    """The head's weights after tuning, looked up and not."""
    data, model = small_data(), small_model()
    settings = {"learning_rates": (1e-2,), "seeds": (0,), "head_epochs": 3, "batch_examples": 16, "device": "cpu"}
    (one,) = tune(model, data, TuneConfig(method="frozen", **settings), tmp_path).models
    found = dict(one.load().module.named_parameters())

    task = make_task(data)
    built = fresh_model(model, task, seed=0)
    for name, parameter in built.module.named_parameters():
        parameter.requires_grad_(name in built.head)
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
    source = TrainingData(source=rows, vocabulary=task_vocabulary(tokenizer))
    train(task, config, source, built.module, tmp_path / "through", hooks=[_BodyEvaluates()])
    for name, parameter in built.module.named_parameters():
        assert torch.allclose(found[name], parameter, atol=1e-5), name
    start = dict(fresh_model(model, task, seed=0).module.named_parameters())
    assert not torch.allclose(found["classifier.weight"], start["classifier.weight"], atol=1e-3)


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


def test_the_store_outlives_a_kill_in_the_middle_of_an_entry(tmp_path):
    store = FeatureStore(tmp_path)
    values = {bytes([key] * 16): np.full((key + 1, 3), key, dtype=np.float32) for key in range(4)}
    store.add(values)
    (index,) = tmp_path.glob("*.index")
    index.write_bytes(index.read_bytes()[:-5])  # the last entry's record is cut off
    again = FeatureStore(tmp_path)
    assert len(again) == 3
    assert all(np.array_equal(again.get(key), values[key]) for key in list(values)[:3])
    again.add({b"x" * 16: np.ones((2, 3), dtype=np.float32)})
    third = FeatureStore(tmp_path)
    assert b"x" * 16 in third
    assert copy.copy(third.get(b"x" * 16)).sum() == 6
