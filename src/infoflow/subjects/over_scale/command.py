"""`infoflow over-scale`."""

from pathlib import Path

from infoflow.cli._session import Log, Out, reporting, run_folder, show_path
from infoflow.cli._study import show_scorecard


def over_scale(*runs: Path, out: Out = None, log: Log = None) -> None:
    """Judge the published findings on several studies, and show how each effect changes with tokens and width.

    Args:
        runs: Folders that `infoflow study` wrote: two or more of different scale, or one with checkpoints. The
            folder of an earlier comparison stands for the studies that it compared.
        out: Folder for tables and report. Default: runs/over-scale.
    """
    with reporting(log):
        from .stages import over_scale as compare

        compared = compare(runs, run_folder(out, "over-scale"))
        show_scorecard(compared.findings, untestable=False)
        show_path("Tables", compared.path / "tables")
        show_path("Report", compared.folder.report)
