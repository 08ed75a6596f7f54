"""`study` and what reads its run: `findings`, `report`."""

import json
import re
import shutil

import pytest

pytestmark = pytest.mark.slow


def test_a_study_shows_scores_verdicts_and_where_the_report_is(infoflow, finished):
    again = infoflow("study", finished.parent / "tiny.toml", "--processes=1", "--out", finished)
    assert again.code == 0
    lines = again.out.splitlines()
    assert lines[0].endswith("95% intervals")
    assert lines[1].split() == ["model", "test", "score", "value", "without", "context"]
    assert sum(line.startswith("masked-lm/seed-0 ") for line in lines) == 2  # loss and perplexity
    assert not any(line.startswith("representations:V-1 ") for line in lines), "nothing is learned in 40 updates"
    assert "0 holds, 0 fails, 0 undetermined, " in again.out
    assert f"infoflow findings {finished}" in again.out
    assert lines[-1] == f"Report: {finished / 'report.html'}"
    assert "train" not in again.err, "a finished study trains nothing"


def test_seed_device_and_settings_change_the_plan(infoflow, plan, no_drawing, tmp_path):
    answer = infoflow(
        "study", plan, "--seeds=3,4", "--device=cpu", "--set=training.updates=2", "--processes=1",
        "--set", 'objectives=["causal-lm"]', "--set", "analysis.untrained=false", "--set=title=Other",
        "--set", 'analysis.tables=["task_scores"]',
    )  # fmt: skip
    assert answer.code == 0, answer.err
    assert "These models did not learn, so their layers and heads say little" in answer.out
    assert re.search(r"^  causal-lm/seed-3: loss [\d.]+, needed below [\d.]+$", answer.out, re.MULTILINE)
    written = json.loads((tmp_path / "runs" / "tiny" / "run.json").read_text())["plan"]
    assert written["seeds"] == [3, 4]
    assert written["objectives"] == ["causal-lm"]
    assert written["training"]["device"] == "cpu"
    assert written["training"]["updates"] == 2
    assert written["title"] == "Other"
    assert written["model"]["width"] == 16
    assert sorted(path.name for path in (tmp_path / "runs/tiny/models/causal-lm").iterdir()) == ["seed-3", "seed-4"]


def test_findings_judges_again(infoflow, finished, tmp_path):
    run = tmp_path / "copy"
    shutil.copytree(finished, run)
    (run / "tables" / "findings.parquet").unlink()
    (run / "report.html").unlink()
    answer = infoflow("findings", run)
    assert answer.code == 0
    assert re.search(r"^    .*representations:V-1\b", answer.out, re.MULTILINE)
    assert answer.out.splitlines()[-1] == f"Report: {run / 'report.html'}"
    assert (run / "tables" / "findings.parquet").exists()
    assert (run / "report.html").read_text().startswith("<!")


def test_findings_needs_tables(infoflow, finished, tmp_path):
    shutil.copy(finished / "run.json", tmp_path)
    answer = infoflow("findings", tmp_path)
    assert answer.code == 2
    assert "holds no tables yet" in answer.err


def test_report_writes_figures(infoflow, finished, tmp_path):
    answer = infoflow("report", finished, "--figures", "figures", "--formats", "svg,pdf", "--width", "3.3")
    assert answer.code == 0
    paths = [tmp_path / line for line in answer.out.splitlines()]
    assert paths
    assert all(path.stat().st_size for path in paths)
    assert {path.suffix for path in paths} == {".svg", ".pdf"}
