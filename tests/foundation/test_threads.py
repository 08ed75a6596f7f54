"""A thread budget is a total: what `--threads` or the environment says, else the cores."""

import pytest

from infoflow.foundation import UserError, available_cores, thread_budget


@pytest.mark.parametrize(("setting", "expected"), [("3", 3), ("2,1", 2), ("", available_cores())])
def test_the_environment_decides(monkeypatch, setting: str, expected: int) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", setting)
    assert thread_budget() == expected


def test_a_setting_that_is_no_number(monkeypatch) -> None:
    monkeypatch.setenv("OMP_NUM_THREADS", "many")
    with pytest.raises(UserError, match="must be a number"):
        thread_budget()
