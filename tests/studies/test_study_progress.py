"""The bar of a study: stages that tell no share of the whole count by the clock."""

from types import SimpleNamespace

import pytest

from infoflow.engine import Ending, Event
from infoflow.results import RunFolder
from infoflow.studies import _run_stages


class Bar:
    def __init__(self) -> None:
        self.done = 0.0

    def advance(self, amount: float = 1, **_: float | str) -> None:
        self.done += amount


@pytest.fixture
def now(monkeypatch) -> list[float]:
    seconds = [100.0]
    monkeypatch.setattr(_run_stages, "time", SimpleNamespace(monotonic=lambda: seconds[0]))
    return seconds


def told(kind: str, cost: float) -> tuple[_run_stages._Told, Bar]:
    bar = Bar()
    tell = _run_stages._Told([], RunFolder("unused"), bar)
    tell._stages = {"a": SimpleNamespace(key="a", kind=kind, cost=cost, label="a")}  # type: ignore[dict-item]
    return tell, bar


def progress(label: str, done: float) -> Event:
    return Event(kind="progress", stage="a", fields={"label": label, "done": done, "total": 10.0})


def test_a_long_measurement_moves_the_bar_while_it_runs(now: list[float]) -> None:
    tell, bar = told("measure", cost=40.0)
    tell(Event(kind="start", stage="a"))
    now[0] += 10
    tell(progress("Measuring", 1.0))
    assert bar.done == pytest.approx(10.0)
    now[0] += 10
    tell(progress("Ablating", 9.0))  # another part of the same stage, of another size
    assert bar.done == pytest.approx(20.0)


def test_a_stage_that_takes_longer_than_its_cost_is_not_counted_twice(now: list[float]) -> None:
    tell, bar = told("measure", cost=40.0)
    tell(Event(kind="start", stage="a"))
    now[0] += 500
    tell(progress("Measuring", 1.0))
    assert bar.done == pytest.approx(38.0)
    tell(Event(kind="end", stage="a", ending=Ending(state="done")))
    assert bar.done == pytest.approx(40.0)


def test_training_counts_by_its_own_share(now: list[float]) -> None:
    tell, bar = told("train", cost=40.0)
    tell(Event(kind="start", stage="a"))
    now[0] += 30
    tell(progress("train masked-lm", 2.5))
    assert bar.done == pytest.approx(10.0)
