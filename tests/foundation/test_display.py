"""What the displays write."""

import io
import json
import time
import warnings

import pytest

from infoflow.foundation import JsonDisplay, PlainDisplay, clock, current_display, make_display, use_display


def test_silent_by_default_but_warnings_are_heard(capsys):
    display = current_display()
    display.note("hello")
    with display.progress("Training", 3) as progress:
        progress.advance()
    assert capsys.readouterr() == ("", "")
    with pytest.warns(UserWarning, match="too few"):
        display.warn("too few sentences")


def test_display_is_used_inside_the_block_only():
    before = current_display()
    display = make_display("plain")

    def break_inside():
        with use_display(display):
            assert current_display() is display
            raise ValueError("x")

    with pytest.raises(ValueError, match="x"):
        break_inside()
    assert current_display() is before


def test_plain_lines():
    file = io.StringIO()
    display = PlainDisplay(file)
    display.note("Reading the corpus.")
    display.warn("3 sentences were cut.")
    with display.progress("Training", total=50, unit="tokens") as progress:
        progress.advance(25)
        progress.advance(25, loss=1.5)
    lines = file.getvalue().splitlines()
    assert lines[:2] == ["Reading the corpus.", "warning: 3 sentences were cut."]
    assert len(lines) == 3  # less than ten seconds: one line, when the job ends
    assert lines[2].startswith("Training: 100 %, ")
    assert " tokens/s, loss 1.5, 0:00" in lines[2]


