"""An anonymous run holds no name of a local file: in no setting, table, log or page."""

import base64
import re
import shutil
import zlib
from collections.abc import Iterator
from pathlib import Path

import pandas as pd
import pytest

from infoflow.foundation import private_settings
from infoflow.report import anonymize
from infoflow.results import RunFolder
from infoflow.studies import AnalyzeOptions, StudyPlan, study

MARKER = "zebra"
_PRIVATE = {
    kind: [*names, *private_settings(AnalyzeOptions, "options.")[kind]]
    for kind, names in private_settings(StudyPlan).items()
}
_SETTINGS = [name for names in _PRIVATE.values() for name in names]


def _holding(folder: Path) -> list[str]:
    """Files of a run folder in whose name, bytes or cells the marker stands."""
    found = []
    for path in (path for path in folder.rglob("*") if path.is_file()):
        name = str(path.relative_to(folder))
        content = path.read_bytes()
        if path.suffix == ".parquet":
            content += pd.read_parquet(path).to_csv().encode()
        if path.suffix == ".html":
            content += b"".join(_unpacked(content.decode()))
        if MARKER in name or MARKER.encode() in content.lower():
            found.append(name)
    return found


def _unpacked(page: str) -> Iterator[bytes]:
    """What a page unpacks on demand: deflated texts and numbers in base64."""
    for text in re.findall(r"[A-Za-z0-9+/]{24,}={0,2}", page):
        try:
            yield zlib.decompress(base64.b64decode(text), wbits=47)
        except (ValueError, zlib.error):
            continue


def _plan_with(value: str) -> dict:
    """A plan in which every setting that may name a file or hold a word of the user's has this value."""
    plan: dict = {}
    for name in _SETTINGS:
        *tables, setting = name.split(".")
        inner = plan
        for table in tables:
            at = inner.setdefault(table.removesuffix("[]"), [{}] if table.endswith("[]") else {})
            inner = at[0] if isinstance(at, list) else at
        inner[setting.removesuffix("[]")] = [value] if setting.endswith("[]") else value
    return plan


def test_settings_that_name_files_are_found_by_their_metadata():
    assert {"corpus.name", "probing.corpus", "domain.corpus", "retrieval.test", "tune[].train"} <= set(_SETTINGS)
    assert {"options.tokenizer", "options.corpus", "options.own"} <= set(_SETTINGS)
    assert {"corpus.text_column", "domain.document_column", "tune[].columns[]"} <= set(_SETTINGS)
    assert {"options.tags[]", "options.label_column", "options.prefix"} <= set(_SETTINGS)


@pytest.mark.parametrize("listed", [_PRIVATE, {}], ids=["listed in run.json", "as earlier versions wrote"])
def test_no_setting_is_left(listed, tmp_path):
    value = f"data of {MARKER}/{MARKER}.tsv"
    run = RunFolder(tmp_path / "run")
    warnings = [f"{value} has long lines.", f"'{MARKER}.tsv': cut"]
    plan = _plan_with(value)
    if not listed:
        del plan["plugins"], plan["options"]["where"]  # earlier versions had none
    run.update(kind="study", title=f"On {value}", plan=plan, warnings=warnings, **listed)
    anonymize(run)
    assert _holding(run.path) == []


def test_models_and_words_are_left_whatever_their_names(tmp_path):
    run = RunFolder(tmp_path / "run")
    models = [f"/home/{MARKER}/one, {MARKER}", f"/data/v1. {MARKER}/model", "org/public-model"]
    options = {"text_column": MARKER, "tags": [MARKER, MARKER], "prefix": f"{MARKER}:"}
    plan = {"models": models, "options": options, "steps": [f"{MARKER}=5"]}
    run.update(kind="over-training", title="On models", plan=plan, warnings=[f"The column {MARKER} is short."])
    anonymize(run)
    assert _holding(run.path) == []
    assert run.read()["plan"]["models"][-1] == "org/public-model"


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
    once, pairs = ["--only", "head_confidence"], ['--set=analysis.tables=["head_confidence", "model_distance"]']
    commands = {
        "analyze": [str(model), *shared, *once],
        "compare": [str(model), str(series / "checkpoint-38"), *shared, *pairs, "--no-control"],
        "over-training": [str(series), *shared, *once],
        "fill-in": [str(model), "--facts", str(facts), "--anonymous"],
        "tune": [str(model), "--train", f"{text}-train.tsv", "--anonymous", "--epochs", "1", "--seeds", "0"],
    }
    for name, arguments in commands.items():
        answer = infoflow(name, *arguments, "--out", f"run-{name}")
        assert answer.code == 0, answer.err
        assert _holding(tmp_path / f"run-{name}") == [], name
