"""A whole study on generated sentences: what it leaves, and that it continues."""

import dataclasses
import fcntl
import json
import subprocess
import sys

import pandas as pd
import pytest
from support.processes import marked_environment, processes_with, wait_until
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, EncoderDecoderModel

from infoflow.foundation import UserError, file_digest
from infoflow.results import Recipe, RunFolder
from infoflow.studies import AbstractStage, Check, MeasureModel, Run, StudyModels, StudyPlan, study
from infoflow.training import evaluate

EVERY_TABLE = {
    "change_by_frequency",
    "context_neighbours",
    "distance_distribution",
    "encoder_context",
    "geometry",
    "head_ablation",
    "head_confidence",
    "head_coreference",
    "head_distance",
    "head_entropy",
    "head_examples",
    "head_importance",
    "head_layer_distance",
    "head_patterns",
    "head_positional",
    "head_probe",
    "head_pruning_curve",
    "head_rare_token",
    "head_relations",
    "head_relevance",
    "head_special_gradient",
    "head_surface",
    "identity_neighbours",
    "influence_by_frequency",
    "layer_distance",
    "lens",
    "model_distance",
    "mutual_information",
    "position_neighbours",
    "space_similarity",
    "tag_neighbours",
    "task_scores",
    "token_map",
    "usable_information",
    "word_neighbours",
}
FURTHER = {"alignment", "findings", "learning_curves", "match", "objective_examples", "training_runs"}
"""Tables of a study that are no measures."""


def test_a_study_leaves_tables_models_and_a_report(small_run: Run, small_plan: StudyPlan) -> None:
    assert set(small_run.tables) == {*small_plan.analysis.tables, *FURTHER}
    page = (small_run.path / "report.html").read_text()
    assert len(page) > 10_000
    assert "The report leaves out" not in page
    manifest = json.loads((small_run.path / "run.json").read_text())
    assert {"plan", "provenance", "corpus", "models", "timings", "seconds", "command", "warnings"} <= set(manifest)
    assert len(manifest["models"]) == 3
    split, sizes = manifest["corpus"]["split"], manifest["corpus"]["parts"]
    assert split["rule"] == "near-duplicates"
    lost = sum(count for reasons in split["left_out"].values() for count in reasons.values())
    assert sizes["train"] + sizes["validation"] + sizes["test"] + lost == 600
    shares = dict.fromkeys(("sources", "targets", "near_sources", "near_targets"), 0.0)
    assert split["leakage"] == {"validation": shares, "test": shares}
    assert "no two parts share a source" in page


@pytest.mark.slow
def test_a_study_makes_every_table_and_draws_it(tiny_run: Run) -> None:
    assert set(tiny_run.tables) == {*EVERY_TABLE, *FURTHER}
    assert "The report leaves out" not in (tiny_run.path / "report.html").read_text()


def test_models_are_plain_checkpoints(small_run: Run) -> None:
    loaders = {"causal-lm": AutoModelForCausalLM, "masked-lm": AutoModelForMaskedLM, "translation": EncoderDecoderModel}
    for objective, loader in loaders.items():
        assert loader.from_pretrained(small_run.path / "models" / objective / "seed-0") is not None


def test_every_model_and_its_control_is_in_every_table(small_run: Run) -> None:
    names = ("mutual_information", "usable_information", "layer_distance", "identity_neighbours", "head_confidence")
    for name in (*names, "task_scores"):
        table = small_run.tables[name]
        keys = table[["model", "trained"]].drop_duplicates()
        assert len(keys) == 6, name
        assert set(table["seed"]) == {0}


def test_numbers_have_intervals_and_baselines(small_run: Run) -> None:
    names = ("mutual_information", "usable_information", "layer_distance", "model_distance", "space_similarity")
    for name in (*names, "head_entropy"):
        table = small_run.tables[name]
        assert (table["low"] <= table["value"] + 1e-9).all(), name
        assert (table["high"] >= table["value"] - 1e-9).all(), name
        assert table["baseline"].notna().all(), name
        assert (table["count"] > 0).all(), name


