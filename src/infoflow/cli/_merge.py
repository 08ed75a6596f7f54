"""`infoflow merge`."""

from pathlib import Path

from ._measuring import show_run
from ._session import Out, Session, run_folder, working


def merge(
    *runs: Path,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Merge the shards of an analysis or of an over-training run: the result equals that of a single process.

    Args:
        runs: All n folders that `infoflow analyze --shard i/n` or `infoflow over-training --shard i/n` wrote.
    """
    with working(session):
        from infoflow.foundation import UserError

        if not runs:
            raise UserError("merge needs the folders that `infoflow analyze --shard i/n` wrote. Got none.")

        from infoflow._subjects import provided
        from infoflow.studies import merge as merge_shards

        joined = next((merge for fits, merge in provided("stages", "MERGING") if fits(runs[0])), merge_shards)
        show_run(joined(runs, run_folder(out, "merged")))
