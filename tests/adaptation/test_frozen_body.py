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


@pytest.mark.parametrize("family", ["bert", "gpt2"])
def test_a_mix_of_layers_is_trained_and_read_again(tmp_path, family):
    """The stored answers are those of the loaded model, whose head reads γ Σ softmax(s) h of all states."""
    data, model = small_data(), small_model(family)
    settings = {"learning_rates": (3e-2,), "seeds": (0,), "head_epochs": 6, "batch_examples": 16, "device": "cpu"}
    (one,) = tune(model, data, TuneConfig(method="mix", **settings), tmp_path).models
    mix = one.facts["mix"]
    layers = len(model.anatomy.stacks[-1].layers)
    assert len(mix["shares"]) == layers + 1
    assert sum(mix["shares"]) == pytest.approx(1)
    assert max(abs(share - 1 / (layers + 1)) for share in mix["shares"]) > 1e-3  # it was learned
    (score, *_) = one.score(data.test, data.train)
    assert score.row["value"] == pytest.approx(one.facts["test"])

    loaded, rows = one.load(), make_task(data).rows(data.test, small_tokenizer(), model.max_tokens or 128)
    ids = torch.tensor(np.asarray(rows.row(0)))[None]
    body = loaded.module.base_model.body
    with torch.no_grad():
        states = body(input_ids=ids, output_hidden_states=True).hidden_states
        expected = mix["scale"] * sum(share * state for share, state in zip(mix["shares"], states, strict=True))
        found = loaded.module.base_model(input_ids=ids).last_hidden_state
    torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-5)
