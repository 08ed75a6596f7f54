"""The bar of a study: stages that tell no share of the whole count by the clock."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from infoflow.engine import Ending, Event
from infoflow.foundation import SilentDisplay, UserError, use_display
from infoflow.results import RunFolder
from infoflow.studies import StudyPlan, graph, run_stages

PLAN = {"objectives": ["masked-lm"], "corpus": {"name": "grammar:60"}, "model": {"width": 16, "layers": 1, "heads": 2}}


class Bar(SilentDisplay):
    def __init__(self) -> None:
        self.done = 0.0

    @contextmanager
    def progress(self, *_: object) -> Iterator["Bar"]:
        yield self

    def advance(self, amount: float = 1, **_: float | str) -> None:
        self.done += amount


class Told:
    """An engine that does nothing but tell of one stage: seconds that pass, then an event."""

    def __init__(self, kind: str, clock: list[float], bar: Bar, *events: tuple[float, Event]) -> None:
        self.kind, self.clock, self.bar, self.events = kind, clock, bar, events
        self.shares: list[float] = []

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, stages, on_event) -> dict[str, Ending]:
        stage = next(one for one in stages if one.kind == self.kind)
        for seconds, event in self.events:
            self.clock[0] += seconds * stage.cost
            on_event(Event(kind=event.kind, stage=stage.key, fields=event.fields, ending=event.ending))
            self.shares.append(self.bar.done / stage.cost)
        return {}


START = Event(kind="start", stage="")


def progress(label: str, done: float) -> Event:
    return Event(kind="progress", stage="", fields={"label": label, "done": done, "total": 10.0})


@pytest.fixture
def shares(tmp_path, monkeypatch):
    """Which share of a stage's cost the bar shows after each event; times are in shares of the cost too."""

    def told(kind: str, *events: tuple[float, Event]) -> list[float]:
        clock, bar = [100.0], Bar()
        monkeypatch.setattr("infoflow.studies._graph.time", SimpleNamespace(monotonic=lambda: clock[0]))
        engine = Told(kind, clock, bar, *events)
        with use_display(bar), suppress(UserError):
            run_stages(graph(StudyPlan.from_json(PLAN), tmp_path), RunFolder(tmp_path), engine)
        return engine.shares

    return told


def test_a_long_measurement_moves_the_bar_while_it_runs(shares) -> None:
    found = shares("measure", (0, START), (0.25, progress("Measuring", 1.0)), (0.25, progress("Ablating", 9.0)))
    assert found == pytest.approx([0, 0.25, 0.5])  # another part of the same stage, of another size


def test_a_stage_that_takes_longer_than_its_cost_is_not_counted_twice(shares) -> None:
    end = Event(kind="end", stage="", ending=Ending(state="done"))
    assert shares("measure", (0, START), (12, progress("Measuring", 1.0)), (0, end)) == pytest.approx([0, 0.95, 1])


def test_training_counts_by_its_own_share(shares) -> None:
    assert shares("train", (0, START), (0.75, progress("train masked-lm", 2.5))) == pytest.approx([0, 0.25])
