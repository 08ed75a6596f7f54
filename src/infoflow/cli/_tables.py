"""Results on standard output: text, and tables that fit in 100 columns."""

import sys
import textwrap
from collections.abc import Sequence
from pathlib import Path

_WIDTH = 100
_TEXT = 12  # minimum width of a column of text next to cells that stay whole
_INTERVAL = " [95%]"  # ends the name of a column of `estimate`s
_NUMBERS = frozenset("0123456789.,+-−–±%×:[]() e")  # cells of only these characters stay whole
_NAME = 24  # longest name that stays whole


def is_first_process() -> bool:
    """Whether this process shows results: under `torchrun`, only one process does."""
    import os

    if not os.environ.get("RANK"):
        return True  # no launcher, so the import is not needed
    from infoflow.foundation import launched

    return launched()[0] == 0


def show(text: str = "") -> None:
    """Print one line or more of a result."""
    from infoflow.foundation import visible

    if is_first_process():
        print(visible(text))


def show_text(text: str, indent: str = "") -> None:
    """Print a text in lines of at most 100 columns."""
    show(textwrap.fill(text, _limit(), initial_indent=indent, subsequent_indent=indent, break_on_hyphens=False))


def show_path(label: str, path: Path) -> None:
    show(f"{label}: {path}")


def estimate(value: float, low: float, high: float, digits: int = 3, sign: str = "") -> str:
    """A number with its 95% interval: `0.512 ± 0.031`, or `0.998 [.981, .999]` if it is not symmetric."""
    if value != value:
        return "–"
    shown = f"{value:{sign}.{digits}f}"
    if low != low or high != high:
        return shown
    below, above = value - low, high - value
    if abs(below - above) < 10**-digits:  # symmetric to rounding
        return f"{shown} ± {max(below, above):.{digits}f}"
    return f"{shown} [{_short(low, digits)}, {_short(high, digits)}]"


def _short(value: float, digits: int) -> str:
    text = f"{value:.{digits}f}"
    return text.replace("0.", ".", 1) if abs(float(text)) < 1 and digits else text


_NO_VALUE = ("", "–")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table in at most 100 columns: values equal in all rows are printed once above it, and long texts wrap.

    Columns without values are left out; for a table without rows only the title is printed.

    The name of a column of `estimate`s ends in ` [95%]`, which is printed once above the table.
    """
    from infoflow.foundation import visible

    if not is_first_process():
        return
    if not rows:
        if title:
            show_text(f"{title}: none.")
        return
    cells = [[visible(cell) for cell in row] for row in rows]
    fixed = [index for index, column in enumerate(columns) if not column.endswith(_INTERVAL)]
    same = [place for place in fixed if len(cells) > 1 and len({row[place] for row in cells}) == 1]
    kept = [index for index in range(len(columns)) if index not in same] or [len(columns) - 1]
    said = [
        _plain(f"{columns[place]} {cells[0][place]}")
        for place in same
        if place not in kept and cells[0][place] not in _NO_VALUE
    ]
    if any(column.endswith(_INTERVAL) for column in columns):
        said.append("95% intervals")
    for line in filter(None, (title, ", ".join(said))):
        show_text(line)
    print(_drawn([_plain(columns[place]) for place in kept], [[row[place] for place in kept] for row in cells]))


def _plain(text: str) -> str:
    return text.replace(_INTERVAL, "").strip()


def _limit() -> int:
    import shutil

    own = shutil.get_terminal_size((_WIDTH, 24)).columns if sys.stdout.isatty() else _WIDTH
    return max(min(own, _WIDTH), 40)


def _stays_whole(cell: str) -> bool:
    return _NUMBERS.issuperset(cell) or (" " not in cell and len(cell) <= _NAME)


def _drawn(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The table, with a line below its head on a terminal."""
    import io

    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    terminal = sys.stdout.isatty()
    table = Table(
        box=SIMPLE_HEAD if terminal else None, show_edge=False, pad_edge=False, padding=(0, 2 - terminal, 0, 0)
    )
    stays = [all(_stays_whole(row[index]) for row in rows) for index in range(len(columns))]
    widths = [max((len(row[index]) for row in rows), default=0) + 2 for index in range(len(columns))]
    fit = sum(width if whole else _TEXT for width, whole in zip(widths, stays, strict=True)) <= _limit()
    for column, whole in zip(columns, stays, strict=True):
        table.add_column(Text(column), no_wrap=whole and fit, overflow="fold")
    for row in rows:
        table.add_row(*map(Text, row))
    console = Console(file=None if terminal else io.StringIO(), highlight=False, width=_limit())
    with console.capture() as captured:
        console.print(table)
    return "\n".join(line.rstrip() for line in captured.get().strip("\n").split("\n"))
