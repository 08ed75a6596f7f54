"""Checkpoints of a study, measured: the same rows as of a model alone, and nothing else changes when one is added."""

import dataclasses
import shutil
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from support.undrawn import undrawn

from infoflow.flow import PassOptions, measure
from infoflow.foundation import UserError
from infoflow.heads import PatternScores
from infoflow.models import load_model
from infoflow.probing import Probe
from infoflow.results import RunFolder
from infoflow.studies import StudyModels, StudyPlan, graph, study
from infoflow.studies.stages import Check, Keep, Train
from infoflow.subjects.over_training.stages import Course, MeasureCheckpoint, ProbeCheckpoint
from infoflow.subjects.probing.settings import ProbingPlan

pytestmark = pytest.mark.slow

UPDATES = 40


@pytest.fixture(scope="module")
def plan(tiny_plan) -> StudyPlan:
    checkpoints = dataclasses.replace(
        tiny_plan.checkpoints,
        schedule="3,24",
        light=("head_patterns", "convergence", "layer_distance"),
        heavy=("head_pruning_curve", "head_importance"),
        heavy_steps="linear:2",
        sentences=60,
        occurrences=400,
    )
    return dataclasses.replace(
        tiny_plan,
        objectives=("causal-lm",),
        training=dataclasses.replace(tiny_plan.training, updates=UPDATES, warmup=5, learning_rate=1e-2),
        analysis=dataclasses.replace(tiny_plan.analysis, tables=("head_patterns",)),
        alignment=dataclasses.replace(tiny_plan.alignment, on=False),
        checkpoints=checkpoints,
    )


@pytest.fixture(scope="module")
def run(plan, built_once) -> Path:
    def build(folder):
        with undrawn():
            study(plan, folder, num_processes=1)

    return built_once("measured-checkpoints", build)


@pytest.fixture(scope="module")
def tables(run):
    return RunFolder(run).tables


STEPS = [0, 3, 5, 24, 40]


def same(one: pd.DataFrame, other: pd.DataFrame) -> None:
    for name in one:
        values = [np.array(frame[name].tolist()) for frame in (one, other)]
        np.testing.assert_array_equal(*values)


def test_every_update_of_the_schedule_has_rows_and_clocks(plan, tables) -> None:
    frame = tables["head_patterns_over_training"]
    assert plan.checkpoints.steps(plan.training) == STEPS
    for objective in plan.objectives:
        own = frame[frame["objective"] == objective].drop_duplicates("update")
        assert own["update"].tolist() == STEPS
        assert own["trained"].tolist() == [step > 0 for step in STEPS]
        assert own["progress"].tolist() == [step / UPDATES for step in STEPS]
        assert (np.diff(own["tokens"]) > 0).all()
        assert own["lr_share"].iloc[[0, -1]].tolist() == [0, pytest.approx(1)]


def test_rows_are_bit_for_bit_those_of_the_checkpoint_alone(plan, run, tables) -> None:
    stages = graph(plan, run)
    (stage,) = (s for s in stages.of(MeasureCheckpoint) if s.subject.label == "causal-lm/seed-0 (update 5)")
    model = load_model(stage.models.checkpoint(stage.subject.recipe, 5))
    options = PassOptions(
        tokens_per_batch=plan.analysis.tokens_per_batch, decoder_states=False, corruption=stage.objective
    )
    alone = measure(model, stage.corpus, [PatternScores()], options, stage.models.data.train)["head_patterns"]
    frame = tables["head_patterns_over_training"]
    rows = frame[(frame["objective"] == "causal-lm") & (frame["update"] == 5)]
    same(rows[list(alone.columns)], alone)


def test_the_first_and_the_last_checkpoint_are_the_untrained_and_the_trained_model(plan, run) -> None:
    stages = graph(plan, run)
    for update, wanted in ((0, 0), (UPDATES, None)):
        (stage,) = (
            s
            for s in stages.of(MeasureCheckpoint)
            if s.subject.label.startswith("causal") and s.subject.update == update
        )
        models, subject = stage.models, stage.subject
        assert models.load(subject).digest == models.load(dataclasses.replace(subject, update=wanted)).digest


