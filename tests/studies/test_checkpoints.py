"""Checkpoints of a study: kept while models train, found by update, made up for where they are missing."""

import dataclasses
import json
import shutil
import signal
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from infoflow.foundation import UserError, file_digest, make_display, use_display
from infoflow.results import RunFolder, Subject
from infoflow.studies import StudyPlan, graph, train_model
from infoflow.studies.stages import Keep, Train
from infoflow.subjects.allocation.stages import Record
from infoflow.training import Snapshots, learning_rate_shares

pytestmark = pytest.mark.slow


@pytest.fixture(scope="module")
def plan(tiny_plan) -> StudyPlan:
    training = dataclasses.replace(tiny_plan.training, updates=12, save_every=4)
    return with_schedule(dataclasses.replace(tiny_plan, training=training, objectives=("masked-lm",)), "log:4")


def with_schedule(plan: StudyPlan, schedule: str, **settings) -> StudyPlan:
    checkpoints = dataclasses.replace(plan.checkpoints, schedule=schedule, **settings)
    return dataclasses.replace(plan, checkpoints=checkpoints)


@pytest.fixture(scope="module")
def kept(plan, built_once) -> Path:
    return built_once("kept-checkpoints", lambda folder: train_model("masked-lm", plan, out=folder))


@pytest.fixture
def copied(kept, tmp_path) -> Path:
    shutil.copytree(kept, tmp_path / "run")
    return tmp_path / "run"


def models_of(plan: StudyPlan, out: Path):
    (stage,) = graph(plan, out).of(Train)
    return stage.models, stage.recipe


def keep(plan: StudyPlan, out: Path) -> Keep:
    (stage,) = graph(plan, out).of(Keep)
    return stage


def test_a_training_keeps_what_the_plan_asks_for(plan, kept) -> None:
    models, recipe = models_of(plan, kept)
    assert models.wanted(recipe) == models.kept(recipe) == [0, 1, 2, 5, 12]
    assert keep(plan, kept).is_done()
    assert models.snapshots(recipe).folder == models.weights(recipe).parent / "snapshots"


def test_a_checkpoint_is_loaded_as_the_model_that_it_was(plan, kept) -> None:
    models, recipe = models_of(plan, kept)
    at_five = models.load(Subject(recipe=recipe, update=5))
    stored = load_file(models.checkpoint(recipe, 5) / "model.safetensors")
    assert all(torch.equal(p.cpu(), stored[n]) for n, p in at_five.module.named_parameters() if n in stored)
    assert at_five.name == recipe.name
    assert at_five.tokenizer is not None
    final, last = (models.load(Subject(recipe=recipe, update=update)) for update in (None, 12))
    assert final.digest == last.digest != at_five.digest
    first = models.load(Subject(recipe=recipe, update=0))
    stored = load_file(models.checkpoint(recipe, 0) / "model.safetensors")
    assert all(torch.equal(p.cpu(), stored[n]) for n, p in first.module.named_parameters() if n in stored)
    with pytest.raises(UserError, match=r"after update 7 was not kept\. Available: 0, 1, 2, 5, 12"):
        models.load(Subject(recipe=recipe, update=7))


def test_clocks_say_where_a_checkpoint_stands(plan, kept) -> None:
    models, recipe = models_of(plan, kept)
    facts = graph(plan, kept).of(Train)[0].facts()
    start, middle, end = (models.clock(recipe, update) for update in (0, 5, 12))
    assert (start.tokens, start.progress, start.lr_share, start.same_as) == (0, 0, 0, -1)
    assert 0 < middle.tokens < facts["supervised_tokens"] == end.tokens
    assert (middle.progress, end.progress, end.lr_share) == (5 / 12, 1.0, pytest.approx(1.0))
    assert middle.lr_share == learning_rate_shares(plan.training, [5])[0]
    with pytest.raises(UserError, match="not kept"):
        models.clock(recipe, 3)


def test_keys_tell_checkpoints_apart_and_leave_others_alone(plan, kept) -> None:
    models, recipe = models_of(plan, kept)
    without, _ = models_of(with_schedule(plan, ""), kept)
    more, _ = models_of(with_schedule(plan, "linear:6", budget=1.0), kept)
    ends = [Subject(recipe=recipe, update=update) for update in (None, 0)]
    steps = [Subject(recipe=recipe, update=update) for update in (1, 5, 12)]
    assert models.train_key(recipe) == without.train_key(recipe) == more.train_key(recipe)
    assert [models.states_key(one) for one in ends] == [without.states_key(one) for one in ends]
    assert [models.states_key(one) for one in steps] == [more.states_key(one) for one in steps]
    assert len({models.states_key(one) for one in ends + steps}) == 5
    rounded, _ = models_of(with_schedule(plan, "log:4", dtype="bfloat16"), kept)
    equal = [rounded.states_key(one) == models.states_key(one) for one in steps]
    assert equal == [False, False, True]


