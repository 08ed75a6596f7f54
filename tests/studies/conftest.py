"""Tiny studies, with tables of each kind, with every table, and one that grew; each is run once."""

import dataclasses
import shutil
from pathlib import Path

import pytest
from support.undrawn import undrawn

TINY = """
title = "Tiny"
seeds = [0]
[corpus]
name = "grammar:600"
vocabulary = 150
test = 0.3
validation = 0.1
[model]
width = 32
layers = 2
heads = 4
feedforward = 64
[training]
updates = 6
batch_tokens = 256
[analysis]
occurrences = 600
types = 40
clusters = 10
clusterings = 1
distance_occurrences = 600
neighbour_occurrences = 600
neighbours = 5
bleu_sentences = 12
beams = 2
frequency_occurrences = 320
lens_steps = 4
relevance_sentences = 5
importance_sentences = 40
ablation_sentences = 10
probe_sentences = 60
map_points = 40
[alignment]
sentences = 64
pairs = 64
held_out = 60
"""


OF_EACH_KIND = (
    *("task_scores", "mutual_information", "usable_information", "layer_distance", "identity_neighbours"),
    *("head_confidence", "head_entropy", "head_ablation", "model_distance", "space_similarity"),
)


@pytest.fixture(scope="session")
def tiny_toml() -> str:
    return TINY


@pytest.fixture(scope="session")
def tiny_plan(tmp_path_factory):
    from infoflow.studies import StudyPlan

    path = tmp_path_factory.mktemp("plan") / "tiny.toml"
    path.write_text(TINY)
    return StudyPlan.load(path)


@pytest.fixture(scope="session")
def small_plan(tiny_plan):
    return dataclasses.replace(tiny_plan, analysis=dataclasses.replace(tiny_plan.analysis, tables=OF_EACH_KIND))


@pytest.fixture(scope="session")
def small_run(small_plan, built_once):
    from infoflow.studies import Run, study

    return Run.open(built_once("small-study", lambda folder: study(small_plan, folder, num_processes=1)))


@pytest.fixture(scope="session")
def tiny_run(tiny_plan, built_once):
    """With every table: for slow tests."""
    from infoflow.studies import Run, study

    return Run.open(built_once("tiny-study", lambda folder: study(tiny_plan, folder, num_processes=1)))


@pytest.fixture(scope="session")
def grown_run(tiny_plan, built_once):
    """Two objectives: begun with the scores of one seed, continued with two and their models' distances. No report."""
    from infoflow.studies import Run, study

    plain = {"findings", "learning_curves", "training_runs", "alignment", "match", "objective_examples"}

    def build(folder):
        with undrawn():
            later = ("task_scores", "head_confidence", "model_distance")
            for seeds, tables in (((0,), ("task_scores",)), ((0, 1), later)):
                analysis = dataclasses.replace(tiny_plan.analysis, tables=tables)
                changes = {"objectives": ("masked-lm", "translation"), "seeds": seeds, "analysis": analysis}
                run = study(dataclasses.replace(tiny_plan, **changes), folder, num_processes=1)
                assert set(run.tables) == {*tables, *plain}

    return Run.open(built_once("grown-study", build))


@pytest.fixture
def trained(tiny_plan, built_once, tmp_path) -> Path:
    """A copy of a run folder with one trained model, a masked LM."""
    from infoflow.studies import train_model

    source = built_once("one-trained", lambda folder: train_model("masked-lm", tiny_plan, out=folder))
    shutil.copytree(source, tmp_path / "run")
    return tmp_path / "run"
