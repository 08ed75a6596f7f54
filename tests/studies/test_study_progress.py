"""The bar of a study: stages that have ended, the time left, and each warning once."""

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from types import SimpleNamespace

import pytest

from infoflow.engine import Ending, Event
from infoflow.foundation import UserError, use_display
from infoflow.results import RunFolder
from infoflow.studies import StudyPlan, graph, run_stages

PLAN = {"objectives": ["masked-lm"], "corpus": {"name": "grammar:60"}, "model": {"width": 16, "layers": 1, "heads": 2}}
PLAN |= {"seeds": [0, 1, 2]}


class Bar:
    def __init__(self) -> None:
        self.total, self.ended = 0.0, list[float]()
        self.left, self.now, self.said = list[float | None](), list[object](), list[str]()

    def note(self, text: str) -> None:
        self.said.append(text)

    def warn(self, text: str) -> None:
        self.said.append(f"warning: {text}")

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator["Bar"]:
        self.total = total
        yield self

    def advance(self, amount: float = 1, *, left: float | None = None, **fields: float | str) -> None:
        self.ended.append(amount)
        self.left.append(left)
        self.now.append(fields["now"])


class Told:
    """An engine that does nothing but tell of stages: seconds that pass, then the event of a stage by its label."""

    def __init__(self, clock: list[float], *events: tuple[float, str, Event]) -> None:
        self.clock, self.events = clock, events

    def __enter__(self) -> "Told":
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def run(self, stages, on_event) -> dict[str, Ending]:
        keys = {stage.label: stage.key for stage in stages}
        for seconds, label, event in self.events:
            self.clock[0] += seconds
            on_event(
                Event(kind=event.kind, stage=keys[label], text=event.text, fields=event.fields, ending=event.ending)
            )
        return {}


START = Event(kind="start")
END = Event(kind="end", ending=Ending(state="done"))
TRAIN = "train masked-lm/seed-{}".format


def progress(label: str, done: float) -> Event:
    return Event(kind="progress", fields={"label": label, "done": done, "total": 10.0})


def warning(text: str) -> Event:
    return Event(kind="warning", text=text)


@pytest.fixture
def shown(tmp_path, monkeypatch):
    """The bar after these events."""

    def told(*events: tuple[float, str, Event]) -> Bar:
        clock, bar = [100.0], Bar()
        moment = SimpleNamespace(monotonic=lambda: clock[0])
        monkeypatch.setattr("infoflow.studies._graph.time", moment)
        monkeypatch.setattr("infoflow.studies._forecast.time", moment)
        with use_display(bar), suppress(UserError):
            run_stages(graph(StudyPlan.from_json(PLAN), tmp_path), RunFolder(tmp_path), Told(clock, *events))
        return bar

    return told


def test_the_bar_counts_stages_that_have_ended(shown) -> None:
    bar = shown((0, TRAIN(0), START), (10, TRAIN(0), progress("train masked-lm", 5.0)), (10, TRAIN(0), END))
    assert bar.ended == [0, 0, 1]
    assert bar.total > 6, "all stages of the study"
    assert bar.now == ["train masked-lm/seed-0", "train masked-lm/seed-0 50 %", "next stage"]


def test_the_time_left_is_that_of_all_stages_at_the_pace_of_the_first(shown) -> None:
    half = progress("train masked-lm", 5.0)
    bar = shown((0, TRAIN(0), START), (0, TRAIN(1), START), (100, TRAIN(0), half), (2, TRAIN(1), half))
    assert bar.left[0] is None, "nothing is known yet"
    one, two = bar.left[-2:]
    assert one is not None
    assert two is not None
    assert one > 1.5 * 100, "a training takes 200 seconds, and two run at a time"
    assert two == pytest.approx(one, rel=0.1)


def test_a_warning_of_several_seeds_is_shown_once(shown) -> None:
    text = "mutual_information of masked-lm/seed-{} failed and is left out: too few tokens".format
    bar = shown(
        *((0, TRAIN(seed), START) for seed in range(3)),
        *((1, TRAIN(seed), warning(text(seed))) for seed in range(3)),
        (1, TRAIN(0), warning("another one")),
    )
    assert bar.said[-3:] == [
        f"warning: {text(0)}",
        "warning: train masked-lm/seed-0: another one",
        "The same warnings hold for 2 more stages.",
    ]


def test_a_note_about_the_untrained_control_is_not_repeated(shown) -> None:
    note = "lens of masked-lm/seed-0{} is skipped: it has no output head".format
    first, second = (Event(kind="note", text=note(state)) for state in ("", " (untrained)"))
    bar = shown((0, TRAIN(0), START), (0, TRAIN(1), START), (1, TRAIN(0), first), (1, TRAIN(1), second))
    assert bar.said[-2:] == [note(""), "The same notes hold for 1 more stage."]
