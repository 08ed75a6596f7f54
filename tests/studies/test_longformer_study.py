"""A study of masked LMs on BERT's blocks and on Longformer's."""

import numpy as np
import pytest

from infoflow.studies import AnalysisPlan, CorpusPlan, StudyPlan, study
from infoflow.training import ModelConfig, TrainConfig

pytestmark = pytest.mark.slow
TABLES = ("head_confidence", "head_relevance", "head_positional", "influence_by_frequency", "lens", "head_importance")


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    plan = StudyPlan(
        objectives=("masked-lm",),
        architectures=("bert", "longformer"),
        corpus=CorpusPlan(name="grammar:200", vocabulary=120, test=0.3, validation=0.1),
        model=ModelConfig(width=16, layers=2, heads=2, feedforward=32, positions=64),
        training=TrainConfig(updates=4, warmup=1, batch_tokens=256),
        analysis=AnalysisPlan(tables=TABLES, sentences=30, lens_steps=2, relevance_sentences=2, untrained=False),
    )
    return study(plan, tmp_path_factory.mktemp("run"), num_processes=1)


@pytest.mark.parametrize("table", [name for name in TABLES if name != "head_relevance"])
def test_both_architectures_are_measured(run, table) -> None:
    rows = run.tables[table]
    assert set(rows["architecture"]) == {"bert", "longformer"}
    assert np.isfinite(rows.loc[rows["architecture"] == "longformer", "value"]).any()


def test_relevance_stops_at_projections_of_global_tokens(run) -> None:
    assert set(run.tables["head_relevance"]["architecture"]) == {"bert"}


def test_its_report_is_written(run) -> None:
    assert "longformer" in (run.path / "report.html").read_text(encoding="utf-8")
