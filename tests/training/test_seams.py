"""What later objectives need of the loop: pairs, several terms, losses that draw."""

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from training.tiny import tiny_config, tiny_data
from training.toy_objectives import ReplacedTokens, SentenceOrder, pair_data, pair_model, two_models
from transformers import AutoModelForTokenClassification

from infoflow.foundation import UserError
from infoflow.models import load_model
from infoflow.training import TrainingHook, TrainingInterrupted, Updater, evaluate, make_accelerator, read_log, train


class StopAfter(TrainingHook):
    def __init__(self, update: int) -> None:
        self._update = update

    def on_step_end(self, step) -> None:
        if step.update == self._update:
            import signal

            signal.raise_signal(signal.SIGINT)


def test_pairs_and_two_terms_are_trained_logged_and_evaluated(tmp_path) -> None:
    objective, data = SentenceOrder(), pair_data()
    module = pair_model()
    result = train(objective, tiny_config(updates=30), data, module, tmp_path, validation=data)
    assert set(result.validation_losses) == {"masked-lm", "order"}
    for line in (line for line in read_log(tmp_path / "log.jsonl") if "losses" in line):
        assert line["loss"] == pytest.approx(line["losses"]["masked-lm"] + 0.5 * line["losses"]["order"])
    found = evaluate(objective, module, data, micro_tokens=80)
    assert found.losses == result.validation_losses
    assert found.counts["order"] == len(data.source.lengths)
    assert found.loss == found.losses["masked-lm"] + 0.5 * found.losses["order"]


def test_both_terms_weigh_as_they_should_in_the_gradient() -> None:
    """The update's gradient is that of the two means, each over its own items, however the update is split."""
    objective, data, rows = SentenceOrder(), pair_data(), np.arange(12)
    module = pair_model().eval()
    batch = data.batch(objective, rows, ("training-noise", 0), 0)
    terms = objective.loss(module, batch, batch.noise)
    (terms["masked-lm"].total / terms["masked-lm"].count + 0.5 * terms["order"].total / 12).backward()
    other = pair_model().eval()
    updater = Updater(objective, other, data, tiny_config(micro_tokens=40, clip=0.0), make_accelerator("cpu"))
    updater.accumulate(updater.batches(rows, epoch=0), rows, update=1, stop=False)
    for one, again in zip(module.parameters(), other.parameters(), strict=True):
        torch.testing.assert_close(one.grad, again.grad, rtol=1e-4, atol=1e-6)


def texts(objective, module, data, pieces, noise, epoch=0) -> dict[int, list[int]]:
    """What the loss of each sentence reads, by its row."""
    found = {}
    for rows in pieces:
        batch = data.batch(objective, rows, noise, epoch)
        sampled, _ = objective.sampled(module, batch, batch.noise)
        lengths = data.source.lengths[rows]
        found |= {int(row): ids[:n].tolist() for row, ids, n in zip(rows, sampled, lengths, strict=True)}
    return found


def test_a_loss_draws_the_same_whatever_the_batches_their_order_and_the_processes() -> None:
    objective, module, data, rows = ReplacedTokens(), two_models().eval(), tiny_data(), np.arange(24)
    key = ("evaluation-noise", 0)
    whole = texts(objective, module, data, [rows], key)
    assert whole == texts(objective, module, data, np.array_split(rows[::-1], 7), key)
    assert whole == texts(objective, module, data, [rows[0::3], rows[2::3], rows[1::3]], key)  # as three processes
    assert whole != texts(objective, module, data, [rows], ("evaluation-noise", 1))
    epochs = [texts(objective, module, data, [rows], ("training-noise", 0), epoch) for epoch in (0, 1, 0)]
    assert epochs[0] == epochs[2] != epochs[1]


def test_evaluation_of_a_loss_that_draws_is_frozen() -> None:
    objective, module, data = ReplacedTokens(), two_models(), tiny_data()
    torch.manual_seed(1)
    first = evaluate(objective, module, data, micro_tokens=40)
    torch.manual_seed(2)
    again = evaluate(objective, module, data, micro_tokens=10_000)
    assert first.counts == again.counts
    assert first.losses == pytest.approx(again.losses, rel=1e-5)
    assert evaluate(objective, module, data, seed=1).losses["replaced"] != first.losses["replaced"]


def test_training_with_a_loss_that_draws_resumes_exactly(tmp_path) -> None:
    objective, data = ReplacedTokens(), tiny_data()
    with pytest.raises(TrainingInterrupted):
        train(objective, tiny_config(), data, two_models(), tmp_path / "cut", hooks=[StopAfter(8)])
    torch.manual_seed(5)
    train(objective, tiny_config(), data, resumed := two_models(), tmp_path / "cut")
    train(objective, tiny_config(), data, whole := two_models(), tmp_path / "whole")
    assert all(torch.equal(a, b) for a, b in zip(resumed.parameters(), whole.parameters(), strict=True))


def test_the_exported_model_alone_is_saved_loaded_and_measured(tmp_path) -> None:
    objective, data, module = ReplacedTokens(), tiny_data(), two_models()
    start = {name: p.detach().clone() for name, p in module.named_parameters()}
    folder = train(objective, tiny_config(), data, module, tmp_path).model
    changed = [name for name, p in module.named_parameters() if not torch.equal(p, start[name])]
    assert any(name.startswith("small.") for name in changed)
    loaded = AutoModelForTokenClassification.from_pretrained(folder)
    kept = module.large.state_dict()
    assert loaded.state_dict().keys() == kept.keys()
    assert all(torch.equal(value, kept[name]) for name, value in loaded.state_dict().items())
    assert load_model(folder).digest == load_model(module.large).digest
    for path in (folder, *(tmp_path / "checkpoints").glob("step-*")):
        names = load_file(path / "model.safetensors").keys()
        assert not any(name.startswith(("small", "large")) for name in names)
        rest = load_file(path / "rest.safetensors").keys()
        assert rest
        assert all(name.startswith("small.") for name in rest)
        assert "small.bert.embeddings.word_embeddings.weight" not in rest  # shared with the exported model


def test_a_finished_run_gives_back_every_part(tmp_path) -> None:
    objective, data = ReplacedTokens(), tiny_data()
    train(objective, tiny_config(), data, module := two_models(), tmp_path)
    train(objective, tiny_config(), data, again := two_models(), tmp_path)
    assert all(torch.equal(a, b) for a, b in zip(module.parameters(), again.parameters(), strict=True))
    assert train(objective, tiny_config(), data, module, tmp_path).updates == 14  # the trained model goes on
    (tmp_path / "model" / "rest.safetensors").unlink()
    with pytest.raises(UserError, match="holds a run with other settings: initial weights"):
        train(objective, tiny_config(), data, two_models(seed=3), tmp_path)


def test_mixed_precision_reaches_every_part(tmp_path) -> None:
    data, module = tiny_data(), two_models()
    train(ReplacedTokens(), tiny_config(updates=2, precision="bf16"), data, module, tmp_path, validation=data)
    assert module.small.config._attn_implementation == module.large.config._attn_implementation == "sdpa"


def test_objectives_of_one_model_leave_no_rest(tmp_path) -> None:
    objective = SentenceOrder()
    module = pair_model()
    assert objective.exported(module) is module
    folder = train(objective, tiny_config(updates=2), pair_data(), module, tmp_path).model
    assert not (folder / "rest.safetensors").exists()
