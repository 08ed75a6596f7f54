"""`infoflow findings` and `infoflow report`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ._options import limited, names_in
from ._session import Log, estimate, reporting, show, show_path, show_table

if TYPE_CHECKING:
    import pandas as pd


_UNTESTABLE = "not testable here"
_VERDICTS = ("holds", "fails", "undetermined", _UNTESTABLE)


def show_scorecard(findings: "pd.DataFrame", *, untestable: bool) -> None:
    """Print one line per claim, those that could not be tested only if asked, and how many verdicts there are.

    Verdicts on further architectures and checkpoints are in the table and in the report: here they are counted.
    """
    findings, elsewhere = _first_models(findings)
    trend = ["trend"] if "trend" in findings else []
    read = ["source_read"] if "source_read" in findings else []  # not in tables of earlier versions
    rows = [
        [
            row["id"],
            row["verdict"],
            estimate(row["effect"], row["low"], row["high"]),
            row["unit"] or "",
            row["covers"] or "",
            *(row[name] or "" for name in (*trend, *read)),
            row["claim"],
        ]
        for row in findings.to_dict("records")
        if untestable or row["verdict"] != _UNTESTABLE
    ]
    if rows:
        show_table(
            [
                "finding",
                "verdict",
                "effect [95% interval]",
                "unit",
                "interval covers",
                *trend,
                *(["source read"] * len(read)),
                "claim",
            ],
            rows,
        )
    if untestable:
        _show_reasons(findings[findings["verdict"] == _UNTESTABLE])
    counts = findings["verdict"].value_counts()
    show(", ".join(f"{counts.get(verdict, 0)} {verdict}" for verdict in _VERDICTS))
    if elsewhere:
        show(f"{elsewhere} verdicts on other architectures and checkpoints: see the table findings.")


def _first_models(findings: "pd.DataFrame") -> "tuple[pd.DataFrame, int]":
    """The rows of the first architecture at the end of training, and how many others there are."""
    if "architecture" not in findings.columns or findings.empty:  # of an earlier version
        return findings, 0
    first = findings.iloc[0]
    own = (findings["architecture"] == first["architecture"]) & (findings["update"] == first["update"])
    if "model" in findings.columns:  # of a claim on models that were given, the first
        own = (own | (findings["model"] != "")) & ~findings["id"].duplicated()
    return findings[own], int((~own).sum())


def _show_reasons(findings: "pd.DataFrame") -> None:
    """Why claims could not be tested, and what would make them testable: one line per reason."""
    if findings.empty:
        return
    reasons = findings["reason"].str.partition(". ")[0].str.removesuffix(".")
    show("\nNot testable here:")
    for reason, rows in findings.groupby(reasons, sort=False):
        show(f"  {reason}.\n    {', '.join(rows['id'])}")
    show()


def findings(run: Path, /, *, claims: Path | None = None, log: Log = None) -> None:
    """Check the published findings on a run's tables again, and update its report.

    Args:
        run: A folder that `infoflow study` or `infoflow analyze` wrote.
        claims: A Python file with your own claims to judge as well. Its code is executed: name only a file you trust.
    """
    with reporting(log):
        from infoflow.studies import check_findings

        checked = check_findings(run, claims or ())
        show_scorecard(checked.findings, untestable=True)
        show_path("Report", checked.path / "report.html")


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
