"""What the states of Dask's futures mean for the stages."""

from types import SimpleNamespace

import pytest
from toy_stages import Toy

DONE = {
    "event": "done",
    "facts": {"x": 1},
    "usage": {
        "seconds": 1.0,
        "cpu_seconds": 1.0,
        "peak_memory": 1,
        "host": "h",
        "processor": "p",
        "device": "cpu",
        "threads": 1,
    },
}


def _following(folder: str, **states: tuple[str, BaseException | None]):
    from infoflow.engine._where import Following

    futures = {
        key: SimpleNamespace(status=status, exception=lambda error=error: error)
        for key, (status, error) in states.items()
    }
    stages = [Toy(folder=folder, key=key, needs=("a",) if key == "b" else ()) for key in states]
    return Following(stages=stages, futures=futures, on_event=lambda event: None)


def test_a_result_whose_worker_died_is_no_lost_scheduler(folder):
    run = _following(folder, a=("lost", None))
    assert run.ended() == []
    run.hear("a", DONE)
    run.note(run.ended())
    assert run.endings["a"].facts == {"x": 1}


def test_last_words_may_come_late(folder):
    run = _following(folder, a=("finished", None))
    assert run.ended() == []
    run.hear("a", DONE)
    run.note(run.ended())
    assert run.endings["a"].state == "done"
    assert run.is_over()


def test_whose_fault_it_was(folder):
    from infoflow.engine._supervisor import StageFailed

    error = StageFailed("a", "reason", "text", "a.log")
    run = _following(folder, b=("error", error), a=("error", error))
    run.note(run.ended())
    assert (run.endings["a"].state, run.endings["a"].text, run.endings["a"].log) == ("failed", "text", "a.log")
    assert (run.endings["b"].state, run.endings["b"].because) == ("skipped", "a")


def test_a_worker_that_died_too_often_is_told_by_name(folder):
    run = _following(folder, a=("error", MemoryError("worker died")))
    run.note(run.ended())
    assert run.endings["a"].text == "MemoryError: worker died"


def test_a_lost_scheduler_is_told(folder):
    from infoflow.foundation import UserError

    run = _following(folder, a=("cancelled", None))
    with pytest.raises(UserError, match="Lost the cluster's scheduler"):
        run.note(run.ended())
