"""Controls that begin alike are measured once, and say for each objective what measuring it alone says."""

from pathlib import Path

import pandas as pd
import pytest
from studies.test_documents import write_text

from infoflow.studies import AnalysisPlan, CorpusPlan, MeasureModel, Run, StudyPlan, graph, study
from infoflow.training import ModelConfig, TrainConfig

pytestmark = pytest.mark.slow

DENOISERS = ("span-corruption", "mass", "prefix-lm", "bart", "deshuffling")  # the last two write whole texts
TABLES = ("task_scores", "head_confidence", "geometry", "model_distance")


def plan_of(folder: Path, *objectives: str) -> StudyPlan:
    return StudyPlan(
        objectives=objectives,
        corpus=CorpusPlan(name=write_text(folder / "text.txt"), vocabulary=150),
        model=ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=48),
        training=TrainConfig(updates=2, warmup=1, batch_tokens=256),
        analysis=AnalysisPlan(tables=TABLES, sentences=60),
    )


def controls(run: Run, table: str, objective: str) -> pd.DataFrame:
    frame = run.tables[table]
    return frame[(frame["objective"] == objective) & ~frame["trained"]].reset_index(drop=True)


def test_a_control_says_what_it_says_where_it_is_measured_itself(tmp_path: Path, no_drawing) -> None:
    """The first of a plan is measured itself: in one plan one, in the other the other."""
    pairs = [("mass", "span-corruption"), ("span-corruption", "mass")]
    runs = [study(plan_of(tmp_path, *pair), tmp_path / pair[0], num_processes=1) for pair in pairs]
    for table in ("task_scores", "head_confidence", "geometry"):
        for name in pairs[0]:
            one, other = [controls(run, table, name) for run in runs]
            assert len(one)
            pd.testing.assert_frame_equal(one, other, check_exact=True)


def test_what_begins_and_is_measured_alike_is_measured_once(tmp_path: Path) -> None:
    stages = graph(plan_of(tmp_path, "masked-lm", "causal-lm", *DENOISERS), tmp_path / "run")
    controls = {
        stage.subject.recipe.objective.name: stage for stage in stages.of(MeasureModel) if not stage.subject.trained
    }
    keys = {name: stage.table_keys() for name, stage in controls.items()}
    of_confidence = {name: key["head_confidence"] for name, key in keys.items()}
    assert of_confidence["span-corruption"] == of_confidence["mass"] == of_confidence["prefix-lm"]
    assert of_confidence["bart"] == of_confidence["deshuffling"]
    assert len(set(of_confidence.values())) == 4
    assert len({key["task_scores"] for key in keys.values()}) == len(keys)  # each is scored by its own loss
    assert controls["mass"].needs == (controls["span-corruption"].key,) == controls["prefix-lm"].needs
    trained = {stage.table_keys()["head_confidence"] for stage in stages.of(MeasureModel) if stage.subject.trained}
    assert len(trained) == 7
    assert not trained & set(of_confidence.values())
