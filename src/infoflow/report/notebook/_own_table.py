"""Figures for tables that no section draws, and tables of `measure` or `compare` in the form of a run."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import UserError
from infoflow.results import END, KEYS, RunFolder, StoredTable, Tables, TableSchema, with_keys

from .._curves import Wording, curves, interval_note, sampled_bands, trend_sentences
from .._figure import Method, Panel, ReportFigure
from .._in_words import Samples, chosen, ends_words, listed, number
from .._model_selection import ModelSelection
from .._model_tables import ModelTables
from ..forms._chart import amount, color_if, color_of, finished, shape_of, tips
from ..forms._layer_chart import LayerChart
from ..forms._lines import DASHES, LineKind, looks_of
from ..forms._marks import span
from ..forms._over_time import CLOCKS, TimeAxis, time_lines
from ..forms._rows import cells, interval_dots, squares
from ..heads._statistics import kind_label

_KEYS: dict[str, Any] = {
    "model": "model",
    "objective": "model",
    "variant": "",
    "architecture": "",
    "start": "",
    "seed": 0,
    "update": END,
}


class ExternalRun(RunFolder):
    """A run in memory: one table with its models."""

    def __init__(self, name: str, frame: pd.DataFrame, schema: TableSchema | None = None) -> None:
        super().__init__(name)
        self._frames = _ExternalTables({name: keyed(frame)}, schema)

    def read(self) -> dict[str, Any]:
        models = [model for frame in self._frames.values() for model in _models(frame)]
        of_study = all(str(model["name"]).endswith(f"/seed-{model['seed']}") for model in models)
        return {"kind": "study" if of_study else "analyze", "models": models}

    @property
    def tables(self) -> "_ExternalTables":  # type: ignore[override]
        return self._frames


class _ExternalTables(Tables):
    def __init__(self, frames: Mapping[str, pd.DataFrame], schema: TableSchema | None) -> None:
        self._frames, self._schema = dict(frames), schema

    def stored(self, name: str) -> StoredTable:
        return StoredTable(self._frames[name], self._schema, {})  # type: ignore[arg-type]

    def __iter__(self):
        return iter(self._frames)


def keyed(frame: pd.DataFrame) -> pd.DataFrame:
    """The plain frame with the keys of a study's tables; without a model column, its model is called "model"."""
    frame = pd.DataFrame(frame).reset_index(drop=True)
    sides = ("_a", "_b") if "model_a" in frame else ("",)
    for side in sides:
        if f"objective{side}" in frame:
            continue
        missing = {f"{name}{side}": value for name, value in _KEYS.items() if f"{name}{side}" not in frame}
        frame = frame.assign(**missing)
    return with_keys(frame if "trained" in frame else frame.assign(trained=True))


def _models(frame: pd.DataFrame) -> list[dict[str, Any]]:
    sides = ("_a", "_b") if "model_a" in frame else ("",)
    parts = [frame[[f"{name}{side}" for name in _KEYS]].set_axis(list(_KEYS), axis=1) for side in sides]
    return pd.concat(parts).drop_duplicates().rename(columns={"model": "name"}).to_dict("records")


# Figures for tables that no section knows, with the report's own forms: by layer, as a head map, or as dots.

_ESTIMATE = ("value", "low", "high", "baseline", "count", "replicates", "seeds")
_AXES = ("layer", "head", "stack", "kind")
_MOST_PANELS, _MOST_ROWS, _MOST_NUMBERS = 8, 40, 6  # the last: columns of heads with room for numbers
_METHOD = Method(id="own-table", title="Your own table", text="")


def own_figure(frame: pd.DataFrame, schema: TableSchema | None, name: str) -> ReportFigure:
    """The figure of any table with a column `value`.

    Raises:
        UserError: The column is missing or not numeric, or the table has more groups than a figure can show.
    """
    rows, models = _rows(frame)
    unit, what = unit_of(schema), name.replace("_", " ").replace("-", " ") or "value"
    where = " of each head" if "head" in rows and "layer" in rows else " by layer" if "layer" in rows else ""
    if "layer" in rows and "head" in rows:
        panels, answer, form = _head_maps(rows, models, what, unit)
    elif "layer" in rows:
        panels, answer, form = _by_layer(rows, models, what, unit)
    elif rows.loc[rows["trained"], "update"].nunique() > 1:  # an untrained control is not a checkpoint
        panels, answer, form = _over_updates(rows, models, what, unit)
    else:
        panels, answer, form = _dots(rows, models, what, unit)
    return ReportFigure(
        id=name or "table",
        question=schema.description if schema else f"{what[:1].upper()}{what[1:]}{where}",
        answer=answer,
        panels=panels,
        caption=interval_note(curves(rows)) if "layer" in rows and "head" not in rows else "",
        how_to_read=[form],
        method=_METHOD,
        data=frame,
        tables=(),
    )