@pytest.mark.slow
def test_a_study_grows(grown_run: Run) -> None:
    for name in ("head_confidence", "task_scores"):
        table = grown_run.tables[name]
        assert len(table[["model", "trained"]].drop_duplicates()) == 8, name
        assert set(table["seed"]) == {0, 1}, name


@pytest.mark.slow
def test_pairs_differ_in_one_thing(small_run: Run, grown_run: Run) -> None:
    # Three objectives of one seed: 3 pairs. Two of two seeds: 2, and 2 of one objective. Each trained and untrained.
    for run, number in ((small_run, 6), (grown_run, 8)):
        pairs = run.tables["model_distance"]
        same_objective = pairs["objective_a"] == pairs["objective_b"]
        same_seed = pairs["seed_a"] == pairs["seed_b"]
        assert (same_objective != same_seed).all()
        assert len(pairs[["model_a", "model_b", "trained"]].drop_duplicates()) == number


def test_untrained_encoders_of_one_seed_are_equal(small_run: Run) -> None:
    pairs = small_run.tables["model_distance"]
    controls = pairs[~pairs["trained"] & (pairs["seed_a"] == pairs["seed_b"])]
    encoders = controls[(controls["stack_a"] == "encoder") & (controls["stack_b"] == "encoder")]
    assert len(encoders) > 0
    assert (encoders["value"] < 1e-6).all()


def test_scores_are_beside_a_context_free_baseline(small_run: Run) -> None:
    scores = small_run.tables["task_scores"]
    untrained = scores[(scores["metric"] == "loss") & ~scores["trained"]]
    assert (untrained["value"] > untrained["baseline"]).all()
    bleu = scores[scores["metric"] == "bleu"]
    assert set(bleu["objective"]) == {"translation"}
    assert bleu["signature"].str.contains("case:lc").all()


def test_loss_equals_the_training_rooms_evaluation(small_run: Run, small_plan: StudyPlan) -> None:
    scores = small_run.tables["task_scores"]
    for stage in small_run.stages.of(MeasureModel):
        if not stage.subject.trained:
            continue
        models, recipe = stage.models, stage.subject.recipe
        data = models.data.encoded(models.data.test, small_plan.model.positions)
        expected = evaluate(models.objective(recipe), models.load(stage.subject).module, data).loss
        own = scores[scores["objective"] == recipe.objective.name]
        row = own.query("seed == 0 and trained and metric == 'loss' and split == 'test'")
        assert row["value"].item() == pytest.approx(expected, rel=1e-5)


def test_a_second_call_only_checks_again(small_run: Run, small_plan: StudyPlan, no_drawing, monkeypatch) -> None:
    before = {name: small_run.tables[name] for name in small_run.tables}
    kinds: list[type[AbstractStage]] = [type(stage) for stage in small_run.stages if not isinstance(stage, Check)]
    for kind in kinds:
        monkeypatch.setattr(kind, "run", lambda stage: pytest.fail(f"{stage.label} was done again"))
    again = study(small_plan, small_run.path, num_processes=1)
    assert set(again.tables) == set(before)
    for name in before:
        pd.testing.assert_frame_equal(before[name], again.tables[name])


def test_what_each_stage_took_is_on_record(small_run: Run) -> None:
    records = small_run.folder.read()["stages"]
    labels = [record["label"] for record in records]
    assert len(labels) == len(set(labels))
    assert [label for label in labels if label.startswith("train ")] == [
        f"train {objective}/seed-0" for objective in ("translation", "causal-lm", "masked-lm")
    ]
    assert {"train", "measure", "compare", "align"} <= {record["kind"] for record in records}
    for record in records:
        assert record["seconds"] > 0
        assert record["peak_memory"] > 10**7
        assert record["threads"] == 1
    costs = {stage.label: stage.cost for stage in small_run.stages}
    assert {record["label"]: record["seconds"] for record in records}.items() <= costs.items()


