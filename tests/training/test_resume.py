"""A run that was killed, at any moment, ends with the weights of one that was not."""

import json
import os
import signal
import time
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from support.forked import run_script
from training.running_text import segment_data, window_data
from training.tiny import tiny_config, tiny_data, tiny_model
from training.toy_objectives import SentenceOrder, pair_model

from infoflow.foundation import UserError
from infoflow.objectives import CausalLM, MaskedLM, Translation
from infoflow.training import Checkpoints, TrainingHook, TrainingInterrupted, read_log, train

SCRIPT = Path(__file__).parent / "tiny.py"


def weights(folder: Path) -> dict[str, torch.Tensor]:
    return load_file(folder / "model.safetensors")


def assert_equal_weights(one: dict[str, torch.Tensor], other: dict[str, torch.Tensor]) -> None:
    assert one.keys() == other.keys()
    assert all(torch.equal(one[name], other[name]) for name in one)


def run_until_killed(out: Path, moment: str) -> None:
    assert run_script(SCRIPT, out, "--die", moment) == -signal.SIGKILL


class StopAfter(TrainingHook):
    """Asks the process to stop, as a batch queue does."""

    def __init__(self, update: int, number: int = signal.SIGTERM) -> None:
        self._update, self._number = update, number

    def on_step_end(self, step) -> None:
        if step.update == self._update:
            os.kill(os.getpid(), self._number)


class Busy(TrainingHook):
    """Uses up processor time at the first update."""

    SECONDS = 0.3

    def on_step_end(self, step) -> None:
        end = time.process_time() + self.SECONDS
        while step.update == 1 and time.process_time() < end:
            pass


@pytest.mark.slow
def test_kill_at_several_moments_changes_no_bit(tmp_path: Path) -> None:
    # Each kill meets the run that continues after the one before: at the start of an update, between the files of a
    # checkpoint, after a checkpoint but before `latest` points at it, in an update again, before a later checkpoint.
    run_until_killed(tmp_path / "killed", "step:2")
    run_until_killed(tmp_path / "killed", "save_file:2")
    run_until_killed(tmp_path / "killed", "atomic_write:2")
    run_until_killed(tmp_path / "killed", "step:9")
    run_until_killed(tmp_path / "killed", "save_model:3")
    result = train(MaskedLM(), tiny_config(), tiny_data(), tiny_model(MaskedLM()), tmp_path / "killed")
    whole = train(MaskedLM(), tiny_config(), tiny_data(), tiny_model(MaskedLM()), tmp_path / "whole")
    assert_equal_weights(weights(result.model), weights(whole.model))
    assert (result.updates, result.source_tokens) == (whole.updates, whole.source_tokens)
    rates = {"tokens_per_second", "tokens_per_cpu_second"}
    killed_log, whole_log = (
        [{name: value for name, value in line.items() if name not in rates} for line in read_log(folder / "log.jsonl")]
        for folder in (tmp_path / "killed", tmp_path / "whole")
    )
    assert killed_log == whole_log


@pytest.mark.parametrize(
    ("objective", "number"),
    [
        (CausalLM(token_dropout=0.1), signal.SIGTERM),
        (Translation(), signal.SIGINT),
        (MaskedLM(selection="static"), signal.SIGTERM),
    ],
)
def test_stop_request_saves_and_continues_exactly(objective, number: int, tmp_path: Path) -> None:
    arguments = objective, tiny_config(), tiny_data()
    with pytest.raises(TrainingInterrupted, match="continue") as stopped:
        train(*arguments, tiny_model(objective), tmp_path / "stopped", hooks=[StopAfter(7, number)])
    assert stopped.value.update in (7, 8)  # the request is seen at the latest in the next update
    assert signal.getsignal(signal.SIGTERM) == signal.SIG_DFL
    result = train(*arguments, tiny_model(objective), tmp_path / "stopped")
    whole = train(*arguments, tiny_model(objective), tmp_path / "whole")
    assert_equal_weights(weights(result.model), weights(whole.model))


def test_cpu_seconds_count_what_came_before_an_interruption(tmp_path: Path) -> None:
    arguments = MaskedLM(), tiny_config(), tiny_data()
    with pytest.raises(TrainingInterrupted):
        train(*arguments, tiny_model(MaskedLM()), tmp_path, hooks=[Busy(), StopAfter(7)])
    newest = Checkpoints(tmp_path / "checkpoints").latest()
    assert newest is not None
    before = json.loads((newest / "training" / "state.json").read_text())["cpu_seconds"]
    started = time.process_time()
    result = train(*arguments, tiny_model(MaskedLM()), tmp_path)
    assert 0 < result.cpu_seconds - before < time.process_time() - started
    assert before > Busy.SECONDS
    assert train(*arguments, tiny_model(MaskedLM()), tmp_path).cpu_seconds == result.cpu_seconds