def _rows(frame: pd.DataFrame) -> tuple[pd.DataFrame, ModelSelection]:
    """The rows with all columns that the forms read, and their models."""
    if "value" not in frame:
        raise UserError(
            f"A table to draw needs the column value. Got {', '.join(map(str, frame.columns))}. "
            'Rename one: plot(table.rename(columns={"accuracy": "value"})).'
        )
    if not pd.api.types.is_numeric_dtype(frame["value"]) or not np.isfinite(frame["value"].astype(float)).any():
        raise UserError("The column value must hold numbers. It holds none. Turn it into numbers, or leave out rows.")
    missing = {"low": np.nan, "high": np.nan, "baseline": np.nan, "count": 0}
    if "model_a" in frame:
        pairs = frame["model_a"].astype(str) + " – " + frame["model_b"].astype(str)
        frame = frame.drop(columns=["model_a", "model_b"]).assign(model=pairs)
    frame = frame.assign(**{column: fill for column, fill in missing.items() if column not in frame})
    tables = ModelTables.of(ExternalRun("own", frame))
    rows = tables.over_training("own") if "update" in frame and len(set(frame["update"])) > 2 else tables["own"]
    return _grouped(pd.DataFrame(rows)), tables.models


def _grouped(rows: pd.DataFrame) -> pd.DataFrame:
    """Add a column `group` that names the other distinguishing columns in words; "" if there are none."""
    keys = {column.name for column in KEYS}
    known = {*_ESTIMATE, *_AXES, *CLOCKS, *keys, "series", "same_as"}
    further = [name for name in rows if name not in known and len(set(rows[name].astype(str))) > 1]
    stacks = "stack" in rows and "head" not in rows and len(set(rows["stack"])) > 1
    words = [rows["stack"].astype(str)] if stacks else []
    words += [rows[name].map(lambda value, name=name: f"{name.replace('_', ' ')} {value}") for name in further]
    return rows.assign(group=[", ".join(row) for row in zip(*words, strict=True)] if words else "")


def _by_layer(rows: pd.DataFrame, models: ModelSelection, what: str, unit: str) -> tuple[list[Panel], list[str], str]:
    groups = _few(rows["group"], _MOST_PANELS, "panels")
    title = f"{what} ({unit})" if unit else what
    panels, answer = [], []
    for group in groups:
        own = rows[rows["group"] == group]
        series = models.present(own)
        panels.append(
            Panel.of(LayerChart(table=curves(own), series=series, y_title=title, baseline_name="control"), group)
        )
        answer += [
            f"{group}: {sentence}" if group else sentence for sentence in trend_sentences(own, series, Wording(unit))
        ]
    return panels, answer, "Across: layers, from the embeddings (0) to the top. A line is a model, a band its interval."


def _head_maps(rows: pd.DataFrame, models: ModelSelection, what: str, unit: str) -> tuple[list[Panel], list[str], str]:
    fill = {name: word for name, word in (("stack", "model"), ("kind", "self")) if name not in rows}
    rows = rows.assign(**fill)
    ends = (0.0, float(rows["value"].abs().max()) or 1.0)
    panels = []
    for group in _few(rows["group"], _MOST_PANELS, "panels"):
        first = rows[(rows["group"] == group) & rows["trained"]]
        first = first[first["seed"] == first["seed"].min()]
        for series, own in models.each(first):
            for stack, kind in own[["stack", "kind"]].drop_duplicates().itertuples(index=False):
                heads = own[(own["stack"] == stack) & (own["kind"] == kind)]
                title = f"{series.label}, {kind_label(stack, kind)}"
                panels.append(Panel(spec=_head_map(heads, what, ends), title=", ".join(filter(None, (title, group)))))
    how = (
        "A square is a head: layers from bottom to top, heads from left to right; "
        "the stronger its colour, the higher the value."
    )
    return panels, _most_and_mean(rows, models, unit), how


def _head_map(heads: pd.DataFrame, what: str, ends: tuple[float, float]) -> dict[str, Any]:
    layers = sorted((int(layer) for layer in heads["layer"].unique()), reverse=True)
    table = heads[["layer", "head", "value"]].assign(text=[number(v) for v in heads["value"]])
    base = table.assign(size=table["value"].abs())
    sides = color_if("datum.value < 0", "var(--below)", "var(--above)")
    color = sides if float(heads["value"].min()) < 0 else "var(--heat-2)"
    tooltip = tips("layer:O", "head:O", f"text:N|{what}")
    text = "text:N" if len(set(heads["head"])) <= _MOST_NUMBERS else None
    place = (cells("x", "head", "head"), cells("y", "layer", "layer", layers))
    marks = squares(base, *place, "size", ends=ends, color=color, text=text, tooltip=tooltip)
    return finished(marks, max(22 * len(layers), 66))


