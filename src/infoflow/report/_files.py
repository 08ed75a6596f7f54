"""The report's figures as files for papers and slides."""

import re
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from infoflow.foundation import UserError, atomic_write
from infoflow.results import RunFolder

from ._drawing import PIXELS_PER_INCH, paper_svg
from ._engine import pdf_of, png_of
from ._figure import Figure
from ._model_tables import ModelTables
from ._story import tell
from .heads._map import heat_panels
from .heads._statistics import HEAD_TABLES, head_statistics

_DOTS_PER_INCH = 300


def write_figures(
    run: RunFolder, folder: Path | str, formats: Iterable[str] = ("svg", "png", "pdf"), width_inches: float = 6.8
) -> list[Path]:
    """Write every figure of the run's report as `<folder>/<figure>.<format>`, on white, `width_inches` wide.

    3.3 inches is one column of a two-column paper, 6.8 its whole width. PNG has 300 dots per inch, PDF embeds its
    fonts, and a figure with a choice of statistics or measures is written once for each.

    Raises:
        UserError: An unknown format, or a width outside 2 to 20 inches.
    """
    formats = tuple(formats)
    unknown = sorted(set(formats) - {"svg", "png", "pdf"})
    if unknown or not formats:
        got = ", ".join(unknown) or "none"
        raise UserError(f"formats must be among svg, png, pdf. Got {got}. Write for example --formats svg,pdf.")
    if not 2 <= width_inches <= 20:
        raise UserError(
            f"The width must lie in 2..20 inches. Got {width_inches}. Papers use 3.3 (one column) or 6.8 (page)."
        )
    paths = []
    for figure in _drawn_figures(run):
        svg = paper_svg(figure, width_inches)
        for kind in formats:
            path = Path(folder) / f"{figure.id.replace(' ', '-')}.{kind}"
            with atomic_write(path) as temporary:
                temporary.write_bytes(_encode(svg, kind))
            paths.append(path)
    return paths


def _drawn_figures(run: RunFolder) -> list[Figure]:
    """The story's figures; one that shows a statistic or measure at a time becomes one figure for each."""
    tables = ModelTables.of(run)
    figures = []
    for figure in tell(run).figures:
        if "metrics" in figure.payload:
            metrics = figure.payload["metrics"]
            figures += [replace(figure, id=f"{figure.id}-{metric.id}", panels=metric.panels) for metric in metrics]
            continue
        if figure.id != "head-map":
            figures += [figure] if figure.panels else []  # some are tables
            continue
        rows, statistics = head_statistics(tables.some(HEAD_TABLES))
        for statistic in statistics:
            panels = heat_panels(rows, statistic, tables.cast)
            figures.append(replace(figure, id=f"head-map-{statistic.id}", panels=panels))
    return figures


def _encode(svg: str, kind: str) -> bytes:
    if kind == "svg":
        return svg.encode()
    if kind == "pdf":
        return pdf_of(_in_points(svg))
    white = svg.replace(">", '><rect width="100%" height="100%" fill="#ffffff"/>', 1)
    return png_of(white, _DOTS_PER_INCH / PIXELS_PER_INCH)


def _in_points(svg: str) -> str:
    """The size in points: the converter takes one pixel for one point, which would make the page a third too large."""
    return re.sub(
        r'(width|height)="([\d.]+)in"', lambda match: f'{match[1]}="{float(match[2]) * 72:.2f}"', svg, count=2
    )
