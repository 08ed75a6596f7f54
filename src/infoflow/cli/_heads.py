"""`infoflow heads`."""

from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter
from cyclopts.validators import Number

from ._measuring import Measuring, run_name
from ._session import Out, Session, run_folder, working
from ._show import estimate, show, show_path, show_table

if TYPE_CHECKING:
    import pandas as pd

_KEYS = ["stack", "kind", "layer", "head"]


def heads(
    model: str,
    /,
    *,
    top: Annotated[int, Parameter(validator=Number(gte=1))] = 10,
    measuring: Measuring = Measuring(),  # noqa: B008 (frozen)
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Show what each attention head looks at: neighbouring tokens, one token or many.

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub.
        top: Heads to list for each statistic; the tables hold all.
    """
    with working(session):
        from infoflow.studies import analyze

        options = measuring.options(["head_confidence", "head_entropy", "head_positional"])
        run = analyze([model], options, run_folder(out, run_name("heads", model)))
        positional = run.tables["head_positional"]
        for title, unit, frame in (
            ("Previous token", "share of queries", positional[positional["offset"] == -1]),
            ("Next token", "share of queries", positional[positional["offset"] == 1]),
            ("Confidence", "mean of the largest weight", run.tables["head_confidence"]),
        ):
            _show_top(f"{title} ({unit})", frame, top)
        show_path("All heads", run.path / "tables")
        show_path("Report", run.path / "report.html")


def _show_top(title: str, frame: "pd.DataFrame", top: int) -> None:
    """Print the heads with the largest values, beside chance and the same head before training."""
    trained = frame[frame["trained"]].dropna(subset="value")
    untrained = frame[~frame["trained"]].set_index(_KEYS)["value"]
    rows = []
    for row in trained.nlargest(top, "value").to_dict("records"):
        key = tuple(row[name] for name in _KEYS)
        control = f"{untrained[key]:.3f}" if key in untrained.index else "–"
        rows.append(
            [*map(str, key), estimate(row["value"], row["low"], row["high"]), f"{row['baseline']:.3f}", control]
        )
    show_table([*_KEYS, "value [95% interval]", "chance", "untrained"], rows, title)
    show()
