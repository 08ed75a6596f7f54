"""The report's figures as files for papers and slides."""

import re
from collections.abc import Iterable
from dataclasses import replace
from os import PathLike
from pathlib import Path

from infoflow.foundation import UserError, atomic_write
from infoflow.results import RunFolder

from ._drawing import PIXELS_PER_INCH, paper_svg, pdf_of, png_of
from ._figure import ReportFigure
from ._model_tables import ModelTables
from ._story import tell
from .heads._map import heat_panels, map_sentence
from .heads._statistics import HEAD_TABLES, head_statistics

_DOTS_PER_INCH = 300
_NARROWEST = 1.5  # inches per panel: in narrower panels, axis labels overlap


def write_figures(
    run: RunFolder | PathLike[str] | str,
    folder: Path | str,
    formats: Iterable[str] = ("svg", "png", "pdf"),
    width_inches: float = 6.8,
    columns: int | None = None,
) -> list[Path]:
    """Write every figure of the run's report as `<folder>/<figure>.<format>`, on white, `width_inches` wide.

    3.3 inches is one column of a two-column paper, 6.8 its full width. PNG has 300 dots per inch, PDF embeds its fonts,
    and a figure with a choice of statistics or measures is written once per choice. `columns` panels stand side by
    side, or fewer if the figure has fewer; by default as many as fit: one in 3.3 inches, two or three in 6.8.

    Raises:
        UserError: No run, an unknown format, a width outside 2 to 20 inches, or too many columns for the width.
    """
    formats = tuple(formats)
    unknown = sorted(set(formats) - {"svg", "png", "pdf"})
    if unknown or not formats:
        got = ", ".join(unknown) or "none"
        raise UserError(f"formats must be among svg, png, pdf. Got {got}. Write for example --formats svg,pdf.")
    check_size(width_inches, columns)
    run, paths = RunFolder.of(run), []
    tables = ModelTables.of(run)
    for figure in (drawn for stated in tell(run).figures for drawn in variants(stated, tables).values()):
        svg = paper_svg(figure, width_inches, columns)
        for kind in formats:
            path = Path(folder) / f"{figure.id.replace(' ', '-')}.{kind}"
            with atomic_write(path) as temporary:
                temporary.write_bytes(encoded(svg, kind))
            paths.append(path)
    return paths


def check_size(inches: float, columns: int | None) -> None:
    """Reject unreasonable widths, and numbers of columns that would make panels unreadable."""
    if not 2 <= inches <= 20:
        raise UserError(f"The width must lie in 2..20 inches. Got {inches}. Papers use 3.3 (one column) or 6.8 (page).")
    most = max(int(inches / _NARROWEST), 1)
    if columns is not None and not 1 <= columns <= most:
        raise UserError(
            f"columns must lie in 1..{most} at a width of {inches:g} inches, so that a panel has {_NARROWEST} inches. "
            f"Got {columns}. Write fewer columns or a larger width."
        )


def variants(figure: ReportFigure, tables: ModelTables) -> dict[str, ReportFigure]:
    """The figure for each statistic or measure that it offers, by name; a figure without a choice has the key "".

    Empty for figures without charts, such as tables.
    """
    if "metrics" in figure.payload:
        metrics = figure.payload["metrics"]
        return {one.id: replace(figure, id=f"{figure.id}-{one.id}", panels=one.panels) for one in metrics}
    if figure.id != "head-map":
        return {"": figure} if figure.panels else {}
    rows, statistics = head_statistics(tables.some(HEAD_TABLES))
    return {
        one.id: replace(
            figure,
            id=f"head-map-{one.id}",
            answer=[map_sentence(rows, one, tables.models)],
            panels=heat_panels(rows, one, tables.models),
        )
        for one in statistics
    }


def encoded(svg: str, kind: str) -> bytes:
    """A figure for print (see `paper_svg`) as the bytes of a file of that kind."""
    if kind == "svg":
        return svg.encode()
    if kind == "pdf":
        return pdf_of(_in_points(svg))
    white = svg.replace(">", '><rect width="100%" height="100%" fill="#ffffff"/>', 1)
    return png_of(white, _DOTS_PER_INCH / PIXELS_PER_INCH)


def _in_points(svg: str) -> str:
    """The SVG with its size in points: the converter reads pixels as points, which would be a third too large."""
    return re.sub(
        r'(width|height)="([\d.]+)in"', lambda match: f'{match[1]}="{float(match[2]) * 72:.2f}"', svg, count=2
    )