def test_convergence_ends_at_the_model_itself(tables) -> None:
    frame = tables["convergence"]
    last = frame[(frame["update"] == UPDATES) & (frame["reference"] == "final") & (frame["similarity"] == "cka")]
    assert last["value"].to_numpy() == pytest.approx(1, abs=1e-6)
    assert set(frame["reference"]) == {"final", "previous", "initial"}  # one seed: no other
    start = frame[(frame["update"] == 0)]
    assert set(start["reference"]) == {"final"}
    kinds = frame.groupby("kind")["layer"].nunique()
    assert kinds.to_dict() == {"block": 2, "state": 3}


def test_heavy_tables_are_those_of_the_heavy_steps(tables) -> None:
    assert sorted(set(tables["head_pruning_curve_over_training"]["update"])) == [0, 24, 40]
    assert set(tables["head_importance_over_training"]["update"]) == {0, 24, 40}


def test_the_course_of_each_model_has_its_tables(tables) -> None:
    assert "phases" not in tables  # they take eight checkpoints
    assert {"convergence_time", "role_turnover", "findings_over_training", "findings_since"} <= set(tables)
    turnover = tables["role_turnover"]
    assert turnover.groupby(["model", "kind", "role"])["update"].apply(list).map(lambda steps: steps == STEPS).all()


def test_claims_are_tested_at_every_checkpoint_but_in_the_findings_at_the_end_alone(tables) -> None:
    over = tables["findings_over_training"]
    assert set(over["update"]) == set(STEPS) - {0}
    assert set(tables["findings"]["update"]) == {-1}
    since = tables["findings_since"].set_index("id")
    for claim, rows in over.groupby("id"):
        holds = (rows.sort_values("update")["verdict"] == "holds").tolist()
        expected = -1
        for step, later in zip(sorted(set(STEPS) - {0}), range(len(holds)), strict=True):
            if all(holds[later:]):
                expected = step
                break
        assert since.loc[claim, "since"] == expected, claim


def test_a_checkpoint_or_a_table_more_measures_nothing_else_again(plan, run) -> None:
    more = dataclasses.replace(
        plan,
        checkpoints=dataclasses.replace(
            plan.checkpoints, schedule="3,24,25", light=(*plan.checkpoints.light, "head_confidence")
        ),
    )
    stages = graph(more, run).of(MeasureCheckpoint)
    bench = stages[0].cache
    for stage in stages:
        missing = {name for name, key in stage.table_keys().items() if not bench.done("measured", key)}
        known = stage.subject.update != 25
        # The checkpoint after it has another one before it now.
        wanted = {"head_confidence"} | ({"convergence"} if stage.subject.update == 40 else set())
        assert missing == (wanted if known else set(stage.table_keys())), stage.label
        assert stage.models.train_key(stage.subject.recipe) in str(stage.models.weights(stage.subject.recipe))


def test_every_checkpoint_waits_for_its_training_and_its_references(plan, tmp_path) -> None:
    seeds = dataclasses.replace(plan, seeds=(0, 1))
    stages = graph(seeds, tmp_path / "run")
    trained = {stage.key: stage.recipe for stage in stages.of(Train)}
    kept = {stage.key: stage.recipe for stage in stages.of(Keep)}
    for stage in stages.of(MeasureCheckpoint):
        recipe = stage.subject.recipe
        assert {trained[key] for key in stage.needs if key in trained} == {
            recipe, dataclasses.replace(recipe, seed=1 - recipe.seed)
        }  # fmt: skip
        assert [kept[key] for key in stage.needs if key in kept] == [recipe]
    courses = stages.of(Course)
    assert len(courses) == 2
    (check,) = stages.of(Check)
    assert {course.key for course in courses} <= set(check.needs)


