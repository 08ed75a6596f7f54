"""The library's output to the person who waits: a protocol with rich, plain, JSON and silent implementations.

Rooms never print. They call `current_display()`, which the command line, `set_display("plain")` or `with
use_display(make_display("plain"))` chose; the default is bars on a terminal, a line in a notebook, and silence
elsewhere.
"""

import json
import math
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from importlib import import_module
from io import TextIOBase
from typing import IO, Any, Literal, Protocol, runtime_checkable

from ._errors import UserError, visible

DisplayKind = Literal["rich", "plain", "json", "silent"]
"""How progress is shown: bars, lines, one JSON object per line, or not at all."""

_SECONDS_BETWEEN_LINES = 10.0  # keeps the log of a long job readable
_KNOWN = 0.002  # share of a job after which its pace predicts the remaining time


@runtime_checkable  # the tests check argument types at run time
class Progress(Protocol):
    """A running job."""

    def advance(self, amount: float = 1, **fields: float | str) -> None:
        """Report `amount` more as done, with `fields` (loss, tokens_per_second, ...) for display."""
        ...


@runtime_checkable
class Display(Protocol):
    """Where notes, warnings and progress go."""

    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def progress(self, label: str, total: float, unit: str = "") -> AbstractContextManager[Progress]:
        """A job of about `total` units (0: unknown); leaving the block without an error completes it.

        `unit` names the counted items ("tokens", "sentences"); without it the pace is not shown.
        """
        ...


class SilentDisplay:
    """Shows only warnings, which are Python's; the default of scripts and tests."""

    def note(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        import warnings

        warnings.warn(text, stacklevel=2)

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        yield _Counter(total, lambda *_: None)


class PlainDisplay:
    """Lines for logs and pipes: at most one progress line every ten seconds, and one when the job ends."""

    def __init__(self, file: IO[str] | TextIOBase | None = None) -> None:
        self._file = file or sys.stderr

    def note(self, text: str) -> None:
        _tell(visible(text), self._file)

    def warn(self, text: str) -> None:
        _tell(visible(f"warning: {text}"), self._file)

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        def show(counter: "_Counter") -> None:
            share = f"{counter.percent:.0f} %" if total else f"{counter.done:g}"
            parts = [share, *_pace(counter, unit), clock(counter.elapsed)]
            parts[-1:-1] = [f"{name} {value}" for name, value in counter.fields.items()]
            self.note(f"{label}: {', '.join(parts)}")

        with _counted(total, show) as counter:
            yield counter


def _pace(counter: "_Counter", unit: str) -> list[str]:
    """The rate if there is a unit, and the remaining time if there is any."""
    rate = [f"{counter.rate:,.4g} {unit}/s"] if unit else []
    if counter.finished:
        return rate
    if counter.remaining is None:
        return ["estimating"]
    return [*rate, f"{clock(counter.remaining)} left"]


class JsonDisplay:
    """One JSON event per line, for programs."""

    def __init__(self, file: IO[str] | TextIOBase | None = None) -> None:
        self._file = file or sys.stderr

    def note(self, text: str) -> None:
        self._event(event="note", text=text)

    def warn(self, text: str) -> None:
        self._event(event="warning", text=text)

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        def show(counter: "_Counter") -> None:
            self._event(
                event="progress",
                label=label,
                done=counter.done,
                total=counter.total,
                unit=unit,
                rate=round(counter.rate, 3),
                seconds=round(counter.elapsed, 3),
                seconds_left=None if counter.remaining is None else round(counter.remaining, 3),
                **counter.fields,
            )

        with _counted(total, show) as counter:
            yield counter

    def _event(self, **fields: float | str | None) -> None:
        # JSON has no NaN or infinity, which a diverged loss may be
        finite = {k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()}
        _tell(json.dumps(finite, allow_nan=False), self._file)


def _tell(text: str, file: IO[str] | TextIOBase) -> None:
    """Write one line; if it cannot be shown, the work continues without it."""
    try:
        print(text, file=file, flush=True)
    except UnicodeEncodeError:
        print(text.encode("ascii", "backslashreplace").decode("ascii"), file=file, flush=True)
    except (OSError, ValueError):  # the reader has gone, or the file is closed
        return


class RichDisplay:
    """Bars on a terminal."""

    def __init__(self) -> None:
        from rich.console import Console

        self._console = Console(stderr=True, highlight=False)

    def note(self, text: str) -> None:
        self._console.print(visible(text), markup=False)

    def warn(self, text: str) -> None:
        self._console.print(visible(f"warning: {text}"), style="yellow", markup=False)

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeRemainingColumn

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
        )
        with Progress(*columns, TextColumn("{task.fields[details]}", markup=False), console=self._console) as bars:
            task = bars.add_task(visible(label), total=total or None, details="")

            def show(counter: "_Counter") -> None:
                rate = [f"{counter.rate:,.4g} {unit}/s"] if unit and counter.remaining is not None else []
                details = [*rate, *(f"{k} {v}" for k, v in counter.fields.items())]
                bars.update(
                    task, completed=counter.done, total=counter.total or None, details=visible(", ".join(details))
                )

            with _counted(total, show, seconds_between=0.2) as counter:
                yield counter


