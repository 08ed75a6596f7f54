"""`infoflow analyze`."""

from pathlib import Path
from typing import Annotated

from cyclopts import Parameter

from ._measuring import Measuring, parse_shard, run_name, show_run
from ._session import Out, Session, run_folder, working


def analyze(
    model: str,
    /,
    *,
    only: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    measures: Path | None = None,
    shard: str | None = None,
    measuring: Measuring = Measuring(),  # noqa: B008 (frozen)
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Measure how information flows through any Hugging Face model; tables and a report.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        only: Tables to compute, separated by commas. Default: all.
        measures: A Python file with your own measures, computed with the others and drawn in the report. Its code is
            executed: name only a file you trust.
        shard: i/n: read only part i (0 to n-1) of the corpus and save its sums for `infoflow merge`.
    """
    with working(session):
        from infoflow.studies import analyze as run_analysis

        part = parse_shard(shard) if shard else None
        folder = run_folder(out, run_name("analyze", model, shard=part))
        show_run(run_analysis([model], measuring.options(only), folder, part, measures), part)
