"""Loss changes in a study: recorded with the training or after it, with the same weights, and shown."""

import dataclasses

import pytest
from safetensors.torch import load_file

from infoflow.studies import DynamicsPlan, StudyPlan
from infoflow.studies._dynamics import recorded_tables
from infoflow.studies._jobs import Job, StudyJobs

JOB = Job(kind="train", objective="masked-lm", seed=0)


@pytest.fixture(scope="module")
def recorded_plan(tiny_plan) -> StudyPlan:
    dynamics = DynamicsPlan(on=True, tokens=120, held_out_tokens=60, parts=2, windows=3, lags=1)
    return dataclasses.replace(tiny_plan, objectives=("masked-lm",), seeds=(0,), dynamics=dynamics)


def weights(jobs: StudyJobs):
    return load_file(jobs.model_folder(JOB) / "model.safetensors")


def test_recording_keeps_key_and_weights_and_may_come_later(recorded_plan, tmp_path) -> None:
    from infoflow.results import RunFolder

    plain = dataclasses.replace(recorded_plan, dynamics=DynamicsPlan())
    first = StudyJobs(plain, RunFolder(tmp_path / "later"))
    first.do(JOB)
    assert first.is_done(JOB)
    later = StudyJobs(recorded_plan, RunFolder(tmp_path / "later"))
    assert later.train_key(JOB) == first.train_key(JOB)
    assert not later.is_done(JOB)
    later.do(JOB)
    at_once = StudyJobs(recorded_plan, RunFolder(tmp_path / "at-once"))
    at_once.do(JOB)
    assert later.is_done(JOB)
    assert at_once.is_done(JOB)
    one, other = weights(later), weights(at_once)
    assert all((one[name] == other[name]).all() for name in one)
    tables = [{s.name: frame for s, frame in recorded_tables(jobs, [JOB])} for jobs in (later, at_once)]
    assert tables[0].keys() == tables[1].keys()
    for name in ("allocation_steps", "allocation_groups", "allocation_hurting"):
        numbers = [table[name].drop(columns="replicates", errors="ignore") for table in tables]
        assert numbers[0].equals(numbers[1])
    assert not (tmp_path / "later" / "work" / "recording").exists() or not any(
        (tmp_path / "later" / "work" / "recording").iterdir()
    )
    steps = tables[0]["allocation_steps"]
    assert set(steps["set"]) == {"train", "held-out"}
    assert steps["window"].max() == 2
    assert sorted(set(tables[0]["allocation_lags"]["lag"])) == [-1, 0, 1]
    assert list(recorded_tables(first, [JOB])) == []


def test_other_settings_are_another_recording_of_the_same_training(recorded_plan, tmp_path) -> None:
    from infoflow.results import RunFolder
    from infoflow.studies._dynamics import recording_key

    jobs = StudyJobs(recorded_plan, RunFolder(tmp_path / "run"))
    for setting in ({"every": 2}, {"lags": 2}, {"lags": 0}):
        dynamics = dataclasses.replace(recorded_plan.dynamics, **setting)
        other = StudyJobs(dataclasses.replace(recorded_plan, dynamics=dynamics), RunFolder(tmp_path / "run"))
        assert recording_key(jobs, JOB) != recording_key(other, JOB)
        assert jobs.train_key(JOB) == other.train_key(JOB)


def test_settings_are_checked() -> None:
    from infoflow.foundation import UserError

    with pytest.raises(UserError, match=r"dynamics\.every must be a whole number from 1 to 1,000,000,000\. Got 0"):
        DynamicsPlan(every=0)
    with pytest.raises(UserError, match=r'dynamics\.rule must be one of "first-order", "trapezoid"'):
        StudyPlan.from_json({"dynamics": {"rule": "rk4"}})
