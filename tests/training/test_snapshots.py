"""Snapshots: the training does not notice them, and they are what any loader reads."""

import dataclasses
import hashlib
import json
import os
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from support.forked import run_script, run_together
from training.tiny import EVERY, tiny_config, tiny_data, tiny_model
from training.toy_objectives import ReplacedTokens, two_models
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM

from infoflow.corpus import Corpus, train_tokenizer
from infoflow.foundation import PlainDisplay, UserError, use_display
from infoflow.models import load_model
from infoflow.objectives import CausalLM, MaskedLM, Translation, Vocabulary
from infoflow.training import (
    DEFAULT_SCHEDULE,
    Checkpoints,
    ModelConfig,
    SnapshotPlan,
    Snapshots,
    TrainConfig,
    TrainingData,
    TrainingHook,
    TrainingInterrupted,
    build_models,
    checkpoint_steps,
    load_weights,
    train,
)

pytestmark = pytest.mark.slow

SCRIPT = Path(__file__).parent / "tiny.py"
DEFAULT = SnapshotPlan(steps=lambda c: checkpoint_steps(DEFAULT_SCHEDULE, c.updates, c.warmup_updates))
FEW = SnapshotPlan(steps=lambda config: [0, 5, config.updates])


class StopAfter(TrainingHook):
    def __init__(self, update: int) -> None:
        self._update = update

    def on_step_end(self, step) -> None:
        if step.update == self._update:
            os.kill(os.getpid(), signal.SIGINT)


class Watch(TrainingHook):
    """What is left of gradients, modes and the random state when the next update begins."""

    def __init__(self) -> None:
        self.seen: list[tuple] = []

    def on_step_begin(self, step) -> None:
        gradients = [p.grad is not None and float(p.grad.abs().sum()) for p in step.module.parameters()]
        modes = [module.training for module in step.module.modules()]
        self.seen.append((gradients, modes, torch.get_rng_state().tolist()))


def sha256(file: Path) -> str:
    return hashlib.sha256(file.read_bytes()).hexdigest()


def trained(out: Path, plan: SnapshotPlan | None, objective=None, model=None, **options) -> str:
    """SHA-256 of the final weights of thirty updates; in several micro-batches each, with dropout."""
    objective = objective or MaskedLM()
    settings = {"updates": 30, "log_every": 7, **options.pop("settings", {})}
    module = model or tiny_model(objective)
    result = train(objective, tiny_config(**settings), tiny_data(), module, out, snapshots=plan, **options)
    return sha256(result.model / "model.safetensors")


def hashes(out: Path) -> dict[int, dict[str, str]]:
    return {update: entry.weights for update, entry in Snapshots(out / "snapshots").entries().items()}


@pytest.mark.parametrize(("objective", "precision"), [(CausalLM(token_dropout=0.1), "fp32"), (MaskedLM(), "bf16")])
def test_the_final_weights_do_not_depend_on_what_is_kept(objective, precision: str, tmp_path: Path) -> None:
    settings = {"precision": precision}
    found = {
        name: trained(tmp_path / name, plan, objective, settings=settings)
        for name, plan in {"none": None, "default": DEFAULT, "every": EVERY}.items()
    }
    assert len(set(found.values())) == 1
    assert Snapshots(tmp_path / "every" / "snapshots").kept() == list(range(31))
    default = hashes(tmp_path / "default")
    assert len(default) == len(checkpoint_steps(DEFAULT_SCHEDULE, 30, 2))
    assert default == {update: hashes(tmp_path / "every")[update] for update in default}


def test_gradients_modes_and_random_state_are_those_of_a_training_without(tmp_path: Path) -> None:
    watches = Watch(), Watch()
    trained(tmp_path / "plain", None, hooks=[watches[0]])
    trained(tmp_path / "kept", EVERY, hooks=[watches[1]])
    assert len(watches[0].seen) == 30
    assert watches[0].seen == watches[1].seen


@pytest.mark.slow
def test_two_processes_train_to_the_same_weights_with_snapshots(tmp_path: Path) -> None:
    run_together(SCRIPT, tmp_path / "plain")
    run_together(SCRIPT, tmp_path / "kept", "--keep")
    one, other = (sha256(tmp_path / name / "model" / "model.safetensors") for name in ("plain", "kept"))
    assert one == other
    assert Snapshots(tmp_path / "kept" / "snapshots").kept() == list(range(15))


@pytest.mark.slow
def test_kill_at_several_moments_leaves_the_same_snapshots(tmp_path: Path) -> None:
    # In an update; while weights are written; with the folder there but not its entry; while files are linked.
    for moment in ("step:5", "foundation.file_digest:9", "foundation.atomic_write:6", "training._snapshots.link:2"):
        assert run_script(SCRIPT, tmp_path / "killed", "--keep", "--die", moment) == -signal.SIGKILL
    assert run_script(SCRIPT, tmp_path / "killed", "--keep") == 0
    assert run_script(SCRIPT, tmp_path / "whole", "--keep") == 0
    assert hashes(tmp_path / "killed") == hashes(tmp_path / "whole")
    assert Snapshots(tmp_path / "killed" / "snapshots").kept() == list(range(15))
    assert not list((tmp_path / "killed" / "snapshots").glob(".*"))


