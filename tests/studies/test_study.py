"""A whole study on generated sentences: what it leaves, and that it continues."""

import dataclasses
import json
import os
import shutil
import signal
import subprocess
import sys
import time

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModelForCausalLM, AutoModelForMaskedLM, EncoderDecoderModel

from infoflow.foundation import UserError
from infoflow.results import RunFolder
from infoflow.studies import Run, StudyPlan, study
from infoflow.studies._jobs import Job, StudyJobs, job_cost, requirement, study_jobs
from infoflow.studies._processes import _next

TABLES = {
    "alignment",
    "change_by_frequency",
    "context_neighbours",
    "distance_distribution",
    "findings",
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
    "learning_curves",
    "lens",
    "model_distance",
    "mutual_information",
    "position_neighbours",
    "space_similarity",
    "tag_neighbours",
    "task_scores",
    "token_map",
    "training_runs",
}


def test_a_study_leaves_tables_models_and_a_report(tiny_run: Run) -> None:
    assert set(tiny_run.tables) == TABLES
    assert (tiny_run.path / "report.html").stat().st_size > 10_000
    manifest = json.loads((tiny_run.path / "run.json").read_text())
    assert {"plan", "provenance", "corpus", "models", "timings", "seconds", "command", "warnings"} <= set(manifest)
    assert len(manifest["models"]) == 3
    split, sizes = manifest["corpus"]["split"], manifest["corpus"]["parts"]
    assert split["rule"] == "near-duplicates"
    lost = sum(count for reasons in split["left_out"].values() for count in reasons.values())
    assert sizes["train"] + sizes["validation"] + sizes["test"] + lost == 600
    shares = dict.fromkeys(("sources", "targets", "near_sources", "near_targets"), 0.0)
    assert split["leakage"] == {"validation": shares, "test": shares}
    assert "no two parts share a source" in (tiny_run.path / "report.html").read_text()


def test_models_are_plain_checkpoints(tiny_run: Run) -> None:
    loaders = {
        "causal-lm": AutoModelForCausalLM,
        "masked-lm": AutoModelForMaskedLM,
        "translation": EncoderDecoderModel,
    }
    for objective, loader in loaders.items():
        assert loader.from_pretrained(tiny_run.path / "models" / objective / "seed-0") is not None


def test_every_model_and_its_control_is_in_every_table(tiny_run: Run) -> None:
    for name in ("mutual_information", "layer_distance", "identity_neighbours", "head_confidence", "task_scores"):
        table = tiny_run.tables[name]
        keys = table[["model", "trained"]].drop_duplicates()
        assert len(keys) == 6, name
        assert set(table["seed"]) == {0}


def test_numbers_have_intervals_and_baselines(tiny_run: Run) -> None:
    for name in ("mutual_information", "layer_distance", "model_distance", "space_similarity", "head_entropy"):
        table = tiny_run.tables[name]
        assert (table["low"] <= table["value"] + 1e-9).all(), name
        assert (table["high"] >= table["value"] - 1e-9).all(), name
        assert table["baseline"].notna().all(), name
        assert (table["count"] > 0).all(), name


def test_a_study_grows(grown_run: Run) -> None:
    for name in ("head_confidence", "task_scores"):
        table = grown_run.tables[name]
        assert len(table[["model", "trained"]].drop_duplicates()) == 8, name
        assert set(table["seed"]) == {0, 1}, name


def test_pairs_differ_in_one_thing(tiny_run: Run, grown_run: Run) -> None:
    # Three objectives of one seed: 3 pairs. Two of two seeds: 2, and 2 of one objective. Each trained and untrained.
    for run, number in ((tiny_run, 6), (grown_run, 8)):
        pairs = run.tables["model_distance"]
        same_objective = pairs["objective_a"] == pairs["objective_b"]
        same_seed = pairs["seed_a"] == pairs["seed_b"]
        assert (same_objective != same_seed).all()
        assert len(pairs[["model_a", "model_b", "trained"]].drop_duplicates()) == number


def test_untrained_encoders_of_one_seed_are_equal(tiny_run: Run) -> None:
    pairs = tiny_run.tables["model_distance"]
    controls = pairs[~pairs["trained"] & (pairs["seed_a"] == pairs["seed_b"])]
    encoders = controls[(controls["stack_a"] == "encoder") & (controls["stack_b"] == "encoder")]
    assert len(encoders) > 0
    assert (encoders["value"] < 1e-6).all()


def test_scores_are_beside_a_context_free_baseline(tiny_run: Run) -> None:
    scores = tiny_run.tables["task_scores"]
    untrained = scores[(scores["metric"] == "loss") & ~scores["trained"]]
    assert (untrained["value"] > untrained["baseline"]).all()
    bleu = scores[scores["metric"] == "bleu"]
    assert set(bleu["objective"]) == {"translation"}
    assert bleu["signature"].str.contains("case:lc").all()


