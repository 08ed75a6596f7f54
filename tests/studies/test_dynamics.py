"""Loss changes in a study: recorded with the training or after it, with the same weights, and shown."""

import dataclasses
from pathlib import Path

import pytest
from safetensors.torch import load_file

from infoflow.studies import Graph, StudyPlan, Train, graph
from infoflow.subjects.allocation.settings import DynamicsPlan
from infoflow.subjects.allocation.stages import Record


@pytest.fixture(scope="module")
def recorded_plan(tiny_plan) -> StudyPlan:
    dynamics = DynamicsPlan(on=True, tokens=120, held_out_tokens=60, parts=2, windows=3)
    return dataclasses.replace(tiny_plan, objectives=("masked-lm",), seeds=(0,), dynamics=dynamics)


def weights(folder: Path):
    return load_file(folder / "models" / "masked-lm" / "seed-0" / "model.safetensors")


def only(stages: Graph, kind: type):
    (stage,) = stages.of(kind)
    return stage


def test_recording_keeps_key_and_weights_and_may_come_later(recorded_plan, tmp_path) -> None:
    plain = graph(dataclasses.replace(recorded_plan, dynamics=DynamicsPlan()), tmp_path / "later")
    only(plain, Train).run()
    assert plain.of(Record) == []
    later = graph(recorded_plan, tmp_path / "later")
    assert only(later, Train).key == only(plain, Train).key
    assert only(later, Train).is_done()
    assert not only(later, Record).is_done()
    only(later, Record).run()
    at_once = graph(recorded_plan, tmp_path / "at-once")
    only(at_once, Train).run()
    recordings = [only(later, Record), only(at_once, Record)]
    assert all(recording.is_done() for recording in recordings), "the first training has recorded"
    one, other = weights(tmp_path / "later"), weights(tmp_path / "at-once")
    assert all((one[name] == other[name]).all() for name in one)
    tables = [recording.tables() for recording in recordings]
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


def test_other_settings_are_another_recording_of_the_same_training(recorded_plan, tmp_path) -> None:
    stages = graph(recorded_plan, tmp_path / "run")
    for setting in ({"every": 2}, {"windows": 2}):
        dynamics = dataclasses.replace(recorded_plan.dynamics, **setting)
        other = graph(dataclasses.replace(recorded_plan, dynamics=dynamics), tmp_path / "run")
        assert only(stages, Record).key != only(other, Record).key
        assert only(stages, Train).key == only(other, Train).key
