"""Models that were trained on another machine: the study goes on with them, rounded, and trains nothing."""

import dataclasses
import shutil
from pathlib import Path

import pandas as pd
import pytest
import torch
from safetensors.torch import load_file
from support.scripts import script
from support.undrawn import undrawn

from infoflow.studies import StudyPlan, study

pytestmark = pytest.mark.slow
SCRIPT = Path(__file__).parents[2] / "experiments" / "studies" / "paper" / "carry.py"
KIB = 2**-10
SHORT = {"updates": 4, "sentences": 8, "bleu_sentences": 4}


@pytest.fixture(scope="module")
def carry():
    return script(SCRIPT)


@pytest.fixture(scope="module")
def there(tiny_plan: StudyPlan, tmp_path_factory) -> tuple[StudyPlan, Path]:
    """A study of two models that measured what it must, on the machine that could train."""
    plan = dataclasses.replace(
        tiny_plan,
        objectives=("causal-lm", "translation"),
        analysis=dataclasses.replace(tiny_plan.analysis, tables=("task_scores",)),
        alignment=dataclasses.replace(tiny_plan.alignment, on=False),
    )
    folder = tmp_path_factory.mktemp("there") / "run"
    with undrawn():
        study(plan, folder, num_processes=1)
    return plan, folder


def test_a_study_goes_on_with_models_that_were_carried(carry, there, tmp_path):
    plan, folder = there
    parts = carry.pack(folder, tmp_path / "bag", part_mib=100 * KIB)
    assert len(parts) > 1
    assert all(part.stat().st_size <= 100 * 2**10 for part in parts)
    home = tmp_path / "home"
    assert carry.unpack(tmp_path / "bag", home) == 2
    assert not (home / "models").exists()
    logs = {path.relative_to(home): path.read_bytes() for path in home.rglob("log.jsonl")}
    with undrawn():
        study(plan, home, num_processes=1)

    assert {path.relative_to(home): path.read_bytes() for path in home.rglob("log.jsonl")} == logs
    runs = [pd.read_parquet(run / "tables" / "training_runs.parquet") for run in (folder, home)]
    pd.testing.assert_frame_equal(*runs)
    scores = [pd.read_parquet(run / "tables" / "task_scores.parquet")["value"] for run in (folder, home)]
    assert (scores[0] - scores[1]).abs().max() < 0.05
    for name in ("causal-lm", "translation"):
        own, carried = (load_file(run / "models" / name / "seed-0" / "model.safetensors") for run in (folder, home))
        assert own.keys() == carried.keys()
        rounded = {key: value.half().float() if value.is_floating_point() else value for key, value in own.items()}
        assert all(torch.equal(rounded[key], carried[key]) for key in own)
        assert any(not torch.equal(own[key], carried[key]) for key in own)


def test_a_part_that_is_missing_is_told(carry, there, tmp_path):
    parts = carry.pack(there[1], tmp_path / "bag", part_mib=100 * KIB)
    parts[0].unlink()
    with pytest.raises(SystemExit, match=r"bag\.000 and its other parts were expected"):
        carry.unpack(tmp_path / "bag", tmp_path / "home")
    assert not (tmp_path / "home").exists()


def test_models_travel_first_and_tables_of_copies_trained_on_later(carry, there, tmp_path):
    plan, folder = there[0], tmp_path / "further"
    shutil.copytree(there[1], folder)
    plan = dataclasses.replace(plan, context=dataclasses.replace(plan.context, on=True, **SHORT))
    carry.pack(folder, tmp_path / "models", only="models")
    with undrawn():
        study(plan, folder, num_processes=1)
    carry.pack(folder, tmp_path / "tables", only="tables")
    home = tmp_path / "home"
    assert [carry.unpack(tmp_path / bag, home) for bag in ("models", "tables")] == [2, 0]
    assert not (home / "work" / "retraining").exists()
    with undrawn():
        study(plan, home, num_processes=1)
    assert not (home / "work" / "retraining").exists(), "nothing was trained on again"
    closed = [_retrained(run) for run in (folder, home)]
    assert len(closed[0]) > 0
    pd.testing.assert_frame_equal(*closed)


def _retrained(run: Path) -> pd.DataFrame:
    table = pd.read_parquet(run / "tables" / "encoder_context.parquet")
    return table[table["retrained"] > 0].reset_index(drop=True)


def test_what_is_there_is_left_alone(carry, there, tmp_path):
    carry.pack(there[1], tmp_path / "bag")
    home = tmp_path / "home"
    shutil.copytree(there[1], home)
    (home / "run.json").write_text("mine", encoding="utf-8")
    with pytest.raises(SystemExit, match=r"holds run\.json: name a folder that does not exist"):
        carry.unpack(tmp_path / "bag", home)
    assert (home / "run.json").read_text(encoding="utf-8") == "mine"
