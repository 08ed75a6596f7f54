"""A change of one number is found in its table, and in the figure that shows it."""

import shutil
from pathlib import Path

import pandas as pd
import pytest
from support.forked import run_here

from infoflow.results import RunFolder
from infoflow.studies import AnalyzeOptions, analyze

RUN = Path(__file__).parents[1] / "experiments" / "campaigns" / "same-numbers" / "run.py"


def run(*command: object) -> object:
    """The exit code of the script."""
    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(RUN.parent)
        with pytest.raises(SystemExit) as ended:
            run_here(RUN, *map(str, command))
    return ended.value.code


@pytest.mark.slow
def test_a_changed_number_is_found_where_it_stands(matched_models, tmp_path, capsys):
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
        assert run("record", tmp_path / f"{name}-record", "--runs", tmp_path / name, "--only", "masked") == 0
    capsys.readouterr()
    assert run("compare", tmp_path / "old-record", tmp_path / "new-record") == 1
    told = capsys.readouterr().out
    assert f"table head_confidence: values DIFFERENT value\n    value: 1 of {len(values)} rows, at most 0.25" in told
    assert "page drawing" in told or "page markup" in told
    assert "table head_entropy" not in told
