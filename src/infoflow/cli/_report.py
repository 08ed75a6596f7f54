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
    """Write a run's report again, or its figures as files for papers and slides.

    Args:
        run: A run folder.
        figures: Write the figures into this folder instead.
        formats: Of the figures, separated by commas. Default: svg,png,pdf.
        width: Width of the figures in inches: 3.3 is one column of a two-column paper, 6.8 its page.
        columns: Panels of a figure that stand side by side. Default: as many as there is room for.
        so_far: Of a study that is going on, or was stopped: from what is done, into its folder so-far.
        anonymous: Leave the names of local files out of the report, and the command; folders never stand in it.
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
            raise UserError("--anonymous is about the report: figures name no files. Leave out one of the two.")
        if figures is None:
            if formats:
                raise UserError("--formats are those of figures: say where to with --figures FOLDER.")
            if columns is not None:
                raise UserError("--columns are those of figures: say where to with --figures FOLDER.")
            show_path("Report", write_report(folder, anonymous))
            return
        kinds = list(names_in("--formats", formats)) or ["svg", "png", "pdf"]
        for path in write_figures(folder, figures, kinds, width, columns):  # type: ignore[arg-type]
            show(str(path))
