"""`check_findings`: the claims again, on the tables that a run holds."""

from pathlib import Path

from infoflow.report import write_report
from infoflow.results import RunFolder

from ._derived import write_derived
from ._run import Run


def check_findings(path: Path | str) -> Run:
    """Judge every claim on the run's tables (a newer infoflow may know more claims), and rewrite its report.

    Raises:
        UserError: There is no run folder at `path`, or it holds no tables yet.
    """
    run = RunFolder.existing(path)
    run.require_tables()
    write_derived(run)
    write_report(run)
    return Run(run)
