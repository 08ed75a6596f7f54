"""`check_findings`: the claims again, on the tables that a run holds."""

from collections.abc import Sequence
from pathlib import Path

from infoflow.findings import OVER_SCALE, Finding, Untested, load_claims
from infoflow.foundation import UserError
from infoflow.report import write_report
from infoflow.results import RunFolder

from ._derived import write_derived
from ._run import Run


def check_findings(path: Path | str, claims: Path | str | Sequence[Finding | Untested] = ()) -> Run:
    """Judge every claim on the run's tables (a newer infoflow may know more claims), and rewrite its report.

    Args:
        path: The run folder.
        claims: Further claims of one's own, judged by the same rules: `Finding`s, or a Python file that holds them.
            **The file's code is executed.** The next check without them leaves them out again.

    Raises:
        UserError: There is no run folder at `path`, it holds no tables yet, or the file holds no claims.
    """
    own = load_claims(claims) if isinstance(claims, Path | str) else list(claims)
    run = RunFolder.existing(path)
    run.require_tables()
    if run.read().get("kind") == OVER_SCALE:
        raise UserError(f"{path} compares several runs. Judge them again: infoflow over-scale RUN RUN ... --out {path}")
    write_derived(run, own)
    write_report(run)
    return Run(run)
