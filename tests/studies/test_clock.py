"""How long a study took, over all calls that worked on it, failed and killed ones too."""

import time
from pathlib import Path

import pytest
from support.forked import start_script

from infoflow.results import RunFolder
from infoflow.studies import StudyModels, StudyPlan, train_model

CLOCK = ".seconds"


def all_calls(folder: Path) -> float:
    return float((folder / CLOCK).read_text())


def test_time_adds_up_over_calls_failed_ones_too(trained: Path, tiny_plan: StudyPlan, monkeypatch) -> None:
    def interrupted(*_: object, **__: object) -> None:
        time.sleep(0.3)
        raise KeyboardInterrupt

    before = all_calls(trained)
    with monkeypatch.context() as patch:
        patch.setattr(StudyModels, "train_into", interrupted)
        with pytest.raises(KeyboardInterrupt):
            train_model("causal-lm", tiny_plan, out=trained)
    assert before + 0.3 <= all_calls(trained) < before + 100
    (trained / CLOCK).write_text("1000.0")
    train_model("masked-lm", tiny_plan, out=trained)
    assert 1000 < all_calls(trained) < 1100


def test_a_run_without_a_clock_goes_on_from_what_it_says(trained: Path, tiny_plan: StudyPlan) -> None:
    RunFolder(trained).update(seconds=500.0)
    (trained / CLOCK).write_text("what a full disk left")
    train_model("masked-lm", tiny_plan, out=trained)
    assert 500 < all_calls(trained) < 600


SCRIPT = """
import sys, time
from pathlib import Path
from infoflow.results import RunFolder
from infoflow.studies import _run as clock

clock._EVERY = 0.1
with clock.wall_clock(RunFolder(sys.argv[1])):
    time.sleep(600)
"""


def test_a_killed_call_counts(tmp_path) -> None:
    (tmp_path / "script.py").write_text(SCRIPT)
    folder = tmp_path / "run"
    folder.mkdir()
    killed = start_script(tmp_path / "script.py", folder)
    deadline = time.monotonic() + 60
    file = folder / CLOCK
    while not (file.exists() and float(file.read_text()) >= 0.3) and time.monotonic() < deadline:
        time.sleep(0.05)
    killed.kill()
    killed.join()
    assert all_calls(folder) >= 0.3
    assert [path.name for path in folder.iterdir() if not path.name.endswith(".partial")] == [CLOCK]