def probed(plan: StudyPlan, *heavy: str, **asked) -> StudyPlan:
    """The plan that probes too, at the updates of `heavy_steps`, and measures little else there."""
    checkpoints = dataclasses.replace(plan.checkpoints, heavy=(*plan.checkpoints.heavy, *heavy))
    probing = ProbingPlan(**{"tasks": ("position",), "seeds": 1, "sentences": 90, **asked})
    return dataclasses.replace(plan, checkpoints=checkpoints, probing=probing)


def test_probes_are_trained_anew_at_the_heavy_steps(plan, run, tmp_path, no_drawing, monkeypatch) -> None:
    """Rows are those of a probe of the checkpoint's folder alone; nothing is trained or measured again but probes."""
    folder = shutil.copytree(run, tmp_path / "run")
    monkeypatch.setattr(StudyModels, "train_into", lambda *args, **kwargs: pytest.fail("trains again"))
    asked = probed(plan, "probe_scores")
    stages = graph(asked, folder)
    assert [stage.subject.update for stage in stages.of(ProbeCheckpoint)] == [0, 24, 40]
    assert all(stage.is_done() for stage in stages.of(MeasureCheckpoint))
    found = study(asked, folder, num_processes=1).tables["probe_scores_over_training"]
    assert sorted(set(found["update"])) == [0, 24, 40]
    (stage,) = (stage for stage in stages.of(ProbeCheckpoint) if stage.subject.update == 24)
    options = PassOptions(tokens_per_batch=plan.analysis.tokens_per_batch, decoder_states=False)
    model = load_model(stage.models.checkpoint(stage.subject.recipe, 24))
    alone = measure(model, stage.corpus, [Probe("position", sentences=90, seeds=1)], options)["probe_scores"]
    same(found[found["update"] == 24][list(alone.columns)], alone)


def test_probes_that_nothing_asks_for_are_told_before_anything_is_trained(plan, tmp_path) -> None:
    for heavy, asked, wanted in (
        ("probe_scores", {"tasks": ()}, r'name probe_scores, but no setting of \[probing\] .* Add tasks = \["upos"\]'),
        ("minimal_pairs", {}, r'name minimal_pairs, but no setting of \[probing\] .* Add tasks = \["minimal-pairs"\]'),
    ):
        with pytest.raises(UserError, match=wanted):
            study(probed(plan, heavy, **asked), tmp_path / "run", num_processes=1)
    assert not (tmp_path / "run").exists()


def test_each_seed_is_compared_with_the_next_at_the_same_update(plan, tmp_path) -> None:
    light = dataclasses.replace(plan.checkpoints, light=("seed_divergence",), references=("final",))
    stages = graph(dataclasses.replace(plan, seeds=(0, 3, 7), checkpoints=light), tmp_path / "run")
    kept = {stage.key: stage.recipe.seed for stage in stages.of(Keep)}
    following = {0: 3, 3: 7, 7: 0}
    for stage in stages.of(MeasureCheckpoint):
        seed = stage.subject.recipe.seed
        (beside,) = stage.seeds.values()
        assert (beside.recipe.seed, beside.update) == (following[seed], stage.subject.update)
        assert {kept[key] for key in stage.needs if key in kept} == {seed, following[seed]}
        assert "seed_divergence" in stage.by_table
    alone = graph(dataclasses.replace(plan, checkpoints=light), tmp_path / "alone")
    assert not any("seed_divergence" in stage.by_table for stage in alone.of(MeasureCheckpoint))


def test_a_plan_without_a_schedule_has_none_of_it(tiny_plan, tmp_path) -> None:
    stages = graph(tiny_plan, tmp_path / "run")
    assert not stages.of(MeasureCheckpoint)
    assert not stages.of(Course)
    assert not stages.of(Keep)


def test_an_unknown_table_is_told_before_anything_is_trained(plan, tmp_path) -> None:
    wrong = dataclasses.replace(plan, checkpoints=dataclasses.replace(plan.checkpoints, light=("head_pattern",)))
    with pytest.raises(
        UserError, match=r"checkpoints\.light and heavy: unknown measure head_pattern\. Did you mean head_patterns"
    ):
        study(wrong, tmp_path / "run", num_processes=1)
    assert not (tmp_path / "run").exists()
