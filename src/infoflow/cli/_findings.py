"""`infoflow findings`."""

from pathlib import Path

from ._scorecard import show_scorecard
from ._session import Log, reporting
from ._show import show_path


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
