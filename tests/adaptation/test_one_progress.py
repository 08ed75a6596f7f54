"""What is told of a job of many steps."""

import io

import pytest

from infoflow.adaptation._one_progress import one_progress
from infoflow.foundation import PlainDisplay, _display, current_display, use_display


def test_steps_show_as_the_job_that_goes_on_and_a_note_is_told_once(monkeypatch):
    now = [0.0]
    monkeypatch.setattr(_display.time, "monotonic", lambda: now[0])
    file = io.StringIO()
    with use_display(PlainDisplay(file)) as shown:
        with current_display().progress("Looking", 2, "measures") as whole, one_progress(whole):
            for name in ("swaps", "pruning"):
                whole.advance(0, at=name)
                for _ in range(12):
                    with current_display().progress("Ablating heads", 10, "sentences") as step:
                        now[0] += 1
                        step.advance(10, loss=1.5)
                    current_display().note("Few words.")
                whole.advance(1)
            current_display().warn("Odd heads.")
            current_display().warn("Odd heads.")
        assert current_display() is shown
    told = file.getvalue().splitlines()
    assert [line for line in told if not line.startswith("Looking")] == ["Few words.", *["warning: Odd heads."] * 2]
    looking = [line for line in told if line.startswith("Looking")]
    assert [line.split(", ")[0] for line in looking] == ["Looking: 0 %", "Looking: 50 %", "Looking: 100 %"]
    assert [line.split("at ")[1].split(",")[0] for line in looking] == ["swaps", "pruning", "pruning"]


def test_the_display_is_the_one_before_after_an_error():
    with use_display(PlainDisplay(io.StringIO())) as shown:
        with pytest.raises(ValueError, match="x"), shown.progress("Looking", 1) as whole, one_progress(whole):
            raise ValueError("x")
        assert current_display() is shown
