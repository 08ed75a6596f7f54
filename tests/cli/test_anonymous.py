"""An anonymous run holds no name of a local file: in no setting, table, log or page."""

import shutil
from pathlib import Path

import pandas as pd
import pytest

from infoflow.foundation import file_settings
from infoflow.studies import AnalyzeOptions, StudyPlan, study

MARKER = "zebra"
_SETTINGS = [*file_settings(StudyPlan), *file_settings(AnalyzeOptions, "options.")]


def _holding(folder: Path) -> list[str]:
    """Files of a run folder in whose name, bytes or cells the marker stands."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += pd.read_parquet(path).to_csv().encode()
        if MARKER in name or MARKER.encode() in content.lower():
            found.append(name)
    return found


def _plan_with(value: str) -> dict:
    """A plan in which every setting that may name a file has this value."""
    plan: dict = {}
    for name in _SETTINGS:
        *tables, setting = name.split(".")
        inner = plan
        for table in tables:
            at = inner.setdefault(table.removesuffix("[]"), [{}] if table.endswith("[]") else {})
            inner = at[0] if isinstance(at, list) else at
        inner[setting] = value
    return plan


def test_settings_that_name_files_are_found_by_their_metadata():
    assert {"corpus.name", "probing.corpus", "domain.corpus", "retrieval.test", "tune[].train"} <= set(_SETTINGS)
    assert {"options.tokenizer", "options.corpus", "options.own"} <= set(_SETTINGS)


@pytest.mark.parametrize("files", [{"files": _SETTINGS}, {}], ids=["listed in run.json", "as earlier versions wrote"])
def test_no_setting_is_left(files, tmp_path):
    from infoflow.report import anonymize
    from infoflow.results import RunFolder

    value = f"data of {MARKER}/{MARKER}.tsv"
    run = RunFolder(tmp_path / "run")
    warnings = [f"{value} has long lines.", f"'{MARKER}.tsv': cut"]
    run.update(kind="study", title=f"On {value}", plan=_plan_with(value), warnings=warnings, **files)
    anonymize(run)
    assert _holding(run.path) == []


@pytest.fixture
def texts(tmp_path, monkeypatch):
    """Files with the marker in their names, in the working directory, by relative paths."""
    from infoflow.corpus import load_corpus

    monkeypatch.chdir(tmp_path)
    folder = Path(f"my-{MARKER}")
    folder.mkdir()
    lines = [sentence.text for sentence in load_corpus("grammar:1200")]
    for name, part in (("train", lines[:600]), ("test", lines[600:900]), ("dev", lines[900:])):
        (folder / f"{MARKER}-{name}.txt").write_text("".join(f"{line}\n" for line in part))
        rows = "".join(f"{len(line) % 2}\t{line}\n" for line in part[:60])
        (folder / f"{MARKER}-{name}.tsv").write_text(rows)
    return folder


@pytest.mark.slow
def test_an_anonymous_study_holds_no_name(texts, tmp_path):
    text = str(texts / MARKER)
    plan = StudyPlan.from_json(
        {
            "objectives": ["masked-lm"],
            "corpus": {
                "name": f"{text}-train.txt",
                "validation_name": f"{text}-dev.txt",
                "test_name": f"{text}-test.txt",
                "vocabulary": 150,
            },
            "model": {"width": 16, "layers": 1, "heads": 2, "feedforward": 32},
            "training": {"updates": 2, "batch_tokens": 256, "device": "cpu"},
            "analysis": {"tables": ["task_scores", "head_confidence"]},
            "probing": {"tasks": ["length"], "corpus": f"{text}-test.txt"},
            "domain": {"corpus": f"{text}-dev.txt", "updates": 1, "scratch_updates": 1},
            "tune": [
                {
                    "name": "mine",
                    "train": f"{text}-train.tsv",
                    "test": f"{text}-test.tsv",
                    "epochs": 1,
                    "seeds": [0],
                    "inside": False,
                    "methods": ["full"],
                    "controls": [],
                }
            ],
        }
    )
    study(plan, "run", num_processes=1, anonymous=True)
    assert _holding(tmp_path / "run") == []
    assert study(plan, "run", num_processes=1, anonymous=True).tables  # nothing but the names is gone


@pytest.mark.slow
def test_anonymous_commands_write_no_name(texts, checkpoint_series, infoflow, tmp_path):
    series = Path(shutil.copytree(checkpoint_series, texts / f"{MARKER}-series"))
    model = Path(shutil.copytree(series / "checkpoint-50", texts / f"{MARKER}-bert"))
    text = str(texts / MARKER)
    facts = texts / f"{MARKER}-facts.tsv"
    facts.write_text("relation\tsubject\tobject\ttemplate\nr\tcat\tthe\t[X] sees [Y]\nr\tdog\ta\t[X] sees [Y]\n")
    shared = ["--corpus", f"{text}-test.txt", "--sentences", "20", "--anonymous", "--tokenizer", str(model)]
    once = ["--only", "head_confidence"]
    commands = {
        "analyze": [str(model), *shared, *once],
        "compare": [str(model), str(series / "checkpoint-38"), *shared],
        "over-training": [str(series), *shared, *once],
        "fill-in": [str(model), "--facts", str(facts), "--anonymous"],
        "tune": [str(model), "--train", f"{text}-train.tsv", "--anonymous", "--epochs", "1", "--seeds", "0"],
    }
    for name, arguments in commands.items():
        answer = infoflow(name, *arguments, "--out", f"run-{name}")
        assert answer.code == 0, answer.err
        assert _holding(tmp_path / f"run-{name}") == [], name
