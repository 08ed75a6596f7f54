"""A measure that fails: exit code and summary say so, the other tables are there, the same command tries again."""

import json

import pytest

from infoflow.heads import PositionalScores
from infoflow.representations import MutualInformation
from infoflow.results import RunFolder

pytestmark = pytest.mark.slow


def _fail(*_) -> None:
    raise IndexError("list index out of range")


def test_a_study_goes_on_and_is_not_done(infoflow, plan, no_drawing, tmp_path, monkeypatch):
    command = ("study", plan, "--processes=1", "--out", tmp_path / "run", "--log=plain")
    with monkeypatch.context() as broken:
        broken.setattr(MutualInformation, "result", _fail)
        answer = infoflow(*command)
    assert answer.code == 3
    assert "warning: mutual_information of causal-lm/seed-0 failed and is left out" in answer.err
    assert "The same warnings hold for 3 more stages." in answer.err
    assert "mutual_information of causal-lm/seed-0: this is a fault of infoflow" in answer.err
    assert "IndexError: list index out of range" in answer.err
    run = RunFolder(tmp_path / "run")
    assert "mutual_information" not in run.tables
    assert {"head_confidence", "model_distance", "task_scores"} <= set(run.tables)
    told = json.loads((run.path / "run.json").read_text())["failures"]
    assert {failure["table"] for failure in told} == {"mutual_information"}
    assert all("_fail" in failure["traceback"] for failure in told)

    again = infoflow(*command)
    assert again.code == 0
    assert "mutual_information" in RunFolder(run.path).tables
    assert json.loads((run.path / "run.json").read_text())["failures"] == []


def test_heads_shows_what_there_is(infoflow, masked_lm, small, monkeypatch):
    monkeypatch.setattr(PositionalScores, "result", _fail)
    answer = infoflow("heads", masked_lm, "--no-control", *small)
    assert answer.code == 3
    assert "Confidence (mean of the largest weight)" in answer.out
    assert "Previous token" not in answer.out
    assert "head_positional of" in answer.err


def test_the_only_table_is_the_commands_own_error(infoflow, masked_lm, small, monkeypatch):
    from infoflow.foundation import UserError

    def refuse(*_) -> None:
        raise UserError("offsets must not be 0.")

    monkeypatch.setattr(PositionalScores, "result", refuse)
    answer = infoflow("analyze", masked_lm, "--only=head_positional", "--no-control", *small)
    assert answer.code == 2
    assert answer.err.splitlines()[-2:] == ["measure masked-lm/seed-0: offsets must not be 0.", "1 stage was not run."]