class LibraryDisplay(RichDisplay):
    """Bars on the terminal of a program that uses the library; warnings are Python's, so that it can catch them."""

    def warn(self, text: str) -> None:
        _SILENT.warn(text)


class NotebookDisplay:
    """A changing line below the cell, without widgets, so that every viewer shows it."""

    def note(self, text: str) -> None:
        _tell(visible(text), sys.stdout)

    def warn(self, text: str) -> None:
        _SILENT.warn(text)

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        from IPython.display import display

        def bundle(counter: "_Counter") -> dict[str, str]:
            share = f"{counter.percent:.0f} %" if total else f"{counter.done:g}"
            pace = [clock(counter.elapsed)] if counter.finished else [*_pace(counter, unit), clock(counter.elapsed)]
            return {"text/plain": f"{visible(label)}: {', '.join([share, *pace])}"}

        handle = display({"text/plain": f"{visible(label)}: …"}, raw=True, display_id=True)
        with _counted(total, lambda counter: handle.update(bundle(counter), raw=True), seconds_between=0.5) as counter:
            yield counter


class _Counter:
    """Counts progress and calls `show` at intervals."""

    def __init__(self, total: float, show, seconds_between: float = _SECONDS_BETWEEN_LINES) -> None:
        self.total, self.done, self.finished = total, 0.0, False
        self.fields: dict[str, float | str] = {}
        self._show, self._between = show, seconds_between
        self._start = self._shown = time.monotonic()

    def advance(self, amount: float = 1, **fields: float | str) -> None:
        self.done += amount
        self.fields.update(fields)
        now = time.monotonic()
        if now - self._shown >= self._between:
            self._shown = now
            self._show(self)

    def finish(self) -> None:
        """Report completion; the total becomes the final count, since it was often an estimate."""
        self.finished = True
        if self.total:
            self.total = self.done
        self._show(self)

    @property
    def percent(self) -> float:
        return 100.0 if self.finished else min(100 * self.done / self.total, 100)

    @property
    def elapsed(self) -> float:
        return time.monotonic() - self._start

    @property
    def rate(self) -> float:
        return self.done / max(self.elapsed, 1e-9)

    @property
    def remaining(self) -> float | None:
        """Remaining seconds; None while almost nothing is known to be done."""
        if self.finished:
            return 0.0
        return max(self.total - self.done, 0) / self.rate if self.done > _KNOWN * self.total else None


@contextmanager
def _counted(total: float, show, seconds_between: float = _SECONDS_BETWEEN_LINES) -> Iterator[_Counter]:
    counter = _Counter(total, show, seconds_between)
    yield counter
    counter.finish()


def clock(seconds: float) -> str:
    """`h:mm:ss`, or `m:ss` below an hour."""
    minutes, rest = divmod(round(min(seconds, 359_999)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_current: ContextVar[Display | None] = ContextVar("display", default=None)
_SILENT = SilentDisplay()
_chosen: list[Display] = []  # set by `set_display`; the last one counts


def current_display() -> Display:
    """The current display: of the command line or `use_display`, else of `set_display`, else the default."""
    if (display := _current.get()) is not None:
        return display
    return _chosen[-1] if _chosen else _fitting()


def set_display(kind: str) -> None:
    """Choose how progress is shown from now on: "silent", "plain" or "rich".

    "plain" prints lines; "rich" shows bars or, in a notebook, one line that is updated.

    Raises:
        UserError: `kind` is unknown.
    """
    if kind not in ("silent", "plain", "rich"):
        raise UserError(f'The display must be "silent", "plain" or "rich". Got {str(kind)[:40]!r}.')
    rich = kind == "rich"
    library = NotebookDisplay() if in_notebook() else LibraryDisplay()
    _chosen[:] = [library if rich else PlainDisplay() if kind == "plain" else SilentDisplay()]


def _fitting() -> Display:
    """Bars if a person is watching: in a notebook or on a terminal."""
    if in_notebook():
        return NotebookDisplay()
    return LibraryDisplay() if sys.stderr is not None and sys.stderr.isatty() else _SILENT


def in_notebook() -> bool:
    """Whether a notebook kernel runs this code."""
    shell = sys.modules.get("IPython")
    current = shell.get_ipython() if shell else None
    return current is not None and hasattr(current, "kernel")


@contextmanager
def use_display(display: Display) -> Iterator[Display]:
    """Use `display` inside the block."""
    token = _current.set(display)
    try:
        yield display
    finally:
        _current.reset(token)


def make_display(kind: DisplayKind | None = None) -> Display:
    """The display of that kind; default: `rich` on a terminal and `plain` elsewhere."""
    if kind is None:
        kind = "rich" if sys.stderr.isatty() else "plain"
    return {"rich": RichDisplay, "plain": PlainDisplay, "json": JsonDisplay, "silent": SilentDisplay}[kind]()


def shown_by(room: str, function: str) -> Callable[[Any], str]:
    """A `_repr_html_` that returns the output of `function` in the package `room` for the object.

    The packages of measures and models must not import the one that produces HTML, so it is looked up by name when a
    notebook displays an object.
    """

    def _repr_html_(self: Any) -> str:
        return getattr(import_module(room), function)(self)

    return _repr_html_