def _most_and_mean(rows: pd.DataFrame, models: ModelSelection, unit: str) -> list[str]:
    """Each model's head with the largest value, and the mean over heads with that of the control."""
    answer = []
    for series, own in models.each(rows):
        trained, control = own[own["trained"]], own[~own["trained"]]
        if trained.empty:
            continue
        found = chosen({at: Samples.of_row(row) for at, row in enumerate(trained.to_dict("records"))})
        if found is None:
            continue
        best = trained.iloc[found.key]
        kind = f", {kind_label(best['stack'], best['kind'])}" if trained[["stack", "kind"]].nunique().max() > 1 else ""
        place = f"layer {best['layer']}, head {best['head']}{kind}"
        if len(set(trained["value"])) == 1:
            answer.append(f"{number(trained['value'].iloc[0])} {unit}".rstrip() + f" in every head of {series.label}.")
            continue
        most = f"Highest in {series.label} at {place}: {number(found.estimate.value)} {unit}"
        mean = f"the mean over heads is {number(trained['value'].mean())}"
        compared = f" ({number(control['value'].mean())} untrained)" if len(control) else ""
        answer.append(f"{most.rstrip()}; {mean}{compared}.")
    return answer


def _over_updates(
    rows: pd.DataFrame, models: ModelSelection, what: str, unit: str
) -> tuple[list[Panel], list[str], str]:
    """A panel for each model; its groups are lines, whose ends the answer states."""
    axis, title = TimeAxis.of(rows.reindex(columns=["series", *CLOCKS]).drop_duplicates()), f"{what} ({unit})"
    names = _few(rows["group"], len(DASHES), "lines")
    looks = [LineKind(key=name, label=name, dash=dash, shape="circle", mark="")
             for name, dash in zip(names, DASHES, strict=False)]  # fmt: skip
    panels, answer = [], []
    for series, own in models.each(rows):
        table = sampled_bands(own, ["series", "group", "update"])
        y = amount("y", "value", title if unit else what, span(table[["value", "low", "high"]].stack()), ticks=5)
        look = looks_of(looks, "group", series.color)
        chart = time_lines(axis, table, y, look, by="group", names={name: name for name in names}, room=0.25)
        panels.append(Panel(spec=chart, title=series.label))
        for name, own in table.groupby("group", sort=False):
            values = own.sort_values("update").set_index("update")["value"]
            answer.append(f"{', '.join(filter(None, (series.label, str(name))))}: {ends_words(values, unit)}.")
    return panels, answer, "Across: updates, on a log scale. Each line is a group of rows, with its interval."


def _dots(rows: pd.DataFrame, models: ModelSelection, what: str, unit: str) -> tuple[list[Panel], list[str], str]:
    series, several = models.present(rows), len(set(rows["series"])) > 1
    labels = rows["series"].map({line.key: line.label for line in series})
    named = labels + rows["group"].map(lambda text: f", {text}" if text else "") if several else rows["group"]
    untrained = rows["trained"].map({True: "", False: ", untrained"})
    rows = rows.assign(label=named.where(named != "", labels) + untrained, short=[number(v) for v in rows["value"]])
    _few(rows["label"], _MOST_ROWS, "rows")
    look: dict[str, Any] = {"color": color_of(series), "shape": shape_of(series)}
    used = ["series", "label", "value", "low", "high", "short"]
    used += ["baseline"] if bool(rows["baseline"].notna().any()) else []
    chart = interval_dots(rows[used], look, title=f"{what} ({unit})" if unit else what)
    best, least = rows.loc[rows["value"].idxmax()], rows.loc[rows["value"].idxmin()]
    sides = [f"{one['label']} ({one['short']} {unit}".rstrip() + ")" for one in (best, least)]
    answer = f"Most: {sides[0]}; least: {sides[1]}." if len(rows) > 1 else f"{sides[0]}."
    how = "Each dot is a row of the table, with its interval; a dashed tick is its control."
    return [Panel(spec=chart)], [answer], how


def _few(names: pd.Series, most: int, what: str) -> list[str]:
    found = list(dict.fromkeys(names))
    if len(found) > most:
        raise UserError(
            f"A figure shows at most {most} {what}. This table has {len(found)}: {listed(found[:3])}, … "
            "Select some rows first: plot(table[table.side == 'input'])."
        )
    return found


def unit_of(schema: TableSchema | None) -> str:
    return next((column.unit for column in schema.columns if column.name == "value"), "") if schema else ""
