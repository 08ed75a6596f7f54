"""Notes, warnings and progress for the user: a protocol with rich, plain, JSON and silent implementations.

Packages never print. They call `current_display()`, which the command line, `set_display("plain")` or `with
use_display(make_display("plain"))` chooses. The default is bars on a terminal, a line in a notebook, and silence
elsewhere.
"""

import json
import math
import re
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from contextvars import ContextVar
from functools import cache
from importlib import import_module
from io import TextIOBase
from typing import IO, Any, Literal, Protocol, runtime_checkable

from ._errors import UserError, visible
from ._progress import Job, Progress

DisplayKind = Literal["rich", "plain", "json", "silent"]
"""How progress is shown: as bars, as lines, as one JSON object per line, or not at all."""


@runtime_checkable
class Display(Protocol):
    def note(self, text: str) -> None: ...

    def warn(self, text: str) -> None: ...

    def progress(self, label: str, total: float, unit: str = "") -> AbstractContextManager[Progress]:
        """Begin a job of about `total` units (0: unknown); leaving the block without an error completes it.

        `unit` names the counted items ("tokens", "sentences"); if it is empty, the pace is not shown.
        """
        ...


class SilentDisplay:
    """Shows only warnings, as Python warnings; the default in scripts and tests."""

    def note(self, text: str) -> None:
        pass

    def warn(self, text: str) -> None:
        import warnings

        warnings.warn(text, stacklevel=2)

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        yield Job(label, total, unit)


_MODEL = re.compile(r"([\w.-]+/)?seed[-_ =]?[0-9]+| \(untrained\)")


class FirstTime:
    """Tells whether a text is new; texts that differ only in a seed or the model NAME/seed-N count as the same."""

    def __init__(self) -> None:
        self._seen: set[str] = set()

    def __call__(self, text: str) -> bool:
        key = _MODEL.sub("", text)
        new = key not in self._seen
        self._seen.add(key)
        return new


class AbstractDisplay(ABC):
    """Shows one job at a time, with inner jobs as its parts; each note and warning appears only once during a job."""

    seconds_between = 10.0  # keeps the log of a long job readable
    remembers = False  # whether notes outlast their job; if not, a notebook cell that runs again shows them again

    def __init__(self) -> None:
        self._job: Job | None = None
        self._is_new = FirstTime()

    def note(self, text: str) -> None:
        if self._is_first(text):
            self._say(text)

    def warn(self, text: str) -> None:
        if self._is_first(f"warning: {text}"):
            self._alert(text)

    def _is_first(self, text: str) -> bool:
        return (self._job is None and not self.remembers) or self._is_new(text)

    @abstractmethod
    def _say(self, text: str) -> None:
        """Show a note."""

    @abstractmethod
    def _alert(self, text: str) -> None:
        """Show a warning."""

    @abstractmethod
    def _shown(self, job: Job) -> AbstractContextManager[Callable[[Job], None]]:
        """Yield a function that shows the progress of `job`, for use inside the block."""

    @contextmanager
    def progress(self, label: str, total: float, unit: str = "") -> Iterator[Progress]:
        if self._job is not None:
            with self._job.part(label, total, unit) as part:
                yield part
            return
        job = Job(label, total, unit, seconds_between=self.seconds_between)
        with self._shown(job) as show:
            self._job = job
            job.show = show
            try:
                yield job
            finally:
                self._job = None
                if not self.remembers:
                    self._is_new = FirstTime()
            job.finish()


class PlainDisplay(AbstractDisplay):
    """Lines for logs and pipes: at most one progress line every ten seconds, and one line when the job ends."""

    def __init__(self, file: IO[str] | TextIOBase | None = None) -> None:
        super().__init__()
        self._file = file or sys.stderr

    def _say(self, text: str) -> None:
        _tell(visible(text), self._file)

    def _alert(self, text: str) -> None:
        _tell(visible(f"warning: {text}"), self._file)

    @contextmanager
    def _shown(self, job: Job) -> Iterator[Callable[[Job], None]]:
        yield lambda job: _tell(visible(f"{job.label}: {', '.join([*_parts(job), clock(job.elapsed)])}"), self._file)


def _parts(job: Job) -> list[str]:
    """Progress of a job: share, pace, time left, fields, and the part that is running now."""
    share = f"{job.percent:.0f} %" if job.total else _number(job.done)
    rate = [f"{_number(job.rate)} {job.unit}/s"] if job.unit else []
    fields = [f"{name} {value}" for name, value in job.fields.items() if not (job.finished and name == "now")]
    if job.finished or not job.total:
        return [share, *rate, *fields]
    left = ["estimating"] if job.remaining is None else [*rate, f"{clock(job.remaining)} left"]
    return [share, *left, *fields, *([job.at] if job.at else [])]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 1000 else f"{value:.4g}"


