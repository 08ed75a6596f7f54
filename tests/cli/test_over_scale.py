"""`infoflow over-scale`: what it shows, and one message for each mistake."""

import re
from pathlib import Path

import pytest
from support.invented_scales import write_study
from support.undrawn import undrawn

MISTAKES = {
    "no run": ([], "need at least two runs, or one that kept checkpoints. Got 0"),
    "one run": (["a"], "need at least two runs, or one that kept checkpoints. Got 1"),
    "a run twice": (["a", "./a"], "Each run counts once"),
    "no such folder": (["a", "nothing"], "is not a run folder"),
    "a folder without tables": (["a", "empty"], "is not a run folder"),
    "out is a run of another kind": (["a", "b", "--out=a"], "holds a run of another kind"),
    "empty name": (["a", ""], "must not be empty"),
}


@pytest.fixture
def folder(tmp_path: Path, monkeypatch) -> Path:
    monkeypatch.chdir(tmp_path)
    for name, fall, tokens in (("a", 0.6, 3e5), ("b", 0.9, 1e6), ("c", 1.2, 3e6)):
        write_study(tmp_path / name, fall, tokens)
    (tmp_path / "empty").mkdir()
    return tmp_path


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_message_and_exit_code_2(infoflow, folder: Path, mistake: str) -> None:
    arguments, expected = MISTAKES[mistake]
    answer = infoflow("over-scale", *arguments)
    assert answer.code == 2
    assert expected in answer.err
    assert len(answer.err.splitlines()) <= 3
    assert not answer.out


def test_the_trend_stands_beside_the_verdict(infoflow, folder: Path) -> None:
    with undrawn():
        answer = infoflow("over-scale", "a", "b", "c", "--out=all")
    assert answer.code == 0
    caption, head, *_ = answer.out.splitlines()
    assert caption.endswith("95% intervals")
    assert "trend" in head
    (row,) = re.findall(r"^representations:V-1 .*(?:\n .*)*", answer.out, re.MULTILINE)
    assert "holds" in row
    assert "published" in row
    assert "Report: all" in answer.out
