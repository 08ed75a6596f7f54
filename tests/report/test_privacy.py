"""What a report that is passed on says of the user's folders and files, and what its downloads may do."""

import base64
import gzip
import io
import re

import pandas as pd
import pytest

from infoflow.report import anonymize, write_report
from infoflow.results import RunFolder

SECRET = "/home/jane/secret project"


@pytest.fixture
def run(tmp_path):
    from synthetic_run import make_analysis

    run = make_analysis(tmp_path / "run", name="mybert", tables=("head_entropy",))
    models = run.read()["models"]
    plan = {"models": [f"{SECRET}/mybert"], "options": {"corpus": f"{SECRET}/wiki.txt", "tokenizer": f"{SECRET}/tok"}}
    run.update(
        title="How information flows through mybert",
        plan=plan,
        corpus={"name": f"{SECRET}/wiki.txt", "sentences": 10},
        models=models,
        warnings=[f"{SECRET.replace(' ', '-')}/wiki.txt has long lines."],
        command=f"infoflow analyze '{SECRET}/mybert' --corpus '{SECRET}/wiki.txt'",
    )
    return run


def test_a_report_names_files_and_no_folders(run):
    page = write_report(run).read_text(encoding="utf-8")
    assert "jane" not in page
    assert "secret" not in page
    assert "mybert" in page
    assert "wiki.txt" in page
    assert SECRET in (run.path / "run.json").read_text()


def test_an_anonymous_report_does_not_even_name_files(run):
    page = write_report(run, anonymous=True).read_text(encoding="utf-8")
    for word in ("jane", "secret", "mybert", "wiki"):
        assert word not in page, word
    assert "model-1" in page
    assert "infoflow analyze" not in page
    assert SECRET in (run.path / "run.json").read_text()


@pytest.fixture
def tuned(tmp_path):
    """What `infoflow tune` writes of a local model: its folder in the plan, its name in the tables alone."""
    from adapted import write_table
    from findings.adapted_tables import Adapted

    run = RunFolder(tmp_path / "tuned")
    frame = Adapted(objectives=("masked-lm",)).tables(["tuned_scores"])["tuned_scores"].assign(model="mybert")
    write_table(run, "tuned_scores", frame)
    run.update(kind="tune", title="Tuned for topics", plan={"model": f"{SECRET}/mybert", "task": "topics"})
    return run


def test_an_anonymous_report_of_a_tuned_model_does_not_name_it(tuned):
    assert "mybert" in write_report(tuned).read_text(encoding="utf-8")
    page = write_report(tuned, anonymous=True).read_text(encoding="utf-8")
    for word in ("jane", "secret", "mybert"):
        assert word not in page, word
    assert "model-1" in page


def test_an_anonymous_report_does_not_call_a_task_like_its_file(tuned):
    name = tuned.tables["tuned_scores"]["task"].iloc[0]
    tuned.update(title=f"Tuned for {name}", plan={"model": "someone/mybert", "task": name})
    assert name in write_report(tuned, anonymous=True).read_text(encoding="utf-8")  # a name that was given
    tuned.update(plan={"model": "someone/mybert", "task": name, "task_named_by": f"{SECRET}/{name}.tsv"})
    assert name in write_report(tuned).read_text(encoding="utf-8")
    page = write_report(tuned, anonymous=True).read_text(encoding="utf-8")
    for word in ("jane", "secret", name):
        assert word not in page, word
    assert "Tuned for task" in page


def test_a_tuned_model_of_a_hub_keeps_its_name(tuned):
    tuned.update(plan={"model": "someone/mybert", "task": "topics"})
    assert "mybert" in write_report(tuned, anonymous=True).read_text(encoding="utf-8")


def test_an_anonymous_run_holds_no_path(run):
    anonymize(run)
    told = (run.path / "run.json").read_text(encoding="utf-8")
    page = write_report(run).read_text(encoding="utf-8")
    for word in ("jane", "secret", "wiki", "mybert"):
        assert word not in told, word
        assert word not in page, word


def test_tables_hold_no_command(tmp_path, monkeypatch):
    import sys

    from synthetic_run import make_analysis

    monkeypatch.setattr(sys, "argv", ["infoflow", "analyze", f"{SECRET}/mybert"])
    run = make_analysis(tmp_path, tables=("head_entropy",))
    assert b"jane" not in (tmp_path / "tables" / "head_entropy.parquet").read_bytes()
    assert "command" not in run.tables.stored("head_entropy").provenance


@pytest.mark.parametrize(
    ("evil", "shown"),
    [*((text, f"'{text}") for text in ("=1+1", "+cmd|' /C calc'!A0", "-2+3", "@SUM(A1)", "\t=1")),
     ("\r=1", "'\n=1"), ("a\r=1", "a\n=1"), ("a\r\n=1", "a\n=1")],
)  # fmt: skip
def test_cells_of_downloads_are_no_formulas(evil, shown, tmp_path):
    """Of a table of one's own, whose names and texts are anybody's."""
    from synthetic_run import _write

    run = RunFolder(tmp_path)
    keys = {"objective": "masked-lm", "seed": 0, "trained": True}
    rows = [("m", evil, "-1", -1.5, "a"), ("bert", "bert", "+1", 2.0, "b")]
    names = ("model", "from", "offset", "value", evil)
    _write(run, "mine", "", [keys | dict(zip(names, row, strict=True)) for row in rows])
    run.update(kind="analyze", own=["mine"], models=[{"name": name, **keys} for name in ("m", "bert")])
    page = write_report(run).read_text(encoding="utf-8")
    (text,) = re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]*)"', page)
    file = io.StringIO(base64.b64decode(text).decode(), newline="")
    made = pd.read_csv(file, dtype={"offset": str})
    assert made["from"].tolist() == [shown, "bert"]
    assert made["offset"].tolist() == ["-1", "+1"]
    assert made["value"].tolist() == [-1.5, 2.0]
    assert shown in made
    assert evil not in made


def test_a_reports_downloads_are_harmless(tmp_path):
    from synthetic_run import make_analysis

    page = write_report(make_analysis(tmp_path, name="=cmd()", tables=("mutual_information",))).read_text("utf-8")
    texts = [base64.b64decode(text) for text in re.findall(r'href="data:text/csv;charset=utf-8;base64,([^"]*)"', page)]
    texts += [gzip.decompress(base64.b64decode(t)) for t in re.findall(r'"data:application/gzip;base64,([^"]*)"', page)]
    cells = [cell for text in texts for line in text.decode().splitlines() for cell in line.split(",")]
    assert "'=cmd()" in cells
    assert not [cell for cell in cells if cell.startswith("=")]