def test_plain_progress_now_and_then(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    file = io.StringIO()
    with PlainDisplay(file).progress("Training", total=100, unit="updates") as progress:
        for _ in range(100):
            now[0] += 0.5
            progress.advance(1)
    lines = file.getvalue().splitlines()
    assert len(lines) == 50 // 10 + 1
    assert lines[0] == "Training: 20 %, 2 updates/s, 0:40 left, 0:10"
    assert lines[-1] == "Training: 100 %, 2 updates/s, 0:50"


def test_what_has_not_begun_is_not_estimated(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    plain, events = io.StringIO(), io.StringIO()
    forms = ((PlainDisplay, plain, ""), (JsonDisplay, events, "s"))
    for form, file, unit in forms:
        with form(file).progress("Study", total=100, unit=unit) as progress:
            for amount in (0, 0.1, 9.9):
                now[0] += 10
                progress.advance(amount, now="train x")
    assert plain.getvalue().splitlines() == [
        "Study: 0 %, estimating, now train x, 0:10",
        "Study: 0 %, estimating, now train x, 0:20",
        "Study: 10 %, 4:30 left, now train x, 0:30",  # without a unit no pace is told
        "Study: 100 %, 0:30",
    ]
    assert [json.loads(line)["seconds_left"] for line in events.getvalue().splitlines()] == [None, None, 270, 0]


def test_json_events_are_one_object_a_line():
    file = io.StringIO()
    display = JsonDisplay(file)
    display.note("two\nlines")
    display.warn('a "quoted" word')
    with display.progress("Measuring", total=2, unit="sentences") as progress:
        progress.advance(2, loss=0.5)
    note, warning, progress = [json.loads(line) for line in file.getvalue().splitlines()]
    assert note == {"event": "note", "text": "two\nlines"}
    assert warning == {"event": "warning", "text": 'a "quoted" word'}
    assert {
        "event": "progress",
        "label": "Measuring",
        "done": 2,
        "total": 2,
        "unit": "sentences",
    }.items() <= progress.items()
    assert progress["loss"] == 0.5
    assert progress["seconds_left"] == 0


@pytest.mark.parametrize("loss", [float("nan"), float("inf")])
def test_json_stays_json_when_a_loss_diverges(loss):
    def refuse(constant):
        raise AssertionError(f"{constant} is not JSON")

    file = io.StringIO()
    with JsonDisplay(file).progress("Training", total=1) as progress:
        progress.advance(1, loss=loss)
    assert json.loads(file.getvalue(), parse_constant=refuse)["loss"] is None


def test_a_job_that_breaks_does_not_claim_to_have_ended():
    file = io.StringIO()
    with pytest.raises(KeyboardInterrupt), PlainDisplay(file).progress("Training", total=10):
        raise KeyboardInterrupt
    assert file.getvalue() == ""


def test_a_job_that_ends_ends_at_all_of_it():
    lines = []
    for form in (PlainDisplay, JsonDisplay):
        file = io.StringIO()
        with form(file).progress("Training", total=100, unit="tokens") as progress:
            progress.advance(93)  # sentences were a little shorter than those that the total was estimated from
        lines.append(file.getvalue())
    assert lines[0].startswith("Training: 100 %, ")
    event = json.loads(lines[1])
    assert event["done"] == event["total"] == 93
    assert event["seconds_left"] == 0


@pytest.mark.parametrize("kind", ["plain", "rich", "json"])
def test_nothing_that_is_shown_steers_the_terminal(kind, capsys):
    display = make_display(kind)
    display.note("tuned for a\u202eb\x1b[31m")
    display.warn("a\u202eb\x1b[31m")
    with display.progress("a\u202eb\x1b[31m", total=1) as progress:
        progress.advance(1, now="a\u202eb\x1b[31m")
    shown = capsys.readouterr().err
    assert "tuned for a" in shown
    assert "\u202e" not in shown
    assert "\x1b[31m" not in shown


def test_rich_shows_text_as_it_is(capsys):
    with warnings.catch_warnings():
        display = make_display("rich")
        display.note("a [bold] word")
        display.warn("[/x] odd")
    out, err = capsys.readouterr()
    assert out == ""  # standard output belongs to results
    assert "a [bold] word" in err
    assert "warning: [/x] odd" in err


def test_a_bar_shows_the_job_and_its_part_and_disappears(monkeypatch, capsys):
    from infoflow.foundation import make_display

    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.setenv("COLUMNS", "100")
    display = make_display("rich")
    display.seconds_between = 0.0
    with display.progress("Pruning [x]", total=2) as whole:
        for _ in range(2):
            with display.progress("Scoring", total=10) as part:
                part.advance(5)
                time.sleep(0.3)  # a bar is drawn ten times a second
            whole.advance(1)
    shown = capsys.readouterr().err
    assert "Pruning [x]" in shown
    assert "Scoring 50 %" in shown
    assert shown.endswith("\x1b[1A\x1b[2K")  # the line of the bar is erased


def test_a_job_inside_a_job_is_a_part_of_its_next_unit(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    file = io.StringIO()
    display = PlainDisplay(file)
    with display.progress("Pruning", total=4) as whole:
        for _ in range(4):
            with display.progress("Ranking", total=2) as outer, display.progress("Reading", total=10):
                now[0] += 10
                outer.advance(1)
            whole.advance(1)
    assert file.getvalue().splitlines() == [
        "Pruning: 12 %, 1:10 left, Reading 0 %, 0:10",
        "Pruning: 38 %, 0:33 left, Reading 0 %, 0:20",
        "Pruning: 62 %, 0:18 left, Reading 0 %, 0:30",
        "Pruning: 88 %, 0:06 left, Reading 0 %, 0:40",
        "Pruning: 100 %, 0:40",
    ]


def test_several_parts_of_one_unit_do_not_exceed_it(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    file = io.StringIO()
    display = JsonDisplay(file)
    with display.progress("Pruning", total=2) as whole:
        for _ in range(3):
            with display.progress("Ranking", total=1) as part:
                now[0] += 10
                part.advance(1)
        whole.advance(1)
        now[0] += 10
        whole.advance(1)
    assert [json.loads(line)["done"] for line in file.getvalue().splitlines()] == [1, 1, 1, 2, 2]


def test_a_part_that_breaks_leaves_the_job_running():
    file = io.StringIO()
    display = PlainDisplay(file)
    with display.progress("Measuring", total=2) as whole:
        with pytest.raises(ValueError, match="x"), display.progress("Reading", total=10):
            raise ValueError("x")
        whole.advance(2)
    assert file.getvalue().startswith("Measuring: 100 %")


def _course(monkeypatch, total, steps):
    """Seconds left after each step (seconds, units), as JSON reports them."""
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    file = io.StringIO()
    display = JsonDisplay(file)
    display.seconds_between = 0.0
    with display.progress("Work", total=total) as progress:
        for seconds, units in steps:
            now[0] += seconds
            progress.advance(units)
    return [json.loads(line)["seconds_left"] for line in file.getvalue().splitlines()]


def test_time_left_follows_the_pace_of_the_last_minutes(monkeypatch):
    slow, fast = [(1.0, 0.1)] * 600, [(1.0, 1.0)] * 400
    left = _course(monkeypatch, 1000, slow + fast)
    assert left[599] == pytest.approx(9400, rel=0.01)
    true = 1000 - 60 - 240  # seconds, four minutes later, at one unit per second
    assert left[839] == pytest.approx(true, rel=0.05)


def test_a_job_with_few_long_steps_has_a_pace(monkeypatch):
    left = _course(monkeypatch, 10, [(600.0, 1)] * 9)
    assert left[:9] == pytest.approx([600.0 * (9 - step) for step in range(9)])


def test_the_caller_may_know_how_long_the_rest_takes(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("time.monotonic", lambda: now[0])
    file = io.StringIO()
    with PlainDisplay(file).progress("Study", total=10) as progress:
        for left in (90.0, 240.0, 30.0):  # the second is longer than was thought
            now[0] += 10
            progress.advance(1, left=left)
    assert file.getvalue().splitlines() == [
        "Study: 10 %, 1:30 left, 0:10",
        "Study: 10 %, 4:00 left, 0:20",  # never falls
        "Study: 50 %, 0:30 left, 0:30",
        "Study: 100 %, 0:30",
    ]


@pytest.mark.parametrize("form", [PlainDisplay, JsonDisplay])
def test_a_warning_is_shown_once_whatever_the_seed(form):
    file = io.StringIO()
    display = form(file)
    display.remembers = True  # as those of commands do
    for seed in range(3):
        display.warn(f"masked-lm/seed-{seed} has too few tokens.")
        display.warn(f"masked-lm, seed {seed}, has too few words.")
        display.warn(f"checkpoint-{seed} is damaged.")
    assert file.getvalue().count("too few tokens") == 1
    assert file.getvalue().count("too few words") == 1
    assert file.getvalue().count("is damaged") == 3


def test_pipes_get_plain_lines(monkeypatch):
    import sys

    monkeypatch.setattr(sys, "stderr", io.StringIO())
    assert isinstance(make_display(), PlainDisplay)


@pytest.mark.parametrize(
    ("seconds", "text"), [(0, "0:00"), (59.6, "1:00"), (3599, "59:59"), (3600, "1:00:00"), (1e12, "99:59:59")]
)
def test_clock(seconds, text):
    assert clock(seconds) == text
