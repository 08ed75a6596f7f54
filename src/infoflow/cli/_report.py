"""`infoflow report`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ._options import limited, names_in
from ._session import Log, reporting
from ._show import show, show_path


def report(
    run: Path,
    /,
    *,
    figures: Path | None = None,
    formats: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    width: Annotated[float, Parameter(converter=limited("Inches"))] = 6.8,
    columns: Annotated[int | None, Parameter(converter=limited("Count"))] = None,
    so_far: Annotated[bool, Parameter(negative=())] = False,
    anonymous: Annotated[bool, Parameter(negative=())] = False,
    log: Log = None,
) -> None:
    """Rebuild a run's report, or export its figures as files for papers and slides.

    Args:
        run: A run folder.
        figures: Export the figures to this folder instead of rebuilding the report.
        formats: File formats of the figures, separated by commas. Default: svg,png,pdf.
        width: Width of the figures in inches: 3.3 fits one column of a two-column paper, 6.8 both.
        columns: Panels per row of a figure. Default: as many as fit.
        so_far: Report on the finished part of a running or stopped study, in its folder so-far.
        anonymous: Omit the names of local files and the command from the report, which never contains folder names.
    """
    with reporting(log):
        from infoflow.foundation import UserError
        from infoflow.report import write_figures, write_report
        from infoflow.results import RunFolder

        folder = RunFolder.existing(run)
        if so_far:
            from infoflow.studies import Run

            folder = Run(folder).so_far().folder
        folder.require_tables()
        if figures is not None and anonymous:
            raise UserError(
                "--anonymous applies to the report: figures name no files. Leave out --anonymous or --figures."
            )
        if figures is None:
            if formats:
                raise UserError("--formats applies to exported figures: add --figures FOLDER.")
            if columns is not None:
                raise UserError("--columns applies to exported figures: add --figures FOLDER.")
            show_path("Report", write_report(folder, anonymous))
            return
        kinds = list(names_in("--formats", formats)) or ["svg", "png", "pdf"]
        for path in write_figures(folder, figures, kinds, width, columns):  # type: ignore[arg-type]
            show(str(path))
