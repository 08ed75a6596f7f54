"""Results on standard output: rich tables on a terminal, aligned text in a pipe."""

import sys
from collections.abc import Sequence
from pathlib import Path

from ._session import is_first_process


def show(text: str = "") -> None:
    """Print one line or more of a result."""
    from infoflow.foundation import visible

    if is_first_process():
        print(visible(text))


def show_path(label: str, path: Path) -> None:
    """Print where a result lies."""
    show(f"{label}: {path}")


def show_table(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str = "") -> None:
    """Print a table; long cells wrap on a terminal and stay whole in a pipe."""
    from infoflow.foundation import visible

    if not is_first_process():
        return
    rows = [[visible(cell) for cell in row] for row in rows]
    if sys.stdout.isatty():
        _show_rich(columns, rows, title)
    else:
        print("\n".join([*([title] if title else []), *_aligned([columns, *rows])]))


def _show_rich(columns: Sequence[str], rows: Sequence[Sequence[str]], title: str) -> None:
    from rich.box import SIMPLE_HEAD
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    table = Table(title=Text(title) if title else None, box=SIMPLE_HEAD, title_justify="left", pad_edge=False)
    for column in columns:
        table.add_column(Text(column))
    for row in rows:
        table.add_row(*map(Text, row))
    Console(highlight=False).print(table)


def _aligned(rows: Sequence[Sequence[str]]) -> list[str]:
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return ["  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in rows]


def estimate(value: float, low: float, high: float, digits: int = 3) -> str:
    """A number with its 95% interval."""
    if value != value:
        return "–"
    if low != low or high != high:
        return f"{value:.{digits}f}"
    return f"{value:.{digits}f} [{low:.{digits}f}, {high:.{digits}f}]"
