"""The grid of claims over scale (experiments/studies/scale): what is kept of cells whose folders are gone."""

import shutil
import sys
from pathlib import Path
from types import SimpleNamespace

import pandas as pd
import pytest
from support.invented_scales import study_tables, write_study
from support.scripts import script
from support.undrawn import undrawn

from infoflow.findings import FINDINGS_TABLE, evaluate
from infoflow.results import RunFolder
from infoflow.studies import StudyPlan

GRID = Path(__file__).parents[2] / "experiments" / "studies" / "scale" / "run.py"
CELLS = {"w64-0.3M": (0.6, 3e5), "w64-1M": (0.9, 1e6), "w64-3M": (1.2, 3e6)}


def cell(out: Path, name: str) -> None:
    fall, tokens = CELLS[name]
    write_study(out / name, fall, tokens, batch_tokens=512)
    RunFolder(out / name).update(models=[{"model": "causal-lm/seed-0", "sha256": name}])
    RunFolder(out / name).tables.write(evaluate(study_tables(fall, tokens)), FINDINGS_TABLE)


def compared(monkeypatch: pytest.MonkeyPatch, out: Path, results: Path) -> dict[str, pd.DataFrame]:
    monkeypatch.setattr(sys, "argv", ["run.py", "--out", str(out), "--results", str(results), "--only"])
    with undrawn():
        script(GRID).main()
    return {path.name: pd.read_csv(path) for path in sorted(results.glob("*.csv"))}


@pytest.mark.slow
def test_cells_whose_folders_are_gone_count_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in CELLS:
        cell(tmp_path / "runs", name)
    once = compared(monkeypatch, tmp_path / "runs", tmp_path / "once")
    assert list(once) == ["findings.csv", "findings_over_scale.csv", "scores.csv", "trends.csv"]
    assert set(once["findings_over_scale.csv"]["run"]) == set(CELLS)
    shutil.move(tmp_path / "runs" / "w64-3M", tmp_path / "later")
    first = compared(monkeypatch, tmp_path / "runs", tmp_path / "sittings")
    assert set(first["findings_over_scale.csv"]["run"]) == {"w64-0.3M", "w64-1M"}
    for folder in ("w64-0.3M", "compared"):
        shutil.rmtree(tmp_path / "runs" / folder)
    shutil.move(tmp_path / "later", tmp_path / "runs" / "w64-3M")  # beside w64-1M, which was compared before
    again = compared(monkeypatch, tmp_path / "runs", tmp_path / "sittings")
    for name, frame in once.items():
        pd.testing.assert_frame_equal(frame, again[name], check_exact=True)


def test_the_longest_training_keeps_checkpoints_where_the_others_end() -> None:
    run = script(GRID)
    base = StudyPlan.load(GRID.parent / "plan.toml")
    cells = {cell.name: cell.plan(base) for cell in run.grid((0.3, 1.0, 3.0), (64, 128), ["tatoeba"])}
    assert cells["w64-1M"].checkpoints.schedule == cells["w128-0.3M"].checkpoints.schedule == ""
    for width in (64, 128):
        longest = cells[f"w{width}-3M"]
        kept = [int(each) for each in longest.checkpoints.schedule.split(",")]
        assert kept[-1] == longest.training.updates
        for update, tokens in zip(kept[:-1], (3e5, 1e6), strict=True):
            assert tokens <= update * 512 < tokens + 512


def test_costs_follow_the_finished_cell_that_is_nearest_in_width() -> None:
    grid = script(GRID)
    plan = StudyPlan.load(GRID.with_name("plan.toml"))
    small, wide, wider = (grid.Cell(width=width, tokens=tokens, corpus="tatoeba") for width, tokens in (
        (64, 1.0), (256, 3.0), (512, 3.0)
    ))  # fmt: skip

    def run(cpu_seconds: float) -> SimpleNamespace:
        models = [
            {"cpu_seconds": cpu_seconds},
            {"cpu_seconds": 3 * cpu_seconds},
            {"sha256": "of a model that was taken"},
        ]
        return SimpleNamespace(folder=SimpleNamespace(read=lambda: {"models": models}))

    models = len(plan.seeds) * len(plan.objectives)
    assert small.cpu_seconds(plan, [(small, run(50.0))]) == pytest.approx(models * 100.0)
    assert wide.cpu_seconds(plan, [(wide, run(300.0)), (small, run(1.0))]) == pytest.approx(models * 600.0)
    before = wider.cpu_seconds(plan, [])
    by_nearest = wider.cpu_seconds(plan, [(wide, run(300.0)), (small, run(1.0))])
    assert by_nearest / before == pytest.approx(models * 600.0 / wide.cpu_seconds(plan, []))
    assert wide.cpu_seconds(plan, []) > 3 * small.cpu_seconds(plan, [])
