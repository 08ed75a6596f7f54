"""`infoflow over-training`: what it shows, and one message for each mistake."""

import shutil
from pathlib import Path

import pytest
from support.checkpoint_series import as_snapshots

pytestmark = pytest.mark.slow

MISTAKES = {
    "no source": ([], "At least one series of checkpoints is needed"),
    "empty name": ([""], "must not be empty"),
    "no such folder": (["./nothing"], "No folder at ./nothing"),
    "folder without checkpoints": (["."], "holds no checkpoints"),
    "one checkpoint": (["LM/checkpoint-4"], "For one checkpoint: infoflow analyze"),
    "one of the checkpoints": (["LM@50..60"], "at least two checkpoints"),
    "file": (["LM/checkpoint-4/config.json"], "is a file"),
    "model without revisions": (["gpt2"], "gpt2@all"),
    "hub that cannot be reached": (["nobody/nothing@all"], "The hub cannot be reached"),
    "no revision": (["LM@"], "names no revision after its @"),
    "unknown choice": (["LM@linear:3"], "cannot be read. Write NAME@REVISION"),
    "no checkpoint wanted": (["LM@log:0"], "log:K takes at least 1 checkpoint"),
    "range without checkpoints": (["LM@60..70"], "no checkpoint lies in 60..70"),
    "range backwards": (["LM@9..4"], "from the lower step to the higher"),
    "braces": (["a-step_{20k"], "Braces hold parts of names"),
    "same source twice": (["LM", "LM"], "must be given once"),
    "names without a step": (["ODD"], "No step can be read from these names"),
    "step by hand that is none": (["LM", "--steps=checkpoint-4=soon"], "--steps takes NAME=STEP"),
    "step by hand of nothing": (["LM", "--steps=last=4"], "--steps names no checkpoint"),
    "unknown table": (["LM", "--only=magic"], "--only: unknown measure magic"),
    "unknown table of a check": (["LM", "--check", "--only=magic"], "--only: unknown measure magic"),
    "unknown heavy table of a check": (["LM", "--check", "--heavy=magic"], "--heavy: unknown measure magic"),
    "schedule of no heavy table": (["LM", "--check", "--heavy-steps=often"], "often"),
    "no tokenizer": (["LM", "--check", "--tokenizer=nothing/there"], "--tokenizer must be"),
    "no device": (["LM", "--check", "--device=cuda:99"], "--device must name"),
    "unknown corpus": (["LM", "--corpus=nothing.txt"], "No corpus nothing.txt"),
    "setting of a study": (["LM", "--set=model.width=3"], "only changes settings of the analysis"),
    "unknown heavy table": (["LM", "--heavy=magic"], "--heavy: unknown measure magic"),
    "heavy without a name": (["LM", "--heavy=,"], "--heavy takes names"),
    "unknown schedule": (["LM", "--heavy=head_entropy", "--heavy-steps=often"], "often"),
    "schedule beyond the training": (["LM", "--heavy=head_entropy", "--heavy-steps=0,999"], "999"),
    "no step of a schedule": (["LM", "--heavy=head_entropy", "--heavy-steps=linear:0"], "linear"),
    "unknown reference": (["LM", "--reference=best"], "--reference must be among final, previous, initial. Got best"),
    "reference without a name": (["LM", "--reference=,"], "--reference takes names"),
    "no process": (["LM", "--processes=0"], "--processes must be at least 1"),
    "processes that are no number": (["LM", "--processes=many"], "--processes"),
    "too many processes": (["LM", "--processes=5000"], "--processes"),
    "negative number": (["LM", "--sentences=-1"], "--sentences"),
}


@pytest.fixture
def folder(checkpoint_series: Path, tmp_path: Path) -> Path:
    return Path(shutil.copytree(checkpoint_series, tmp_path / "LM"))


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_get_one_message_and_exit_code_2(infoflow, folder: Path, mistake: str) -> None:
    arguments, expected = MISTAKES[mistake]
    shutil.copytree(folder / "checkpoint-4", folder.parent / "ODD" / "best")
    shutil.copytree(folder / "checkpoint-4", folder.parent / "ODD" / "checkpoint-4")
    corpus = [] if any(argument.startswith("--corpus") for argument in arguments) else ["--corpus=grammar:50"]
    answer = infoflow("over-training", *arguments, *corpus)
    assert answer.code == 2
    assert expected in answer.err
    assert "Traceback" not in answer.err
    assert len([line for line in answer.err.splitlines() if not line.startswith("Loading ")]) <= 3
    assert not answer.out
    assert not (folder.parent / "runs").exists()


def test_tables_checks_and_paths_are_shown(infoflow, folder: Path, other_series: Path, small: list[str]) -> None:
    name = "model.safetensors"
    shutil.copy(other_series / "checkpoint-13" / name, folder / "checkpoint-13" / name)
    answer = infoflow("over-training", "LM", *small, "--tables=head_confidence")
    assert answer.code == 0
    assert "checkpoint-13 lies far from both neighbours" in answer.out
    assert "10 checkpoints, 1 of them excluded." in answer.out
    assert "head_confidence_over_training" in answer.out
    assert "Report: runs/over-training-LM/report.html" in answer.out
    assert "checkpoint-13" in answer.err
    assert (folder.parent / "runs" / "over-training-LM" / "report.html").exists()


def test_a_lost_checkpoint_is_told_by_the_exit_code(infoflow, folder: Path, small: list[str]) -> None:
    home = as_snapshots(folder, folder.parent / "kept", (0, 2, 4, 6))
    shutil.rmtree(home / "step-00000002")
    answer = infoflow("over-training", "kept", *small, "--check")
    assert answer.code == 3
    assert "3 checkpoints, 0 of them excluded." in answer.out
    assert (
        "These checkpoints differ from what was written and are left out:\nstep-00000002: its training saved it"
        in answer.err
    )


def test_checks_fetch_no_corpus(infoflow, folder: Path, monkeypatch) -> None:
    def fetched(*_: object) -> None:
        raise AssertionError("a corpus was fetched")

    monkeypatch.setattr("infoflow.corpus._load.load_tatoeba", fetched)
    answer = infoflow("over-training", "LM", "--check")
    assert answer.code == 0, answer.err
    assert answer.out.splitlines()[0] == "10 checkpoints, 0 of them excluded."


def test_checks_alone(infoflow, folder: Path, small: list[str]) -> None:
    answer = infoflow("over-training", "LM", "--check", *small)
    assert answer.code == 0
    assert answer.out.splitlines()[0] == "10 checkpoints, 0 of them excluded."