@pytest.mark.parametrize(
    ("objective", "data", "model"),
    [
        (MaskedLM(selection="static"), window_data, lambda: tiny_model(MaskedLM())),
        (SentenceOrder(), segment_data, pair_model),
    ],
)
def test_windows_and_pairs_are_continued_exactly(objective, data, model, tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        train(objective, tiny_config(), data(), model(), tmp_path / "stopped", hooks=[StopAfter(7)])
    result = train(objective, tiny_config(), data(), model(), tmp_path / "stopped")
    whole = train(objective, tiny_config(), data(), model(), tmp_path / "whole", validation=data())
    assert_equal_weights(weights(result.model), weights(whole.model))
    assert result.source_tokens == whole.source_tokens
    assert whole.validation_losses


def test_training_leaves_the_callers_random_state_alone_and_does_not_depend_on_it(tmp_path: Path) -> None:
    torch.manual_seed(1)
    before = torch.get_rng_state()
    first = train(MaskedLM(), tiny_config(updates=3), tiny_data(), tiny_model(MaskedLM()), tmp_path / "first")
    assert torch.equal(torch.get_rng_state(), before)
    torch.manual_seed(2)
    second = train(MaskedLM(), tiny_config(updates=3), tiny_data(), tiny_model(MaskedLM()), tmp_path / "second")
    assert_equal_weights(weights(first.model), weights(second.model))


def test_a_finished_run_is_not_trained_again(tmp_path: Path) -> None:
    first = train(MaskedLM(), tiny_config(updates=3), tiny_data(), tiny_model(MaskedLM()), tmp_path)
    model = tiny_model(MaskedLM())
    again = train(MaskedLM(), tiny_config(updates=3), tiny_data(), model, tmp_path, hooks=[StopAfter(1)])
    assert again == first
    saved = weights(first.model)
    assert all(torch.equal(value, saved[name]) for name, value in model.state_dict().items() if name in saved)


def test_a_run_does_not_depend_on_the_folder_that_its_model_was_loaded_from(tmp_path: Path) -> None:
    results = []
    for folder in ("before", "after"):
        model = tiny_model(Translation())
        model.config.encoder._name_or_path = str(tmp_path / folder)
        results.append(train(Translation(), tiny_config(updates=3), tiny_data(), model, tmp_path / "run"))
    assert results[0] == results[1]


def test_the_same_model_object_may_be_passed_again(tmp_path: Path) -> None:
    arguments = MaskedLM(), tiny_config(), tiny_data()
    model = tiny_model(MaskedLM())
    with pytest.raises(TrainingInterrupted):
        train(*arguments, model, tmp_path / "again", hooks=[StopAfter(7)])
    result = train(*arguments, model, tmp_path / "again")
    assert train(*arguments, model, tmp_path / "again") == result
    whole = train(*arguments, tiny_model(MaskedLM()), tmp_path / "whole")
    assert_equal_weights(weights(result.model), weights(whole.model))
    # The run still belongs to the model it began with, and to no other.
    assert train(*arguments, tiny_model(MaskedLM()), tmp_path / "again") == result
    with pytest.raises(UserError, match="initial weights was"):
        train(*arguments, tiny_model(MaskedLM(), seed=5), tmp_path / "again")


def test_a_run_continues_only_under_its_own_conditions(tmp_path: Path) -> None:
    arguments = MaskedLM(), tiny_config(), tiny_data()
    with pytest.raises(TrainingInterrupted):
        train(*arguments, tiny_model(MaskedLM()), tmp_path, hooks=[StopAfter(7)])
    latest = Checkpoints(tmp_path / "checkpoints").latest()
    assert latest is not None
    file = latest / "training" / "state.json"
    state = json.loads(file.read_text())
    assert state["conditions"] == {"precision": "fp32", "processes": 1}
    for name, value in (("precision", "bf16"), ("processes", 2)):
        file.write_text(json.dumps({**state, "conditions": {**state["conditions"], name: value}}))
        with pytest.raises(UserError, match=f"started with {name} {value}"):
            train(*arguments, tiny_model(MaskedLM()), tmp_path)
    del state["conditions"]  # as an earlier version wrote it
    file.write_text(json.dumps(state))
    assert train(*arguments, tiny_model(MaskedLM()), tmp_path).updates == 14


def test_the_checkpoint_that_latest_names_is_never_removed(tmp_path: Path) -> None:
    """A run killed between a checkpoint and its pointer leaves a later one, which it will write again."""
    checkpoints = Checkpoints(tmp_path)
    for update in (5, 6, 9):
        (checkpoints.path(update) / "training").mkdir(parents=True)
    (tmp_path / "latest").write_text(checkpoints.path(6).name)
    checkpoints.tidy(keep_last=1)
    assert checkpoints.updates() == [6, 9]
    checkpoints.drop_after(6)
    assert checkpoints.updates() == [6]
    assert checkpoints.latest() == checkpoints.path(6)


def test_a_continued_run_drops_later_checkpoints(tmp_path: Path) -> None:
    arguments = MaskedLM(), tiny_config(), tiny_data()
    with pytest.raises(TrainingInterrupted):
        train(*arguments, tiny_model(MaskedLM()), tmp_path, hooks=[StopAfter(7)])
    checkpoints = Checkpoints(tmp_path / "checkpoints")
    checkpoints.path(13).mkdir()
    train(*arguments, tiny_model(MaskedLM()), tmp_path)
    assert 13 not in checkpoints.updates()


@pytest.mark.parametrize(
    ("objective", "change", "named"),
    [
        (MaskedLM(), {"learning_rate": 0.5}, "learning_rate was 0.01, is 0.5"),
        (MaskedLM(rate=0.3), {}, "objective rate was 0.15, is 0.3"),
        (CausalLM(), {}, "objective was masked-lm, is causal-lm"),
    ],
)
def test_a_folder_of_another_run_is_refused(objective, change: dict, named: str, tmp_path: Path) -> None:
    train(MaskedLM(), tiny_config(updates=3), tiny_data(), tiny_model(MaskedLM()), tmp_path)
    with pytest.raises(UserError, match="initial weights was"):
        train(MaskedLM(), tiny_config(updates=3), tiny_data(), tiny_model(MaskedLM(), seed=5), tmp_path)
    with pytest.raises(UserError, match=named):
        train(objective, tiny_config(updates=3, **change), tiny_data(), tiny_model(objective), tmp_path)
