"""The stages of a study for other engines: listed, and run one by one in processes of their own."""

import dataclasses
import json

import pandas as pd
import pytest

from infoflow.cli import run
from infoflow.foundation import UserError
from infoflow.results import RunFolder
from infoflow.studies import StudyPlan, list_stages, run_stage, study


@pytest.fixture(scope="module")
def plan(tiny_plan: StudyPlan) -> StudyPlan:
    """One masked LM, two tables."""
    tables = ("head_entropy", "layer_distance")
    return dataclasses.replace(
        tiny_plan.for_models(objectives=("masked-lm",), seeds=(0,)),
        analysis=dataclasses.replace(tiny_plan.analysis, tables=tables),
    )


@pytest.mark.slow
def test_every_stage_by_itself_gives_the_tables_of_the_study(plan, no_drawing, tmp_path):
    listed = list_stages(RunFolder(tmp_path / "by-key"), plan)
    keys = [one["key"] for one in listed]
    assert all(set(one["needs"]) <= set(keys[:place]) for place, one in enumerate(listed))
    assert not any(one["done"] for one in listed)
    assert all(one["cost"] > 0 and one["gpus"] == 0 for one in listed)
    assert [run_stage(tmp_path / "by-key", key) for key in keys] == [True] * len(keys)
    assert not run_stage(tmp_path / "by-key", keys[0])
    again = list_stages(RunFolder.existing(tmp_path / "by-key"))
    assert [one["key"] for one in again] == keys
    assert [one["kind"] for one in again if not one["done"]] == ["check"]  # judges anew in every call
    assert max(one["memory"] for one in again if one["kind"] == "train") > 10**7
    mine, whole = (study(plan, tmp_path / name, num_processes=1) for name in ("by-key", "whole"))
    assert set(mine.tables) == set(whole.tables)
    for name in ("head_entropy", "layer_distance", "task_scores", "findings"):
        pd.testing.assert_frame_equal(mine.tables[name], whole.tables[name], check_exact=True)
    assert {one["kind"] for one in mine.stages.records()} >= {"train", "measure"}
    assert all(one["cpu_seconds"] > 0 for one in json.loads((mine.path / "run.json").read_text())["stages"])


def test_a_stage_is_refused_before_those_that_it_needs_and_if_there_is_none(plan, capsys, tmp_path):
    listed = list_stages(RunFolder(tmp_path / "run"), plan)
    measured = next(one for one in listed if one["label"] == "measure masked-lm/seed-0")
    with pytest.raises(UserError, match="needs stages that are not done: train masked-lm/seed-0"):
        run_stage(tmp_path / "run", measured["key"])
    assert run(["stage", str(tmp_path / "run"), "0123456789abcdef"]) == 2
    assert "has no stage 0123456789abcdef" in capsys.readouterr().err
