"""A change of one number is found in its table, and in the figure that shows it."""

import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from infoflow.results import RunFolder
from infoflow.studies import AnalyzeOptions, analyze

RUN = Path(__file__).parents[1] / "experiments" / "campaigns" / "same-numbers" / "run.py"


def run(*command: object) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, RUN, *map(str, command)], capture_output=True, text=True)


@pytest.mark.slow
def test_a_changed_number_is_found_where_it_stands(matched_models, tmp_path):
    model = matched_models["masked-lm"]
    model.module.save_pretrained(tmp_path / "model")
    model.tokenizer.save_pretrained(tmp_path / "model")
    options = AnalyzeOptions(corpus="grammar:200", sentences=40, only=("head_confidence", "head_entropy"))
    analyze(tmp_path / "model", options, tmp_path / "old" / "runs" / "masked")
    shutil.copytree(tmp_path / "old", tmp_path / "new")
    changed = RunFolder(tmp_path / "new" / "runs" / "masked").tables
    stored = changed.stored("head_confidence")
    values = stored.frame["value"].to_numpy(copy=True)
    values[0] += 0.25
    changed.write(pd.DataFrame(stored.frame).assign(value=values), stored.schema, stored.provenance)

    for name in ("old", "new"):
        done = run("record", tmp_path / f"{name}-record", "--runs", tmp_path / name, "--only", "masked")
        assert not done.returncode, done.stderr
    told = run("compare", tmp_path / "old-record", tmp_path / "new-record")
    assert told.returncode == 1
    assert (
        f"table head_confidence: values DIFFERENT value\n    value: 1 of {len(values)} rows, at most 0.25"
        in told.stdout
    )
    assert "page drawing" in told.stdout or "page markup" in told.stdout
    assert "table head_entropy" not in told.stdout
