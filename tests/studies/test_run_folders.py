"""The folder of a run: locked where there are locks, and left only where something was done."""

import errno
import fcntl
from collections.abc import Callable
from pathlib import Path

import pytest

from infoflow.foundation import UserError, make_display, use_display
from infoflow.results import RunFolder
from infoflow.studies import StudyPlan, study, train_model


@pytest.fixture
def refused(tiny_plan, monkeypatch) -> Callable[..., None]:
    """A study in a folder that ends with an error as soon as it has noted its plan there."""

    def begin(folder: Path, error: Exception, done: str = "") -> None:
        note = RunFolder.update

        def fail(run: RunFolder, **facts) -> None:
            note(run, **facts)
            if done:
                (run.path / done).touch()
            raise error

        with monkeypatch.context() as patch:
            patch.setattr(RunFolder, "update", fail)
            with pytest.raises(type(error)):
                study(tiny_plan, folder, num_processes=1)

    return begin


def test_a_file_system_without_locks_is_told_of(refused, tmp_path, monkeypatch, capsys) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with use_display(make_display("plain")):
        refused(tmp_path / "run", UserError("refused"))
    assert "has no locks: make sure that no other infoflow process works there" in capsys.readouterr().err


@pytest.mark.parametrize("error", [UserError("refused"), OSError(errno.ENAMETOOLONG, "File name too long")])
def test_what_was_refused_leaves_no_folder(refused, tmp_path, error: Exception) -> None:
    refused(tmp_path / "runs" / "deep" / "run", error)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs" / "other").mkdir(parents=True)
    refused(tmp_path / "runs" / "run", error)
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["other"]


def test_what_was_done_stays(refused, tmp_path) -> None:
    refused(tmp_path / "run", UserError("refused"), done="result")
    assert (tmp_path / "run" / "result").exists()


def test_a_device_that_is_not_there_is_told_before_anything_is_done(tiny_plan, tmp_path) -> None:
    plan = StudyPlan.from_json({**tiny_plan.to_json(), "training": {"device": "cuda:99"}})
    for begin in (lambda: study(plan, tmp_path / "run"), lambda: train_model("masked-lm", plan, 0, tmp_path / "run")):
        with pytest.raises(UserError, match=r"device must be .* Got cuda:99"):
            begin()
        assert list(tmp_path.iterdir()) == []
