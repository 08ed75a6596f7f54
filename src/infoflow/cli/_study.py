"""`infoflow study`."""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from ._failures import require_all
from ._options import limited
from ._scorecard import show_scorecard
from ._session import COMMON, Device, Out, Session, Settings, run_folder, working
from ._settings import with_settings
from ._show import estimate, show, show_path, show_table

if TYPE_CHECKING:
    import pandas as pd


def study(
    plan: str = "quick",
    /,
    *,
    processes: Annotated[int | None, Parameter(converter=limited("Processes"))] = None,
    settings: Settings = (),
    seed: Annotated[
        tuple[int, ...],
        Parameter(negative=(), show_default=False, group=COMMON, converter=limited("Seed")),
    ] = (),
    device: Device = None,
    cluster: str | None = None,
    insecure: Annotated[bool, Parameter(negative=())] = False,
    anonymous: Annotated[bool, Parameter(negative=(), group=COMMON)] = False,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Train matched models that differ only in their objective, measure them, check published findings and report.

    Args:
        plan: A TOML file, or a preset: quick (one seed), laptop (three seeds), paper (Transformer-base, for a GPU),
            replicate (loss change allocation over all sentences), zoo (every objective), architectures (four families
            of blocks), adaptation (models tuned for tasks), retrieval (readers that can look up facts).
        processes: Concurrent stages on this machine. Default: one per core on a CPU, one on a GPU, none with --cluster.
        cluster: "listen" lets other machines join (infoflow worker), listen:HOST:PORT at that address; tls://HOST:PORT
            or a scheduler file runs the study on a Dask cluster.
        insecure: Allow an unencrypted scheduler on another machine (tcp://HOST:PORT). Anyone who reaches that
            port can run code as you: only for private networks.
        seed: Train this seed instead of the plan's. May be repeated.
        anonymous: Omit paths and names of local files from all output files.
    """
    with working(session):
        from infoflow.studies import StudyPlan
        from infoflow.studies import study as run_study

        changes = [f"training.device={device}"] if device else []
        if seed:
            changes.append(f"seeds={list(seed)}")
        chosen = with_settings(StudyPlan.load(plan), [*settings, *changes])
        run = run_study(chosen, run_folder(out, Path(plan).stem), processes, anonymous, cluster, insecure)
        scores = run.tables["task_scores"]
        rows = [
            [row["model"], row["metric"], estimate(row["value"], row["low"], row["high"]), f"{row['baseline']:.3f}"]
            for row in scores[scores["trained"] & (scores["split"] == "test")].to_dict("records")
        ]
        show_table(["model", "test score", "value [95% interval]", "without context"], rows)
        show()
        for told in _not_learned(scores):
            show(told)
        show_scorecard(run.findings, untestable=False)
        show(f"All claims, including those that cannot be tested here: infoflow findings {shlex.quote(str(run.path))}")
        show()
        show_path("Report", run.path / "report.html")
        require_all([run])


def _not_learned(scores: "pd.DataFrame") -> list[str]:
    """A warning, and a line for each score that falls short of what its objective asks for."""
    from infoflow.objectives import OBJECTIVES

    lines = []
    for row in scores[scores["trained"] & (scores["split"] == "test")].to_dict("records"):
        for metric in OBJECTIVES[row["objective"]].metrics if row["objective"] in OBJECTIVES else ():
            if metric.name == row["metric"] and not metric.learned(row["low"], row["high"], row["baseline"]):
                lines.append(f"  {row['model']}: {metric.label} {row['value']:.3g}, {metric.needed(row['baseline'])}")
    warning = "These models did not learn, so their layers and heads say little about the objective:"
    return [warning, *lines, ""] if lines else []
