"""`infoflow compare`."""

from ._measuring import Measuring, run_name, show_run
from ._session import Out, Session, run_folder, working


def compare(
    *models: str,
    measuring: Measuring = Measuring(),  # noqa: B008 (frozen)
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Measure several models on the same words, and how far apart their representations are.

    Args:
        models: Two models or more: folders, .gguf files, or names on the model hub.
    """
    with working(session):
        from infoflow.foundation import UserError

        if len(models) < 2:
            raise UserError(f"compare needs at least two models. Got {len(models)}. For one model: infoflow analyze.")

        from infoflow.studies import analyze

        folder = run_folder(out, run_name("compare", *models))
        show_run(analyze(models, measuring.options(), folder))