class JsonDisplay(AbstractDisplay):
    def __init__(self, file: IO[str] | TextIOBase | None = None) -> None:
        super().__init__()
        self._file = file or sys.stderr

    def _say(self, text: str) -> None:
        self._event(event="note", text=text)

    def _alert(self, text: str) -> None:
        self._event(event="warning", text=text)

    @contextmanager
    def _shown(self, job: Job) -> Iterator[Callable[[Job], None]]:
        yield lambda job: self._event(event="progress", **job.numbers())

    def _event(self, **fields: float | str | None) -> None:
        # JSON has no NaN or infinity, the values of a diverged loss
        self.tell({k: None if isinstance(v, float) and not math.isfinite(v) else v for k, v in fields.items()})

    def tell(self, event: dict[str, float | str | None]) -> None:
        _tell(json.dumps(event, allow_nan=False), self._file)


def _tell(text: str, file: IO[str] | TextIOBase) -> None:
    """Write one line; if writing fails, the work continues."""
    try:
        print(text, file=file, flush=True)
    except UnicodeEncodeError:
        print(text.encode("ascii", "backslashreplace").decode("ascii"), file=file, flush=True)
    except (OSError, ValueError):  # the reader has gone, or the file is closed
        return


class RichDisplay(AbstractDisplay):
    """A bar on a terminal, which disappears when the job ends."""

    seconds_between = 0.2

    def __init__(self) -> None:
        from rich.console import Console

        super().__init__()
        self._console = Console(stderr=True, highlight=False)

    def _say(self, text: str) -> None:
        self._console.print(visible(text), markup=False)

    def _alert(self, text: str) -> None:
        self._console.print(visible(f"warning: {text}"), style="yellow", markup=False)

    @contextmanager
    def _shown(self, job: Job) -> Iterator[Callable[[Job], None]]:
        from rich.progress import BarColumn, Progress, TextColumn
        from rich.table import Column

        columns = (
            TextColumn("{task.description}", markup=False),
            BarColumn(bar_width=20),
            TextColumn("{task.fields[details]}", markup=False, table_column=Column(no_wrap=True, overflow="ellipsis")),
        )
        with Progress(*columns, console=self._console, transient=True) as bars:
            task = bars.add_task(visible(job.label), total=100 if job.total else None, details="")

            def show(job: Job) -> None:
                bars.update(task, completed=job.percent, details=visible(", ".join(_parts(job))))

            yield show


class LibraryDisplay(RichDisplay):
    """Bars in the terminal for a program that uses the library; its warnings are Python warnings that it can catch."""

    def _alert(self, text: str) -> None:
        _SILENT.warn(text)


class NotebookDisplay(AbstractDisplay):
    """One line below the cell that is updated in place, without widgets, so that every viewer shows it."""

    seconds_between = 0.5

    def _say(self, text: str) -> None:
        _tell(visible(text), sys.stdout)

    def _alert(self, text: str) -> None:
        _SILENT.warn(text)

    @contextmanager
    def _shown(self, job: Job) -> Iterator[Callable[[Job], None]]:
        from IPython.display import display

        def bundle(job: Job) -> dict[str, str]:
            return {"text/plain": visible(f"{job.label}: {', '.join([*_parts(job), clock(job.elapsed)])}")}

        handle = display({"text/plain": f"{visible(job.label)}: …"}, raw=True, display_id=True)
        yield lambda job: handle.update(bundle(job), raw=True)


def clock(seconds: float) -> str:
    """A duration as `h:mm:ss`, or `m:ss` below an hour."""
    minutes, rest = divmod(round(min(seconds, 359_999)), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"


_current: ContextVar[Display | None] = ContextVar("display", default=None)
_SILENT = SilentDisplay()
_chosen: list[Display] = []  # set by `set_display`; the last one counts


def current_display() -> Display:
    """The display chosen by the command line or `use_display`, otherwise by `set_display`, otherwise the default."""
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
    _chosen[:] = [_library() if kind == "rich" else PlainDisplay() if kind == "plain" else _SILENT]


def _fitting() -> Display:
    """A display with progress if a person is watching (a notebook or a terminal), otherwise a silent one."""
    watched = in_notebook() or (sys.stderr is not None and sys.stderr.isatty())
    return _library() if watched else _SILENT


@cache  # jobs that begin inside one another belong to one display
def _library() -> Display:
    return NotebookDisplay() if in_notebook() else LibraryDisplay()


def in_notebook() -> bool:
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
    """Return a display of this kind for a command; the default is `rich` on a terminal and `plain` elsewhere."""
    if kind is None:
        kind = "rich" if sys.stderr.isatty() else "plain"
    if kind == "silent":
        return SilentDisplay()
    display = {"rich": RichDisplay, "plain": PlainDisplay, "json": JsonDisplay}[kind]()
    display.remembers = True
    return display


def shown_by(function: str) -> Callable[[Any], str]:
    """A `_repr_html_` that returns the output of `function` in `infoflow.report` for the object.

    The packages of measures and models must not import the one that produces HTML, so it is looked up by name when a
    notebook displays an object.
    """

    def _repr_html_(self: Any) -> str:
        return getattr(import_module("infoflow.report"), function)(self)

    return _repr_html_
