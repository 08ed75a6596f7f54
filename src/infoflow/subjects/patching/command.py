"""`infoflow patch`."""

from typing import TYPE_CHECKING, Annotated, Any

from cyclopts import Parameter

from infoflow.cli._options import Reading, limited, names_in
from infoflow.cli._session import (
    Device,
    Names,
    Out,
    Session,
    estimate,
    names_of,
    run_folder,
    run_name,
    show_path,
    show_table,
    show_text,
    working,
)

if TYPE_CHECKING:
    import pandas as pd


def patch(
    model: str,
    /,
    *,
    pairs: str,
    parts: Annotated[tuple[str, ...], Parameter(negative=(), show_default=False)] = (),
    steps: Annotated[int, Parameter(converter=limited("Count"))] = 5,
    limit: Annotated[int, Parameter(converter=limited("CountOrNone"))] = 100,
    top: Annotated[int, Parameter(converter=limited("Count"))] = 10,
    reading: Reading = Reading(),  # noqa: B008 (frozen)
    name: Names = (),
    device: Device = None,
    out: Out = None,
    session: Session = Session(),  # noqa: B008 (frozen)
) -> None:
    """Patch activations between two inputs that differ in one respect: which part of the model carries the difference?

    Args:
        model: A folder that save_pretrained wrote, a .gguf file, or a name on the model hub (NAME@REVISION).
        pairs: A file (.jsonl, .csv, .tsv) with clean, corrupted, answer and, if known, wrong; ___ marks the place of
            the answer. BLiMP's files are read too. grammar:200 generates pairs of subjects and verbs.
        parts: Parts to swap, separated by commas: head, query, key, value, attention, feed-forward, residual. Default:
            all but query, key and value.
        steps: Steps of integrated gradients.
        limit: Maximum number of pairs, chosen by hash; 0: all.
        top: Parts to list; the tables hold all of them.
    """
    with working(session, model):
        from .measures import read_pairs
        from .measures._parts import DEFAULT, check_parts
        from .stages import patch as patch_model

        chosen = check_parts(names_in("--parts", parts) or DEFAULT)
        read_pairs(pairs)  # before a model is loaded
        run = patch_model(
            reading.load(model, device, *names_of([model], name)),
            pairs,
            run_folder(out, run_name("patch", *name or [model])),
            parts=chosen,
            steps=steps,
            limit=limit or None,
        )
        _show(run.tables["patching_effect"], top)
        _show_agreement(run.tables["patching_agreement"])
        show_path("Tables", run.path / "tables")
        show_path("Report", run.path / "report.html")


def _show(frame: "pd.DataFrame", top: int) -> None:
    """Print the parts with the largest exact effects, without residual states."""
    first = frame.iloc[0]
    show_text(
        f"{int(first['count']):,} pairs: the metric is {first['clean']:.2f} nats for clean and "
        f"{first['corrupted']:.2f} for corrupted inputs."
    )
    place = ["part", "stack", "kind", "layer", "head"]
    own = frame[(frame["direction"] == "denoising") & (frame["part"] != "residual")]
    others = own.pivot(index=place, columns="method", values="value")
    best = own[own["method"] == "exact"].sort_values("value", key=abs, ascending=False, kind="stable")
    rows = []
    for row in best.head(top).to_dict("records"):
        part, stack, kind, layer, head = key = tuple(row[name] for name in place)
        where = f"{stack} {kind}".strip() + f" {layer}" + (f".{head}" if head >= 0 else "")
        numbers = [others.loc[key, "gradient"], others.loc[key, "integrated"], row["baseline"]]
        rows.append([part, where, _number(row), *(f"{one:.2f}" for one in numbers)])
    if rows:
        names = ["part", "place", "exact [95%]", "gradient", "integrated", "control"]
        show_table(names, rows, "Share of the difference")


def _show_agreement(frame: "pd.DataFrame") -> None:
    own = frame[frame["direction"] == "denoising"].set_index(["part", "method", "statistic"])
    rows = []
    for part, method in dict.fromkeys((part, method) for part, method, _ in own.index):
        ranks, common = (own.loc[(part, method, name)] for name in ("spearman", "overlap"))
        rows.append([part, method, _number(ranks), _number(common), f"{common['baseline']:.2f}"])
    if rows:
        names = ["part", "method", "rank correlation [95%]", "top tenth in common [95%]", "chance"]
        show_table(names, rows, "First order and exact")


def _number(row: Any) -> str:
    return estimate(row["value"], row["low"], row["high"], digits=2)