def test_what_was_not_asked_for_is_kept_in_a_second_training(plan, copied, capsys) -> None:
    """A model that was trained without checkpoints has, afterwards, those of one that was trained with them."""
    models, recipe = models_of(plan, copied)
    snapshots = models.snapshots(recipe)
    before = snapshots.entries()
    weights = file_digest(models.weights(recipe) / "model.safetensors")
    shutil.rmtree(snapshots.folder)
    assert not keep(plan, copied).is_done()
    with use_display(make_display("plain")):
        train_model("masked-lm", plan, out=copied)
    assert "again to update 12: 5 of its checkpoints are missing" in capsys.readouterr().err
    assert {u: entry.weights for u, entry in snapshots.entries().items()} == {u: e.weights for u, e in before.items()}
    assert snapshots.entries() == before
    assert keep(plan, copied).is_done()
    assert file_digest(models.weights(recipe) / "model.safetensors") == weights
    assert (snapshots.path(12) / "model.safetensors").samefile(models.weights(recipe) / "model.safetensors")
    assert not (copied / "work" / "keeping").exists() or not any((copied / "work" / "keeping").iterdir())


def test_a_longer_schedule_adds_to_what_there_is_and_trains_no_further_than_it_must(plan, copied, capsys) -> None:
    models, recipe = models_of(plan, copied)
    before = models.snapshots(recipe).entries()
    more = with_schedule(plan, "0,1,2,3,4,5")
    with use_display(make_display("plain")):
        train_model("masked-lm", more, out=copied)
    assert "again to update 4: 2 of its checkpoints" in capsys.readouterr().err
    after = models.snapshots(recipe).entries()
    assert list(after) == [0, 1, 2, 3, 4, 5, 12]
    assert {update: after[update] for update in before} == before


def test_weights_that_are_not_met_are_refused(plan, copied) -> None:
    models, recipe = models_of(plan, copied)
    manifest = models.snapshots(recipe).folder / "manifest.json"
    facts = json.loads(manifest.read_text())
    facts["snapshots"][2]["files"]["model.safetensors"] = "0" * 64
    manifest.write_text(json.dumps(facts))
    stored = manifest.read_text()
    for _ in range(2):  # the same answer when it is tried again
        with pytest.raises(UserError, match="Update 2 was not reproduced"):
            train_model("masked-lm", plan, out=copied)
    assert manifest.read_text() == stored
    shutil.rmtree(manifest.parent)  # only the final model is left to be met
    (stage,) = graph(plan, copied).of(Train)
    weights = models.weights(recipe) / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-4] + b"\0\0\0\1")
    with pytest.raises(UserError, match="Update 12 was not reproduced"):
        keep(plan, copied).run()
    assert stage.models.kept(recipe) == []


@pytest.mark.parametrize("name", ["model.safetensors", "config.json", "tokenizer.json"])
def test_a_damaged_checkpoint_is_told_and_mended(plan, copied, name: str, capsys) -> None:
    models, recipe = models_of(plan, copied)
    snapshots = models.snapshots(recipe)
    before = snapshots.entries()
    folder = snapshots.path(5)
    whole = (folder / name).read_bytes()
    (folder / name).write_bytes(whole[:-2])  # in place: of all checkpoints that share the file
    assert 5 not in models.kept(recipe)
    with pytest.raises(UserError, match="after update 5 is damaged"):
        models.checkpoint(recipe, 5)
    with use_display(make_display("plain")):
        train_model("masked-lm", plan, out=copied)
    told = capsys.readouterr().err
    assert ("to update 5" in told) if name == "model.safetensors" else ("after update 5 was damaged" in told)
    assert (folder / name).read_bytes() == whole
    assert models.kept(recipe) == [0, 1, 2, 5, 12]
    assert snapshots.entries() == before


def test_a_removed_last_checkpoint_is_the_final_model(plan, copied, capsys) -> None:
    models, recipe = models_of(plan, copied)
    shutil.rmtree(models.snapshots(recipe).path(12))
    with use_display(make_display("plain")):
        train_model("masked-lm", plan, out=copied)
    assert "again to " not in capsys.readouterr().err
    assert models.kept(recipe) == [0, 1, 2, 5, 12]


def test_rounded_checkpoints_replace_exact_ones(plan, copied) -> None:
    rounded = with_schedule(plan, "log:4", dtype="bfloat16")
    assert not keep(rounded, copied).is_done()
    train_model("masked-lm", rounded, out=copied)
    models, recipe = models_of(rounded, copied)
    entries = models.snapshots(recipe).entries()
    assert [entries[update].dtype for update in (0, 1, 2, 5, 12)] == ["float32", *["bfloat16"] * 3, "float32"]
    module = models.load(Subject(recipe=recipe, update=5)).module
    assert {parameter.dtype for parameter in module.parameters()} == {torch.float32}


def test_one_more_training_serves_checkpoints_and_loss_changes(plan, copied, capsys) -> None:
    dynamics = dataclasses.replace(plan.dynamics, on=True, tokens=128, held_out_tokens=0)
    both = dataclasses.replace(with_schedule(plan, "log:6"), dynamics=dynamics)
    with use_display(make_display("plain")):
        train_model("masked-lm", both, out=copied)
    assert capsys.readouterr().err.count("again to ") == 1
    stages = graph(both, copied)
    (record,), (kept_stage,) = stages.of(Record), stages.of(Keep)
    assert record.is_done()
    assert kept_stage.is_done()
    assert kept_stage.key in record.needs
    assert set(record.tables()["allocation_groups"]["model"]) == {"masked-lm/seed-0"}


