"""What a study does with damaged files of its own, and with files of others."""

import dataclasses
import json
from pathlib import Path

import pandas as pd
import pytest

from infoflow.foundation import UserError, file_digest, make_display, use_display
from infoflow.results import RunFolder
from infoflow.studies import MeasureModel, Run, StudyPlan, Train, graph, study, train_model

pytestmark = pytest.mark.slow

WEIGHTS = "model.safetensors"


def again(plan: StudyPlan, run: Path) -> None:
    train_model("masked-lm", plan, out=run)


def work_of(run: Path) -> Path:
    (folder,) = (run / "work" / "training").iterdir()
    return folder


def cut(path: Path) -> None:
    content = path.read_bytes()
    path.write_bytes(content[: min(500, len(content) // 2)])


def flip(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[-9] ^= 1
    path.write_bytes(content)


def empty(path: Path) -> None:
    path.write_bytes(b"")


def remove(path: Path) -> None:
    path.unlink()


def folder(path: Path) -> None:
    path.unlink()
    path.mkdir()


@pytest.mark.parametrize(
    ("name", "damage"),
    [
        (WEIGHTS, cut),
        (WEIGHTS, flip),
        (WEIGHTS, remove),
        ("config.json", empty),
        ("training.json", remove),
        ("training.json", folder),
    ],
)
def test_a_damaged_published_model_is_published_again(trained, tiny_plan, capsys, damage, name) -> None:
    published = trained / "models" / "masked-lm" / "seed-0"
    expected = {path.name: file_digest(path) for path in published.iterdir() if path.is_file()}
    damage(published / name)
    with use_display(make_display("plain")):
        again(tiny_plan, trained)
    assert {path.name: file_digest(path) for path in published.iterdir() if path.is_file()} == expected
    if name == WEIGHTS:
        assert "was damaged: masked-lm/seed-0 is restored" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("name", "damage"),
    [(f"model/{WEIGHTS}", cut), (f"model/{WEIGHTS}", flip), ("model/config.json", remove), ("log.jsonl", cut)],
)
def test_damaged_trained_weights_are_trained_again(trained, tiny_plan, capsys, damage, name) -> None:
    published = trained / "models" / "masked-lm" / "seed-0"
    expected = file_digest(published / WEIGHTS)
    damage(work_of(trained) / name)
    with use_display(make_display("plain")):
        again(tiny_plan, trained)
    assert "differ from the trained ones and are restored" in capsys.readouterr().err
    assert file_digest(published / WEIGHTS) == file_digest(work_of(trained) / "model" / WEIGHTS) == expected
    assert json.loads((work_of(trained) / "log.jsonl").read_text().splitlines()[-1])["update"] == 6


def test_a_damaged_checkpoint_is_passed_over(trained, tiny_plan, capsys) -> None:
    published = trained / "models" / "masked-lm" / "seed-0"
    expected = file_digest(published / WEIGHTS)
    for checkpoint in (work_of(trained) / "checkpoints").glob("step-*"):
        cut(checkpoint / "training" / "optimizer.safetensors")
    cut(work_of(trained) / "model" / WEIGHTS)
    with use_display(make_display("plain")):
        again(tiny_plan, trained)
    assert "is damaged" in capsys.readouterr().err
    assert file_digest(published / WEIGHTS) == expected


def test_a_model_of_somebody_else_is_not_replaced(tiny_plan, tmp_path) -> None:
    mine = tmp_path / "models" / "masked-lm" / "seed-0"
    mine.mkdir(parents=True)
    (mine / WEIGHTS).write_text("mine")
    with pytest.raises(UserError, match=r"seed-0 would be replaced .* Move it, or choose another --out"):
        again(tiny_plan, tmp_path)
    assert (mine / WEIGHTS).read_text() == "mine"


def test_tables_of_somebody_else_stay(tiny_plan, tmp_path, no_drawing) -> None:
    (tmp_path / "tables").mkdir()
    pd.DataFrame({"mine": [1]}).to_parquet(tmp_path / "tables" / "mine.parquet")
    (tmp_path / "tables" / "notes.txt").write_text("mine")
    before = file_digest(tmp_path / "tables" / "mine.parquet")
    RunFolder(tmp_path).tables.clear()
    assert file_digest(tmp_path / "tables" / "mine.parquet") == before
    assert (tmp_path / "tables" / "notes.txt").read_text() == "mine"


def test_files_of_a_run_have_one_mode(trained) -> None:
    modes = {path.stat().st_mode & 0o777 for path in trained.rglob("*") if path.is_file()}
    assert modes == {(trained / "run.json").stat().st_mode & 0o777}


def test_leftovers_are_swept(trained, tiny_plan) -> None:
    left = trained / "work" / "training" / ".x.1a2b.partial"
    left.mkdir()
    (left / "half").touch()
    again(tiny_plan, trained)
    assert not left.exists()


def _measuring(plan: StudyPlan, run: Path) -> MeasureModel:
    """The stage that scores the trained model, as a new call finds it."""
    analysis = dataclasses.replace(plan.analysis, tables=("task_scores",), untrained=False)
    (stage,) = graph(dataclasses.replace(plan, objectives=("masked-lm",), analysis=analysis), run).of(MeasureModel)
    return stage


@pytest.mark.parametrize("damage", ["cut", "empty", "removed", "contents", "other numbers"])
def test_damaged_parts_are_made_again(trained, tiny_plan, damage) -> None:
    first = _measuring(tiny_plan, trained)
    assert not first.is_done()
    first.run()
    expected = first.tables()["task_scores"]
    assert _measuring(tiny_plan, trained).is_done()
    (path,) = (trained / "work" / "measured").glob("*/task_scores.parquet")
    if damage == "removed":
        path.unlink()
    elif damage == "contents":
        (path.parent / "tables.json").write_text("[")
    elif damage == "other numbers":
        pd.read_parquet(path).assign(value=0.5).to_parquet(path)
    else:
        path.write_bytes(path.read_bytes()[:300] if damage == "cut" else b"")
    again = _measuring(tiny_plan, trained)
    assert not again.is_done()
    again.run()
    pd.testing.assert_frame_equal(again.tables()["task_scores"], expected)
    assert _measuring(tiny_plan, trained).is_done()


@pytest.mark.parametrize("content", ["", "{", "[1]", "{}", "[" * 100_000, None])
def test_damaged_facts_are_found_again(trained, tiny_plan, content) -> None:
    (training, *_) = Run.open(trained).stages.of(Train)
    expected = training.facts()
    (facts,) = (trained / "work" / "trained").glob("*/facts.json")
    if content is None:
        facts.unlink()
    else:
        facts.write_text(content)
    train_model("masked-lm", tiny_plan, out=trained)
    found = training.facts()
    times = {"seconds", "cpu_seconds"}
    assert {name: found[name] for name in found.keys() - times} == {
        name: expected[name] for name in expected.keys() - times
    }


def test_a_study_is_refused_before_it_trains_where_others_files_lie(tiny_plan, tmp_path) -> None:
    (tmp_path / "report.html").write_text("<p>mine</p>")
    with pytest.raises(UserError, match=r"report\.html was not written by infoflow"):
        study(tiny_plan, tmp_path)
    assert (tmp_path / "report.html").read_text() == "<p>mine</p>"
    assert not (tmp_path / "work").exists()
