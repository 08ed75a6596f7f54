"""The three pages on extensions, as somebody new follows them: every file is saved, every command runs, in order."""

import re
import runpy
import shlex
from pathlib import Path

import pandas as pd
import pytest

ROOT = Path(__file__).parents[2]
PAGES = ("own-measure", "own-objective", "own-claim")
SAVED = r"as `(?P<file>[\w.]+)`[^`]*(?:`[^`\n]+`[^`]*)*?```\w+\n(?P<text>.*?)^```"
BLOCK = re.compile(rf"{SAVED}|^```sh\n(?P<command>.*?)^```", re.MULTILINE | re.DOTALL)


def steps(name: str) -> list[tuple[str, str]]:
    """Files with their text, and commands as ("", command), in the order of the page."""
    page = (ROOT / "docs" / "extend" / f"{name}.md").read_text(encoding="utf-8")
    return [(found["file"] or "", found["text"] or found["command"]) for found in BLOCK.finditer(page)]


def test_every_block_is_a_step():
    """A block that is neither saved nor run, other than plain text, would be checked by nobody."""
    for name in PAGES:
        page = (ROOT / "docs" / "extend" / f"{name}.md").read_text(encoding="utf-8")
        assert len(steps(name)) == len(re.findall(r"^```(?:python|toml|sh)$", page, re.MULTILINE)), name
    assert [file for name in PAGES for file, _ in steps(name) if file] == [
        "outliers.py", "study.toml", "norms.py", "try_it.py", "backwards.py", "study.toml", "my_claims.py", "study.toml"
    ]  # fmt: skip
    assert len(dict(steps("own-objective"))["backwards.py"].splitlines()) <= 30


@pytest.mark.slow
def test_the_pages_make_one_study_with_all_three(tmp_path, monkeypatch, capsys):
    from infoflow import Run
    from infoflow.cli import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setenv("OMP_NUM_THREADS", "1")  # one stage after the other in this process
    for file, text in [step for name in PAGES for step in steps(name)]:
        if file:
            Path(file).write_text(text, encoding="utf-8")
        for line in [] if file else text.splitlines():
            assert run([*shlex.split(line)[1:]]) == 0, capsys.readouterr().err
    tables = runpy.run_path("try_it.py")["tables"]
    assert tables["state_norm"]["value"].round(3).unique().tolist() == [5.657]
    mine = Run.open("runs/mine")
    rows = pd.DataFrame(mine.tables["outlier_share"])
    assert set(rows["objective"]) == {"causal-lm", "backward-lm"}
    assert set(rows["seed"]) == {0, 1, 2}
    assert rows[~rows["trained"]]["value"].between(0.16, 0.19).all()
    (claim,) = mine.findings[mine.findings["id"] == "mine:1"].to_dict("records")
    page = (ROOT / "docs" / "extend" / "own-claim.md").read_text(encoding="utf-8")
    assert claim["verdict"] == re.search(r"^mine:1 +(\w+)", page, re.MULTILINE)[1]
    report = (tmp_path / "runs" / "mine" / "report.html").read_text(encoding="utf-8")
    assert "What do your own measures find?" in report
    assert "mine:1" in report
    page = (ROOT / "docs" / "extend" / "own-objective.md").read_text(encoding="utf-8")
    assert page.split("```text\n")[1].split("```")[0].strip() in capsys.readouterr().out