def test_loss_equals_the_training_rooms_evaluation(tiny_run: Run, tiny_plan: StudyPlan) -> None:
    from infoflow.training import evaluate

    jobs = StudyJobs(tiny_plan, tiny_run.folder)
    scores = tiny_run.tables["task_scores"]
    for objective in tiny_plan.objectives:
        model = jobs.load(Job(kind="measure", objective=objective, seed=0))
        data = jobs.data.encoded(jobs.data.test, tiny_plan.model.positions)
        expected = evaluate(tiny_plan.objective(objective), model.module, data).loss
        row = scores.query("objective == @objective and seed == 0 and trained and metric == 'loss' and split == 'test'")
        assert row["value"].item() == pytest.approx(expected, rel=1e-5)


def test_a_second_call_does_nothing_again(tiny_run: Run, tiny_plan: StudyPlan, no_drawing, monkeypatch) -> None:
    monkeypatch.setattr(StudyJobs, "do", lambda *_: pytest.fail("everything was done"))
    before = {name: tiny_run.tables[name] for name in TABLES}
    again = study(tiny_plan, tiny_run.path, num_processes=1)
    for name in TABLES - {"training_runs"}:
        pd.testing.assert_frame_equal(before[name], again.tables[name])


def test_a_changed_plan_redoes_only_what_changed(tiny_run: Run, tiny_plan: StudyPlan, tmp_path) -> None:
    shutil.copytree(tiny_run.path, tmp_path / "run")
    run = RunFolder(tmp_path / "run")
    more_seeds = dataclasses.replace(tiny_plan, seeds=(0, 1))
    jobs = StudyJobs(more_seeds, run)
    missing = [job for job in study_jobs(more_seeds) if not jobs.is_done(job)]
    assert {job.seed for job in missing if job.kind == "train"} == {1}
    faster = dataclasses.replace(tiny_plan, training=dataclasses.replace(tiny_plan.training, learning_rate=1e-3))
    jobs = StudyJobs(faster, run)
    missing = [job for job in study_jobs(faster) if job.kind == "train" and not jobs.is_done(job)]
    assert len(missing) == 3


def test_jobs_are_ordered_by_cost_and_requirement(tiny_plan: StudyPlan) -> None:
    jobs = study_jobs(tiny_plan)
    assert jobs[0].objective == "translation"
    for job in jobs:
        assert Job.parse(job.write()) == job
        needed = requirement(job)
        assert needed is None or jobs.index(needed) < jobs.index(job)


def test_processes_take_the_longest_job_that_is_ready(tiny_plan: StudyPlan) -> None:
    jobs = study_jobs(tiny_plan)
    waiting, done, running, now = list(jobs), set(), [], 0.0
    while waiting or running:
        while len(running) < 2 and (job := _next(waiting, done, jobs)):
            ready = [one for one in waiting if requirement(one) is None or requirement(one) in done]
            assert job in ready
            assert job_cost(job) == max(map(job_cost, ready))
            waiting.remove(job)
            running.append((now + job_cost(job), job))
        first = min(running, key=lambda one: one[0])
        running.remove(first)
        now = first[0]
        done.add(first[1])
    assert now - sum(map(job_cost, jobs)) / 2 < 0.4  # the shortest measurement


def test_one_study_per_folder(tiny_plan: StudyPlan, tmp_path) -> None:
    import fcntl

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
from infoflow.foundation import set_threads
from infoflow.studies import _study, study
if __name__ == "__main__":
    set_threads(1)
    _study.write_report = lambda run: run.report.touch()  # it has tests of its own
    study(sys.argv[1], sys.argv[2], num_processes=2)
"""


@pytest.mark.slow
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
    first = subprocess.Popen(command, stderr=subprocess.DEVNULL, start_new_session=True)
    trained = tmp_path / "run" / "work" / "trained"
    deadline = time.monotonic() + 120
    while not (trained.exists() and any(trained.iterdir())) and time.monotonic() < deadline:
        time.sleep(0.1)
    os.killpg(first.pid, signal.SIGKILL)
    first.wait()
    assert not (tmp_path / "run" / "report.html").exists()
    subprocess.run(command, check=True, stderr=subprocess.DEVNULL, timeout=900)
    assert (tmp_path / "run" / "report.html").exists()
    weights = sorted((expected.path / "models").glob("*/*/model.safetensors"))
    assert len(weights) == 2
    for path in weights:
        ours, theirs = load_file(path), load_file(tmp_path / "run" / path.relative_to(expected.path))
        assert all(torch.equal(ours[name], theirs[name]) for name in ours), path
    resumed = RunFolder(tmp_path / "run").tables
    assert set(resumed) == set(expected.tables) == {*one_of_each_kind, "findings", "learning_curves", "training_runs"}
    for name in set(resumed) - {"training_runs"}:
        pd.testing.assert_frame_equal(expected.tables[name], resumed[name], rtol=1e-9)
