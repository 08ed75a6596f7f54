"""What a run leaves behind: checkpoints, log, model; and what hooks see."""

import json
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.plain import run_card
from training.tiny import tiny_config, tiny_data, tiny_model

from infoflow.corpus import Corpus, train_tokenizer
from infoflow.foundation import UserError
from infoflow.objectives import CausalLM, MaskedLM, Translation, Vocabulary
from infoflow.training import (
    Checkpoints,
    ModelConfig,
    TrainConfig,
    TrainingData,
    TrainingHook,
    build_models,
    evaluate,
    read_log,
    train,
)


class Watch(TrainingHook):
    """Keeps the weights around each update and counts, in its own state, how often it was called."""

    name = "watch"

    def __init__(self) -> None:
        self.changes: list[float] = []
        self.calls = torch.zeros(1)

    def on_step_begin(self, step) -> None:
        self._before = step.module.bert.embeddings.word_embeddings.weight.detach().clone()
        torch.rand(3)  # a hook's random draws change nothing

    def on_step_end(self, step) -> None:
        after = step.module.bert.embeddings.word_embeddings.weight
        self.changes.append(float((after - self._before).abs().max().detach()))
        assert after.grad is not None
        assert sum(batch.source_tokens for batch in step.batches) > 0
        self.calls += 1

    def state_dict(self) -> dict[str, torch.Tensor]:
        return {"calls": self.calls}


def test_checkpoints_kept_are_the_last_and_the_best(tmp_path: Path) -> None:
    config = tiny_config(evaluate_every=5)
    train(MaskedLM(), config, tiny_data(), tiny_model(MaskedLM()), tmp_path, validation=tiny_data(20, seed=9))
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    best = checkpoints.best()
    assert best is not None
    assert best["update"] in (5, 10, 14)
    assert set(checkpoints.updates()) == {12, 14, best["update"]}
    assert checkpoints.latest() == checkpoints.path(14)
    assert all((checkpoints.path(update) / "training").exists() for update in checkpoints.updates())
    final = load_file(checkpoints.path(14) / "model.safetensors")
    assert all(torch.equal(v, final[n]) for n, v in load_file(tmp_path / "model" / "model.safetensors").items())


def test_log_holds_what_the_run_did(tmp_path: Path) -> None:
    config, data = tiny_config(evaluate_every=5), tiny_data()
    result = train(Translation(), config, data, tiny_model(Translation()), tmp_path, validation=data)
    lines = read_log(tmp_path / "log.jsonl")
    training = [line for line in lines if "loss" in line]
    assert [line["update"] for line in training] == [4, 8, 12, 14]
    assert [line["update"] for line in lines if "validation" in line] == [5, 10, 14]
    last = training[-1]
    assert (last["source_tokens"], last["target_tokens"]) == (result.source_tokens, result.target_tokens)
    assert last["supervised_tokens"] == result.supervised_tokens == result.target_tokens
    assert last["learning_rate"] == 0.0
    assert {"epoch", "losses", "gradient_norm", "tokens_per_second", "tokens_per_cpu_second"} <= last.keys()
    assert result.validation_losses == lines[-1]["validation"]


def test_objectives_read_the_same_source_tokens(tmp_path: Path) -> None:
    read = [
        train(objective, tiny_config(updates=6), tiny_data(), tiny_model(objective), tmp_path / objective.name)
        for objective in (CausalLM(), MaskedLM(), Translation())
    ]
    assert len({result.source_tokens for result in read}) == 1


def test_hooks_see_every_update_and_change_nothing(tmp_path: Path) -> None:
    watch = Watch()
    watched = train(MaskedLM(), tiny_config(), tiny_data(), tiny_model(MaskedLM()), tmp_path / "a", hooks=[watch])
    plain = train(MaskedLM(), tiny_config(), tiny_data(), tiny_model(MaskedLM()), tmp_path / "b")
    assert len(watch.changes) == 14
    assert all(change > 0 for change in watch.changes[:-1])
    one, other = (load_file(result.model / "model.safetensors") for result in (watched, plain))
    assert all(torch.equal(one[name], other[name]) for name in one)
    latest = Checkpoints(tmp_path / "a" / "checkpoints").latest()
    assert latest is not None
    assert load_file(latest / "training" / "hooks.safetensors")["watch:calls"].item() == 14


def test_a_corpus_is_trained_on_as_it_is(parallel_corpus: Corpus, tmp_path: Path) -> None:
    sentences = [parallel_corpus[i] for i in range(len(parallel_corpus))]
    source_tokenizer = train_tokenizer([sentence.text for sentence in sentences], vocab_size=80)
    target_tokenizer = train_tokenizer([sentence.translation or "" for sentence in sentences], vocab_size=80)
    data = TrainingData(
        source=parallel_corpus.encode(source_tokenizer),
        vocabulary=Vocabulary.from_tokenizer(source_tokenizer),
        target=parallel_corpus.encode(target_tokenizer, side="translation"),
        target_vocabulary=Vocabulary.from_tokenizer(target_tokenizer),
        tokenizer=source_tokenizer,
        target_tokenizer=target_tokenizer,
    )
    shape = ModelConfig(width=16, layers=1, heads=2, feedforward=32, positions=64)
    model = build_models([Translation()], shape, data.vocabulary, data.target_vocabulary)["translation"]
    result = train(Translation(), TrainConfig(updates=3, device="cpu"), data, model, tmp_path)
    assert (result.model / "tokenizer.json").exists()
    assert (result.model / "target_tokenizer" / "tokenizer.json").exists()
    assert json.loads((result.model / "training.json").read_text())["updates"] == 3
    run_card(result.model)


@pytest.fixture
def any_rate(monkeypatch) -> None:
    """Rates that no plan may have: below them losses stay finite."""
    monkeypatch.setattr("infoflow.foundation.check_settings", lambda *_: None)


@pytest.mark.usefixtures("any_rate")
def test_mistakes_are_explained(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="not finite at update"):
        train(
            CausalLM(),
            tiny_config(learning_rate=1e30, weight_decay=0.0, warmup=0.0, clip=0.0),
            tiny_data(),
            tiny_model(CausalLM()),
            tmp_path / "nan",
        )
    with pytest.raises(UserError, match="Got an empty corpus"):
        tiny_data(0)
    with pytest.raises(UserError, match=r"Got .*tpu"):
        train(CausalLM(), tiny_config(device="tpu"), tiny_data(), tiny_model(CausalLM()), tmp_path / "tpu")


@pytest.mark.usefixtures("any_rate")
def test_weights_that_are_not_finite_are_never_saved(tmp_path: Path) -> None:
    """Also between two lines of the log, at an update that would be saved."""
    config = tiny_config(learning_rate=1e30, weight_decay=0.0, warmup=0.0, clip=0.0, log_every=100, save_every=1)
    with pytest.raises(UserError, match="not finite at update 2"):
        train(CausalLM(), config, tiny_data(), tiny_model(CausalLM()), tmp_path)
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    assert checkpoints.updates() == [1]
    for update in checkpoints.updates():
        assert all(
            value.isfinite().all() for value in load_file(checkpoints.path(update) / "model.safetensors").values()
        )


def test_every_training_seed_is_evaluated_with_the_same_noise(tmp_path: Path) -> None:
    data = tiny_data(20)
    for seed in (1, 2):
        model = tiny_model(MaskedLM())
        config = tiny_config(updates=2, seed=seed)
        result = train(MaskedLM(), config, data, model, tmp_path / str(seed), validation=data)
        assert result.validation_losses == evaluate(MaskedLM(), model, data, micro_tokens=config.micro_tokens).losses
