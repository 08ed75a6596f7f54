"""`infoflow worker`."""

import sys
from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ._options import limited
from ._session import Session, working


def worker(
    run: Path,
    /,
    *,
    jobs: Annotated[int | None, Parameter(converter=limited("Threads"))] = None,
    gpus: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    patience: str = "10m",
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Run stages of a study on this machine, for `infoflow study --cluster listen`.

    Both machines must see the run folder under the same path. After Ctrl-C or SIGTERM, running stages resume elsewhere.

    Args:
        run: The study's run folder.
        jobs: Concurrent stages. Default: one per GPU, else as many as fit with --threads each.
        gpus: Numbers or UUIDs of GPUs to use. May be repeated. Default: those of CUDA_VISIBLE_DEVICES.
        patience: Maximum time to wait for a study: 90s, 10m, 2h.
    """
    with working(session):
        from infoflow.engine import worker as work

        code = work(run, jobs, session.threads or 1, list(gpus) or None, patience)
    if code:
        sys.exit(code)