def test_a_stopped_training_goes_on_to_the_same_snapshots(tmp_path: Path) -> None:
    with pytest.raises(TrainingInterrupted):
        trained(tmp_path / "stopped", DEFAULT, hooks=[StopAfter(17)])
    assert Snapshots(tmp_path / "stopped" / "snapshots").kept() == [u for u in hashes(tmp_path / "stopped") if u <= 18]
    assert trained(tmp_path / "stopped", DEFAULT) == trained(tmp_path / "whole", DEFAULT)
    one, other = ((tmp_path / name / "snapshots" / "manifest.json").read_text() for name in ("stopped", "whole"))
    assert json.loads(one) == json.loads(other)


def back_to(out: Path, update: int) -> None:
    """As if the process had been killed before the checkpoints after `update` were written."""
    shutil.rmtree(out / "model")
    checkpoints = Checkpoints(out / "checkpoints")
    checkpoints.drop_after(update)
    (out / "checkpoints" / "latest").write_text(checkpoints.path(update).name)


def test_an_update_that_comes_again_is_compared(tmp_path: Path) -> None:
    settings = {"keep_last": 20}
    final = trained(tmp_path, EVERY, settings=settings)
    manifest = tmp_path / "snapshots" / "manifest.json"
    before = manifest.read_text()
    back_to(tmp_path, 12)
    assert trained(tmp_path, EVERY, settings=settings) == final
    assert manifest.read_text() == before
    back_to(tmp_path, 12)
    edited = json.loads(before)
    edited["snapshots"][20]["files"]["model.safetensors"] = "0" * 64
    manifest.write_text(json.dumps(edited))
    with pytest.raises(UserError, match=r"Update 20 was not reproduced \(sha256 of model.safetensors: .*, before 0000"):
        trained(tmp_path, EVERY, settings=settings)
    assert Snapshots(tmp_path / "snapshots").path(20).is_dir()  # the refused weights replace nothing


def test_an_edited_snapshot_is_none_and_is_written_again(tmp_path: Path, capsys) -> None:
    settings = {"keep_last": 20}
    trained(tmp_path, EVERY, settings=settings)
    snapshots = Snapshots(tmp_path / "snapshots")
    file = snapshots.path(20) / "model.safetensors"
    tensors = load_file(file)
    save_file({name: tensor + 1 for name, tensor in tensors.items()}, file, metadata={"format": "pt"})
    (snapshots.path(21) / "config.json").unlink()
    shutil.rmtree(snapshots.path(22))
    assert snapshots.kept() == [*range(20), *range(23, 31)]
    back_to(tmp_path, 12)
    with use_display(PlainDisplay()):
        trained(tmp_path, EVERY, settings=settings)
    assert snapshots.kept() == list(range(31))
    assert all(torch.equal(tensor, tensors[name]) for name, tensor in load_file(file).items())
    assert "step-00000020 was damaged" in capsys.readouterr().err


def test_a_folder_without_entry_is_no_snapshot(tmp_path: Path) -> None:
    trained(tmp_path, FEW)
    snapshots = Snapshots(tmp_path / "snapshots")
    shutil.copytree(snapshots.path(5), snapshots.path(6))
    assert snapshots.kept() == [0, 5, 30]
    (tmp_path / "snapshots" / "manifest.json").write_text("{")
    assert snapshots.kept() == []


def test_the_manifest_says_when_how_and_what(tmp_path: Path) -> None:
    trained(tmp_path / "a", FEW, settings={"log_every": 1})
    facts = json.loads((tmp_path / "a" / "snapshots" / "manifest.json").read_text())
    assert facts["schedule"] == [0, 5, 30]
    start, middle, end = facts["snapshots"]
    assert (start["tokens"], start["loss"], start["learning_rate"]) == (0, None, 0.0)
    lines = [json.loads(line) for line in (tmp_path / "a" / "log.jsonl").read_text().splitlines()]
    line = next(line for line in lines if line["update"] == 5)
    assert middle["loss"] == pytest.approx(line["loss"], rel=1e-6)
    assert middle["learning_rate"] == line["learning_rate"]
    assert (middle["tokens"], middle["source_tokens"]) == (line["supervised_tokens"], line["source_tokens"])
    for entry in (start, middle, end):
        folder = Snapshots(tmp_path / "a" / "snapshots").path(entry["update"])
        assert entry["dtype"] == "float32"
        assert {path.name: sha256(path) for path in folder.iterdir()} == entry["files"]


def test_steps_follow_the_number_of_updates_that_there_really_are(tmp_path: Path) -> None:
    settings = {"max_source_tokens": 800}
    result = train(CausalLM(), tiny_config(**settings), tiny_data(), tiny_model(CausalLM()), tmp_path, snapshots=FEW)
    assert 5 < result.updates < 14
    assert Snapshots(tmp_path / "snapshots").kept() == [0, 5, result.updates]