def test_a_budget_is_checked_before_anything_is_trained(plan, kept, tmp_path: Path) -> None:
    models, recipe = models_of(plan, kept)
    size = sum(tensor.numel() * 4 for tensor in load_file(models.checkpoint(recipe, 0) / "model.safetensors").values())
    small = with_schedule(plan, "every:1", budget=7.5 * size / 1e9)
    with pytest.raises(UserError, match=r'13 for one training run, .* GB. Got .*schedule = "log:6" fits') as caught:
        train_model("masked-lm", small, out=tmp_path / "small")
    assert not (tmp_path / "small" / "work" / "training").exists()
    # Step 0 is one more, and the last update of the warm-up, 1, is in every log:K.
    fitting = with_schedule(small, "log:6", budget=small.checkpoints.budget)
    assert len(keep(fitting, tmp_path / "small").models.wanted(recipe)) == 7, caught.value
    with pytest.raises(UserError, match='"log:7" fits'):
        graph(
            dataclasses.replace(
                small, seeds=(0, 1), checkpoints=dataclasses.replace(small.checkpoints, budget=16.1 * size / 1e9)
            ),
            tmp_path / "small",
        )
    with pytest.raises(UserError, match="Even the first and the last do not fit"):
        graph(with_schedule(plan, "every:1", budget=size / 1e9), tmp_path / "small")
    halves = with_schedule(plan, "every:1", budget=7.6 * size / 1e9, dtype="bfloat16")
    assert keep(halves, tmp_path / "small").needs


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"schedule": "log:0"}, r'checkpoints\.schedule must be log:K.* \(K and M from 1\).* Got "log:0"\.'),
        ({"schedule": "every:0"}, "Got .every:0"),
        ({"schedule": "often"}, "such as 0,6,12; join several with ."),
        ({"schedule": "0,-3"}, "Got .0,-3"),
        ({"schedule": "0,4,4"}, "different updates up to the last, 12"),
        ({"schedule": "0,13"}, "different updates up to the last, 12"),
        ({"heavy_steps": "0,99"}, "checkpoints.heavy_steps must be"),
        ({"heavy_steps": ""}, "checkpoints.heavy_steps must be"),
    ],
)
def test_bad_schedules_are_refused_with_the_plan(plan, settings: dict, named: str) -> None:
    with pytest.raises(UserError, match=named):
        dataclasses.replace(plan, checkpoints=dataclasses.replace(plan.checkpoints, **settings))


def test_a_schedule_longer_than_the_training_keeps_all_updates(plan, tmp_path: Path, capsys) -> None:
    with use_display(make_display("plain")):
        stage = keep(with_schedule(plan, "log:400"), tmp_path)
    assert "12 updates, fewer than 400" in capsys.readouterr().err
    assert stage.models.wanted(stage.recipe) == list(range(13))


def test_plans_of_earlier_versions_are_read(plan) -> None:
    values = plan.to_json()
    values["training"]["keep_log_spaced"], values["dynamics"]["lags"] = True, 2
    values["retrieval"]["retriever_layers"] = 2  # as many as all retrievers have now
    assert StudyPlan.from_json(values) == plan
    with pytest.raises(UserError, match=r"no setting retrieval\.retriever_layers"):
        StudyPlan.from_json({"retrieval": {"retriever_layers": 3}})
    with pytest.raises(UserError, match=r"no setting training\.keep_everything"):
        StudyPlan.from_json({"training": {"keep_everything": True}})


def test_a_study_adopts_what_train_has_kept(plan, copied) -> None:
    assert RunFolder(copied).read()["kind"] == "study"
    stages = graph(plan, copied)
    assert [stage.kind for stage in stages][:2] == ["train", "keep"]
    assert not {"train", "keep"} & {stage.kind for stage in stages.missing()}
    folder = stages.of(Keep)[0].models.snapshots(stages.of(Keep)[0].recipe).folder
    assert Snapshots(folder).kept() == [0, 1, 2, 5, 12]


def test_a_second_training_that_was_interrupted_goes_on(plan, copied, capsys, monkeypatch) -> None:
    models, recipe = models_of(plan, copied)
    before = models.snapshots(recipe).entries()
    shutil.rmtree(models.snapshots(recipe).folder)
    with monkeypatch.context() as patch:
        patch.setattr(
            "infoflow.studies.stages._keep._StopAfter.on_step_end",
            lambda _, step: step.update == 6 and signal.raise_signal(signal.SIGINT),
        )
        with pytest.raises(KeyboardInterrupt):
            keep(plan, copied).run()
    assert models.kept(recipe) == []  # nothing is taken over that was not proven
    with use_display(make_display("plain")):
        keep(plan, copied).run()
    assert "continuing after update" in capsys.readouterr().err
    assert models.snapshots(recipe).entries() == before
