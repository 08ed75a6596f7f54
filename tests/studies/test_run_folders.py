"""The folder of a run: locked where there are locks, and left only where something was done."""

import errno
import fcntl

import pytest

from infoflow.foundation import UserError, make_display, use_display
from infoflow.results import RunFolder
from infoflow.studies import StudyPlan, study, train_model
from infoflow.studies._study import only_one


def test_a_file_system_without_locks_is_told_of(tmp_path, monkeypatch, capsys) -> None:
    def refuse(*_: object) -> None:
        raise OSError(errno.ENOLCK, "No locks available")

    monkeypatch.setattr(fcntl, "flock", refuse)
    with use_display(make_display("plain")), only_one(RunFolder(tmp_path / "run")):
        (tmp_path / "run" / "result").touch()
    assert "has no locks: take care that no other infoflow works there" in capsys.readouterr().err


@pytest.mark.parametrize("error", [UserError("refused"), OSError(errno.ENAMETOOLONG, "File name too long")])
def test_what_was_refused_leaves_no_folder(tmp_path, error: Exception) -> None:
    def refused(run: RunFolder) -> None:
        with only_one(run):
            run.update(kind="analyze")
            raise error

    with pytest.raises(type(error)):
        refused(RunFolder(tmp_path / "runs" / "deep" / "run"))
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "runs" / "other").mkdir(parents=True)
    with pytest.raises(type(error)):
        refused(RunFolder(tmp_path / "runs" / "run"))
    assert [path.name for path in (tmp_path / "runs").iterdir()] == ["other"]


def test_what_was_done_stays(tmp_path) -> None:
    def refused(run: RunFolder) -> None:
        with only_one(run):
            (run.path / "result").touch()
            raise UserError("refused")

    with pytest.raises(UserError):
        refused(RunFolder(tmp_path / "runs" / "run"))
    assert (tmp_path / "runs" / "run" / "result").exists()


def test_a_device_that_is_not_there_is_told_before_anything_is_done(tiny_plan, tmp_path) -> None:
    plan = StudyPlan.from_json({**tiny_plan.to_json(), "training": {"device": "cuda:99"}})
    for begin in (lambda: study(plan, tmp_path / "run"), lambda: train_model("masked-lm", plan, 0, tmp_path / "run")):
        with pytest.raises(UserError, match=r"device must be .* Got cuda:99"):
            begin()
        assert list(tmp_path.iterdir()) == []
