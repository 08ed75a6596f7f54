"""Stages of a study on a GPU: one at a time, or as many as the plan lets share it."""

from dataclasses import replace

import pytest
import torch

from infoflow.studies import EnginePlan, StudyPlan, Train, graph


def with_shares(plan: StudyPlan, per_gpu: int, device: str = "auto") -> StudyPlan:
    training = replace(plan.training, device=device)
    return replace(plan, training=training, engine=EnginePlan(per_gpu=per_gpu))


def resources(plan: StudyPlan, folder) -> dict[str, float]:
    """What training takes of a machine."""
    return dict(graph(plan, folder).of(Train)[0].resources)


@pytest.fixture
def a_gpu(monkeypatch) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: True)


@pytest.mark.parametrize("stages", [1, 3, 7, 97])
def test_as_many_stages_fit_as_the_plan_says(stages, a_gpu, tiny_plan, tmp_path):
    plan = with_shares(tiny_plan, stages)
    left, running = 1.0, 0  # as Dask counts: what is asked for is taken off while it is there
    share = resources(plan, tmp_path)["GPU"]
    while share <= left:
        left -= share
        running += 1
    assert running == stages


def test_by_itself_a_stage_takes_a_whole_gpu(a_gpu, tiny_plan, tmp_path):
    assert resources(tiny_plan, tmp_path) == {"GPU": 1.0}
    assert StudyPlan.load("quick").engine.per_gpu == 1


def test_a_cpu_has_no_shares(a_gpu, tiny_plan, tmp_path):
    assert resources(with_shares(tiny_plan, 4, "cpu"), tmp_path) == {}
