"""Stages of a study on a GPU: one at a time, or as many as the plan lets share it."""

from dataclasses import replace

import pytest
import torch

from infoflow.foundation import UserError
from infoflow.studies import StudyPlan
from infoflow.studies._costs import _resources
from infoflow.studies._engines import _jobs
from infoflow.studies._plan_sections import EnginePlan


def plan_of(per_gpu: int, device: str = "auto") -> StudyPlan:
    plan = StudyPlan.load("quick")
    training = replace(plan.training, device=device)
    return replace(plan, training=training, engine=EnginePlan(per_gpu=per_gpu))


@pytest.fixture
def a_gpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize("stages", [1, 2, 3, 7, 9, 16, 97])
def test_as_many_stages_fit_as_the_plan_says(stages, a_gpu):
    plan = plan_of(stages)
    left, running = 1.0, 0  # as Dask counts: what is asked for is taken off while it is there
    while _resources(plan)["GPU"] <= left:
        left -= _resources(plan)["GPU"]
        running += 1
    assert running == stages
    assert _jobs(plan, None) == stages
    assert _jobs(plan, 2) == 2


def test_by_itself_a_stage_takes_a_whole_gpu(a_gpu):
    assert _resources(plan_of(1)) == {"GPU": 1.0}
    assert StudyPlan.load("quick").engine.per_gpu == 1


def test_a_cpu_has_no_shares(a_gpu):
    assert _resources(plan_of(4, "cpu")) == {}


def test_none_is_refused():
    with pytest.raises(UserError, match=r"engine\.per_gpu must be a whole number from 1"):
        EnginePlan(per_gpu=0)