def test_the_first_and_the_last_are_the_models_they_should_be(tmp_path: Path) -> None:
    objective = CausalLM()
    trained(tmp_path, FEW, objective, model := tiny_model(objective))
    snapshots = Snapshots(tmp_path / "snapshots")
    first = AutoModelForCausalLM.from_pretrained(snapshots.path(0))
    fresh = tiny_model(objective).state_dict()
    assert all(torch.equal(tensor, fresh[name]) for name, tensor in first.state_dict().items())
    last = AutoModelForCausalLM.from_pretrained(snapshots.path(30)).state_dict()
    assert all(torch.equal(tensor, last[name]) for name, tensor in model.state_dict().items())
    assert (snapshots.path(30) / "model.safetensors").samefile(tmp_path / "model" / "model.safetensors")
    stored = load_file(snapshots.path(5) / "model.safetensors")
    numel = sum(parameter.numel() for parameter in model.parameters())
    assert sum(tensor.numel() for tensor in stored.values()) == numel  # tied weights once
    assert {tensor.dtype for tensor in stored.values()} == {torch.float32}


def test_bfloat16_rounds_all_but_the_first_and_the_last(tmp_path: Path) -> None:
    plain, rounded = FEW, dataclasses.replace(FEW, dtype="bfloat16")
    assert trained(tmp_path / "plain", plain) == trained(tmp_path / "rounded", rounded)
    exact, half = (Snapshots(tmp_path / name / "snapshots") for name in ("plain", "rounded"))
    assert [entry.dtype for entry in half.entries().values()] == ["float32", "bfloat16", "float32"]
    for update in (0, 30):
        assert half.entries()[update].weights == exact.entries()[update].weights
    whole = load_file(exact.path(5) / "model.safetensors")
    stored = load_file(half.path(5) / "model.safetensors")
    assert stored.keys() == whole.keys()
    assert all(torch.equal(tensor, whole[name].bfloat16()) for name, tensor in stored.items())
    loaded = AutoModelForMaskedLM.from_pretrained(half.path(5))
    assert {parameter.dtype for parameter in loaded.parameters()} == {torch.float32}


def test_the_other_parts_of_a_model_lie_beside_the_exported_one(tmp_path: Path) -> None:
    objective, config = ReplacedTokens(), tiny_config(updates=6)
    kept: dict[int, dict] = {}

    class Keep(TrainingHook):
        def on_step_end(self, step) -> None:
            kept[step.update] = {name: p.detach().clone() for name, p in step.module.named_parameters()}

    train(objective, config, tiny_data(), two_models(), tmp_path, snapshots=EVERY, hooks=[Keep()])
    snapshots = Snapshots(tmp_path / "snapshots")
    assert set(hashes(tmp_path)[3]) == {"model.safetensors", "rest.safetensors"}
    module = two_models(seed=3)
    load_weights(module, snapshots.path(3), objective.exported)
    assert all(torch.equal(p, kept[3][name]) for name, p in module.named_parameters())
    assert load_model(snapshots.path(6)).digest == load_model(tmp_path / "model").digest


def test_equal_files_are_one(parallel_corpus: Corpus, tmp_path: Path) -> None:
    sentences = [parallel_corpus[i] for i in range(len(parallel_corpus))]
    source = train_tokenizer([sentence.text for sentence in sentences], vocab_size=80)
    target = train_tokenizer([sentence.translation or "" for sentence in sentences], vocab_size=80)
    data = TrainingData(
        source=parallel_corpus.encode(source),
        vocabulary=Vocabulary.from_tokenizer(source),
        target=parallel_corpus.encode(target, side="translation"),
        target_vocabulary=Vocabulary.from_tokenizer(target),
        tokenizer=source,
        target_tokenizer=target,
    )
    shape = ModelConfig(width=16, layers=1, heads=2, feedforward=32, positions=64)

    def keep(out: Path) -> Snapshots:
        model = build_models([Translation()], shape, data.vocabulary, data.target_vocabulary)["translation"]
        train(Translation(), TrainConfig(updates=3, device="cpu"), data, model, out, snapshots=EVERY)
        return Snapshots(out / "snapshots")

    linked = keep(tmp_path / "linked")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(os, "link", lambda *_: (_ for _ in ()).throw(OSError("no links here")))
        copied = keep(tmp_path / "copied")
    for name in ("config.json", "tokenizer.json", "target_tokenizer/tokenizer.json"):
        files = [linked.path(update) / name for update in range(4)]
        assert len({file.stat().st_ino for file in files}) == 1
        assert len({(copied.path(update) / name).stat().st_ino for update in range(4)}) == 4
    assert linked.entries() == copied.entries()
    assert linked.kept() == copied.kept() == [0, 1, 2, 3]
    # The learning rate of the last update is 0: the same weights, in the same file.
    assert linked.entries()[2].weights == linked.entries()[3].weights
    assert load_model(linked.path(2)).target_tokenizer is not None