def test_a_stage_that_fails_keeps_only_what_needs_it(tiny_plan: StudyPlan, no_drawing, tmp_path, monkeypatch) -> None:
    analysis = dataclasses.replace(tiny_plan.analysis, tables=("task_scores",), untrained=False)
    plan = dataclasses.replace(tiny_plan, objectives=("causal-lm", "masked-lm"), analysis=analysis)
    train_into = StudyModels.train_into

    def fail(models: StudyModels, recipe: Recipe, *rest, **bookkeeping):
        if recipe.objective.name == "causal-lm":
            raise UserError("No luck.")
        return train_into(models, recipe, *rest, **bookkeeping)

    with monkeypatch.context() as patch:
        patch.setattr(StudyModels, "train_into", fail)
        with pytest.raises(UserError) as caught:
            study(plan, tmp_path / "run", num_processes=1)
    assert str(caught.value).splitlines() == [
        "train causal-lm/seed-0: No luck.",
        "4 stages succeeded and are kept.",  # the masked LM is trained, measured, matched and shown
        "4 stages were not run.",
        f"To see the results so far: infoflow report {tmp_path / 'run'} --so-far",
    ]
    assert not (tmp_path / "run" / "report.html").exists()
    left = [stage.label for stage in Run.open(tmp_path / "run").stages.missing()]
    assert left == [f"{kind} causal-lm/seed-0" for kind in ("train", "measure", "match", "show")] + ["check findings"]
    run = study(plan, tmp_path / "run", num_processes=1)
    assert set(run.tables["task_scores"]["objective"]) == {"causal-lm", "masked-lm"}


def test_one_study_per_folder(tiny_plan: StudyPlan, tmp_path) -> None:
    with (tmp_path / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        with pytest.raises(UserError, match="Another infoflow"):
            study(tiny_plan, tmp_path)


def test_a_study_does_not_overwrite_another_kind_of_run(tiny_plan: StudyPlan, tmp_path) -> None:
    RunFolder(tmp_path).update(kind="analyze")
    with pytest.raises(UserError, match="another kind"):
        study(tiny_plan, tmp_path)


SCRIPT = """
import sys
from infoflow.studies import study
from support.undrawn import undrawn
if __name__ == "__main__":
    with undrawn():  # reports have tests of their own
        study(sys.argv[1], sys.argv[2], num_processes=2)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")
def test_killed_in_two_processes_it_ends_with_the_weights_and_numbers_of_one(
    tiny_toml: str, tmp_path, no_drawing
) -> None:
    settings = tiny_toml.replace("seeds = [0]", 'seeds = [5]\nobjectives = ["causal-lm", "masked-lm"]')
    one_of_each_kind = ["task_scores", "head_confidence", "mutual_information", "head_ablation", "model_distance"]
    fewer = f"[analysis]\nuntrained = false\ntables = {json.dumps(one_of_each_kind)}"
    (tmp_path / "tiny.toml").write_text(settings.replace("[analysis]", fewer))
    (tmp_path / "run.py").write_text(SCRIPT)
    expected = study(tmp_path / "tiny.toml", tmp_path / "expected", num_processes=1)
    command = [sys.executable, str(tmp_path / "run.py"), str(tmp_path / "tiny.toml"), str(tmp_path / "run")]
    environment = marked_environment(tmp_path)
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL, env=environment)
    trained = tmp_path / "run" / "work" / "trained"
    wait_until(lambda: trained.exists() and any(trained.iterdir()), 300)
    assert len(processes_with(tmp_path)) > 1
    first.kill()
    first.wait()
    wait_until(lambda: not processes_with(tmp_path), 30)
    assert not (tmp_path / "run" / "report.html").exists()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=900, env=environment)
    assert (tmp_path / "run" / "report.html").exists()
    wait_until(lambda: not processes_with(tmp_path), 30)
    weights = sorted((expected.path / "models").glob("*/*/model.safetensors"))
    assert len(weights) == 2
    for path in weights:
        assert file_digest(path) == file_digest(tmp_path / "run" / path.relative_to(expected.path)), path
    resumed = RunFolder(tmp_path / "run").tables
    assert (
        set(resumed)
        == set(expected.tables)
        == {*one_of_each_kind, "findings", "learning_curves", "training_runs", "match", "objective_examples"}
    )
    for name in set(resumed) - {"training_runs"}:
        pd.testing.assert_frame_equal(expected.tables[name], resumed[name])
