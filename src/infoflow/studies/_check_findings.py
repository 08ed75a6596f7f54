"""`check_findings`: judge the claims again on the tables of a run."""

from collections.abc import Sequence
from pathlib import Path

from infoflow.findings import OVER_SCALE, Finding, load_claims
from infoflow.foundation import UserError
from infoflow.report import write_report
from infoflow.results import RunFolder

from ._run import Run
from .stages._check import write_derived


def check_findings(path: Path | str, claims: Path | str | Sequence[Finding] = ()) -> Run:
    """Judge every claim on the run's tables and rewrite its report; a newer infoflow may know more claims.

    Args:
        path: The run folder.
        claims: Your own additional claims, judged by the same rules: `Finding`s, or a Python file that holds them.
            **The file's code is executed.** The next check without them drops them.

    Raises:
        UserError: `path` is not a run folder or has no tables yet, or the file holds no claims.
    """
    own = load_claims(claims) if isinstance(claims, Path | str) else list(claims)
    run = RunFolder.existing(path)
    run.require_tables()
    if run.read().get("kind") == OVER_SCALE:
        raise UserError(
            f"{path} is a comparison of several runs. Check their findings again: infoflow over-scale RUN RUN "
            f"... --out {path}"
        )
    write_derived(run, own)
    write_report(run)
    return Run(run)
