"""What is done of a study that was stopped, as a run of its own."""

import pandas as pd
import pytest

from infoflow.cli import run as command
from infoflow.foundation import UserError
from infoflow.results import RunFolder
from infoflow.studies import MeasureModel, Run, StudyPlan, graph, study

PLAN = StudyPlan.from_json(
    {
        "title": "<Two> models",
        "objectives": ["causal-lm", "masked-lm"],
        "seeds": [0],
        "corpus": {"name": "grammar:300", "vocabulary": 150, "test": 0.3, "validation": 0.1},
        "model": {"width": 16, "layers": 2, "heads": 2, "feedforward": 32},
        "training": {"updates": 2, "batch_tokens": 256, "device": "cpu"},
        "analysis": {"tables": ["task_scores", "layer_distance"], "untrained": False},
        "alignment": {"on": False},
    }
)


@pytest.fixture(scope="module")
def stopped(tmp_path_factory) -> Run:
    """Both models are trained, one is measured."""
    folder = tmp_path_factory.mktemp("so-far") / "run"

    def run(stage):
        if stage.subject.recipe.objective.name == "masked-lm":
            raise UserError("That stage failed.")
        return measure(stage)

    measure = MeasureModel.run
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MeasureModel, "run", run)
        with pytest.raises(UserError) as caught:
            study(PLAN, folder, num_processes=1)
    first, *_, last = str(caught.value).splitlines()
    assert first == "measure masked-lm/seed-0: That stage failed."
    assert last == f"To see the results so far: infoflow report {folder} --so-far"
    return Run.open(folder)


def test_the_tables_are_those_of_the_stages_that_are_done(stopped):
    found = stopped.so_far()
    assert not len(stopped.tables)
    measured = {name for stage in stopped.stages if stage.is_done() for name in stage.tables()}
    assert {"layer_distance", "task_scores", "training_runs"} <= measured == set(found.tables) - {"findings"}
    assert found.tables["training_runs"]["model"].nunique() == 2
    assert found.tables["layer_distance"]["model"].nunique() == 1
    assert set(found.findings["verdict"]) == {"not testable here"}


def test_the_report_says_what_is_missing(stopped, capsys):
    assert command(["report", str(stopped.path), "--so-far"]) == 0
    assert capsys.readouterr().out.strip().endswith("report.html")
    page = (stopped.path / "so-far" / "report.html").read_text()
    works = len(stopped.stages) - 1
    left = sum(not stage.is_done() for stage in stopped.stages) - 1
    assert f"&lt;Two&gt; models (so far: {works - left} of {works} stages)" in page
    assert "The study is running or was stopped. Missing: " in page
    assert "measure (1)" in page
    assert not stopped.folder.report.exists()


@pytest.mark.slow
def test_its_end_removes_it_and_has_the_same_rows(stopped):
    before = stopped.so_far().tables["layer_distance"]
    whole = study(PLAN, stopped.path, num_processes=1)
    assert not (stopped.path / "so-far").exists()
    rows = whole.tables["layer_distance"]
    pd.testing.assert_frame_equal(before, rows[rows["model"].isin(before["model"])].reset_index(drop=True))
    told = whole.so_far()  # a study that is done has all of it
    pd.testing.assert_frame_equal(told.tables["layer_distance"], rows)


def test_a_study_without_a_measured_model_has_nothing_to_tell(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.update(kind="study", plan=PLAN.to_json())
    with pytest.raises(
        UserError, match=r"cannot be reported before one of its models is measured, .* are not prepared for the plan"
    ):
        Run(run).so_far()
    graph(PLAN, run)
    with pytest.raises(
        UserError, match=r"cannot be reported before one of its models is measured\. Got 0 of \d+ stages done\."
    ):
        Run(run).so_far()
    assert not (run.path / "so-far").exists()


@pytest.mark.parametrize(("setting", "value"), [("tasks", [None]), ("sizes", {})])
def test_a_damaged_plan_is_called_damaged(tmp_path, setting, value):
    run = RunFolder(tmp_path / "run")
    run.update(kind="study", plan={**PLAN.to_json(), "probing": {setting: value}})
    said = rf"(?s)^The plan in .*run\.json cannot be read: probing\.{setting}.*is damaged, or"
    with pytest.raises(UserError, match=said):
        Run(run).so_far()


def test_only_a_study_is_told_so_far(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.update(kind="analyze")
    with pytest.raises(UserError, match="is not a study"):
        Run(run).so_far()
