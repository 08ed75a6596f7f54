"""A thread budget is a total: what `--threads` or the environment says, else the cores."""

import pytest

from infoflow.foundation import UserError, available_cores, set_threads, thread_budget


@pytest.mark.parametrize(("setting", "expected"), [("3", 3), ("2,1", 2), ("", available_cores())])
def test_the_environment_decides(monkeypatch, setting: str, expected: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert thread_budget() == expected


def test_a_setting_that_is_no_number(monkeypatch) -> None:
    for setting in ("many", "0", "-3", "1.5", "٣", "9" * 5000):
        monkeypatch.setenv("OMP_NUM_THREADS", setting)
        with pytest.raises(UserError, match="must be a whole number above 0"):
            thread_budget()


def test_thousands_of_threads_are_never_started(monkeypatch) -> None:
    """They end the process without a word."""
    monkeypatch.setenv("OMP_NUM_THREADS", "100000")
    assert thread_budget() == max(available_cores(), 16)
    for wanted in (0, -1, 100_000):
        with pytest.raises(UserError, match="--threads must be a whole number from 1 to 1,024"):
            set_threads(wanted)
