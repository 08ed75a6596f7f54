"""`infoflow dynamics`."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

from cyclopts import Parameter

from infoflow.cli._options import limited
from infoflow.cli._session import Log, Out, reporting, run_folder, show, show_path, show_table, show_text

if TYPE_CHECKING:
    import pandas as pd

_GROUP = ["component", "stack", "layer", "kind"]
_SHOWN = ("groups", "hurting", "reliability", "windows")


def dynamics(
    *runs: Path, top: Annotated[int, Parameter(converter=limited("Count"))] = 10, out: Out = None, log: Log = None
) -> None:
    """Show which parameters reduced the loss during training of a study's models, and update its report.

    The study must have recorded it: `[dynamics] on = true` in its plan, or `--set dynamics.on=true`. Several studies,
    each on its own corpus, are compared, to show whether the corpus or only the objective changes which parameters
    learn.

    Args:
        runs: One or more folders that `infoflow study` wrote.
        top: Number of parameter groups to list for each objective; the tables hold all of them.
        out: Folder for the comparison of several studies. Default: runs/corpora.
    """
    with reporting(log):
        if len(runs) > 1:
            _compare(runs, run_folder(out, "corpora"))
            return
        from infoflow.foundation import UserError
        from infoflow.report import write_report
        from infoflow.results import RunFolder

        if not runs or out is not None:
            raise UserError(
                "dynamics needs the folder of a study, and --out only applies to several. "
                f"Got {len(runs)} {'folder' if len(runs) == 1 else 'folders'}."
            )
        folder = RunFolder.existing(runs[0])
        _require_recording(folder.path, list(folder.tables))
        tables = {name: folder.tables[f"allocation_{name}"] for name in _SHOWN}
        for objective in dict.fromkeys(tables["groups"]["objective"]):
            own = {
                name: frame.loc[(frame["objective"] == objective) & (frame["set"] == "train")]
                for name, frame in tables.items()
            }
            _show_trust(str(objective), own["windows"], own["reliability"])
            _show_groups(str(objective), own["groups"], top)
        _show_hurting(tables["hurting"])
        if "allocation_similarity" in folder.tables:
            _show_similarity(folder.tables["allocation_similarity"])
        show_path("All groups, heads and steps", folder.path / "tables")
        show_path("Report", write_report(folder))


def _compare(runs: tuple[Path, ...], out: Path) -> None:
    from .stages import compare_recordings

    compared = compare_recordings(runs, out)
    table = compared.tables["allocation_corpora"]
    shown = table[(table["normalisation"] == "share") & (table["metric"] == "spearman")]
    across = shown["corpus_a"] != shown["corpus_b"]
    _show_similarity(shown[across], "Same objective, two corpora: similarity of shares over layers and components")
    _show_similarity(shown[~across], "Two training runs on the same corpus")
    finding = compared.findings.iloc[0]
    show_text(f"{finding['id']}: {finding['verdict']}. {finding['reason']}")
    show_path("All pairs", compared.path / "tables")
    show_path("Report", compared.folder.report)


def _require_recording(path: Path, tables: list[str]) -> None:
    from infoflow.foundation import UserError

    if "allocation_groups" not in tables:
        raise UserError(
            f"{path} has no recording of loss changes.\n"
            f"Record them (models are trained once more): infoflow study PLAN --out {path} --set dynamics.on=true"
        )
    if missing := [name for name in _SHOWN if f"allocation_{name}" not in tables]:
        raise UserError(
            f"{path} lacks the table allocation_{missing[0]} of its recording. Copy the folder again, or recreate the "
            f"table by running the study again: infoflow study PLAN --out {path}"
        )


def _rows(frame: "pd.DataFrame") -> list[tuple[tuple, dict]]:
    """Key and columns of each row."""
    return list(zip(frame.index.tolist(), frame.to_dict("records"), strict=True))


def _show_trust(objective: str, windows: "pd.DataFrame", reliability: "pd.DataFrame") -> None:
    first, last = (
        windows.groupby("seed")["loss_start"].first().mean(),
        windows.groupby("seed")["loss_end"].last().mean(),
    )
    show(f"{objective}: loss {first:.3f} before, {last:.3f} after training")
    wanted = ("residual of the total", "mean residual", "half correlation of groups", "sign agreement of parameters")
    means = reliability[reliability["statistic"].isin(wanted)].groupby(["statistic", "rule", "unit"], sort=False)
    rows = [[*key[:2], f"{row['value']:.3g}", key[2]] for key, row in _rows(means[["value"]].mean())]
    show_table(["how far to trust it", "rule", "mean over seeds", "unit"], rows)
    show()


def _show_groups(objective: str, groups: "pd.DataFrame", top: int) -> None:
    means = groups.groupby(_GROUP, sort=False)[["value", "share", "per_parameter"]].agg(["mean", "min", "max"])
    means = means.sort_values(("value", "mean")).head(top)
    rows = [
        [
            *map(str, key),
            f"{100 * row['share', 'mean']:.2f}",
            f"{100 * row['share', 'min']:.2f} to {100 * row['share', 'max']:.2f}",
            f"{row['per_parameter', 'mean']:.2e}",
        ]
        for key, row in _rows(means)
    ]
    columns = [*_GROUP, "% of the loss change", "lowest to highest seed", "nats per parameter"]
    show_table(columns, rows, f"{objective}: what lowered the loss most")
    show()


def _show_hurting(hurting: "pd.DataFrame") -> None:
    """Print the report's table of hurting parameters."""
    from .measures import hurting_table

    table = hurting_table(hurting)
    rows = [[str(name), *map(str, row)] for name, row in zip(table.index, table.to_numpy().tolist(), strict=True)]
    show_table(["", *map(str, table.columns)], rows, "Times that a component, summed over layers, raised the loss")
    show()


def _show_similarity(
    similarity: "pd.DataFrame", title: str = "How alike shares over layers and components are"
) -> None:
    shown = similarity[(similarity["normalisation"] == "share") & (similarity["metric"] == "spearman")]
    ends = ["objective_a", "stack_a", "objective_b", "stack_b"]
    means = shown.groupby(ends, sort=True)["value"].agg(["mean", "min", "max", "count"])
    rows = [
        [*map(str, key), f"{row['mean']:.2f}", f"{row['min']:.2f} to {row['max']:.2f}", str(int(row["count"]))]
        for key, row in _rows(means)
    ]
    columns = ["objective", "stack", "objective", "stack", "rank correlation", "lowest to highest", "pairs"]
    show_table(columns, rows, title)
    show()
