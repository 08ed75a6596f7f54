"""`check_findings`: the claims again, on the tables that a run holds."""

from pathlib import Path

from infoflow.foundation import UserError
from infoflow.report import write_report
from infoflow.results import RunFolder

from ._derived import write_derived
from ._over_scale import OVER_SCALE
from ._run import Run


def check_findings(path: Path | str) -> Run:
    """Judge every claim on the run's tables (a newer infoflow may know more claims), and rewrite its report.

    Raises:
        UserError: There is no run folder at `path`, or it holds no tables yet.
    """
    run = RunFolder.existing(path)
    run.require_tables()
    if run.read().get("kind") == OVER_SCALE:
        raise UserError(f"{path} compares several runs. Judge them again: infoflow over-scale RUN RUN ... --out {path}")
    write_derived(run)
    write_report(run)
    return Run(run)
