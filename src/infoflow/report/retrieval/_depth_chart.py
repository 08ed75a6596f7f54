"""Curves of a lens over states, with the half and the centre of what is gained."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._numbers import number
from .._shown_models import ShownModels
from ..forms._chart import amount, color_of, finished, lit, shape_of, tips
from ..forms._lines import control_lines, lines, looks_of
from ..forms._names import names_above

_HEIGHT = 250


def lens_of(frame: pd.DataFrame) -> str:
    """The lens that is shown: the tuned one where there is one."""
    return next((name for name in ("tuned", "logit") if name in set(frame["lens"].astype(str))), "")


def marks_of(own: pd.DataFrame, by: list[str], models: ShownModels) -> pd.DataFrame:
    """Half and centre of each trained line and values of `by`, and over how many seeds they are means: where they are
    defined."""
    told = own[own["metric"].isin(["half", "centre"]) & own["trained"]]
    kept = told.dropna(subset="value")
    columns = ["series", "name", *by, "half", "centre", "defined", "seeds"]
    if kept.empty:
        return pd.DataFrame(columns=columns)
    line = ["series", *by]
    means = kept.groupby([*line, "metric"], sort=False)["value"].mean().unstack()
    counts = [rows.groupby(line, sort=False)["seed"].nunique() for rows in (kept, told)]
    table = means.reindex(columns=["half", "centre"])
    table = table.assign(**dict(zip(("defined", "seeds"), counts, strict=True))).reset_index()
    return table.assign(name=table["series"].map({one.key: one.label for one in models.series}))


def depth_chart(rows: pd.DataFrame, marks: pd.DataFrame, models: ShownModels, ends: list[float]) -> dict[str, Any]:
    """Probabilities over states, a line for each reader; a large mark at its centre, at the height of its half."""
    trained, grey = rows[rows["trained"]], rows[~rows["trained"]]
    series = models.present(trained)
    layers = sorted({int(layer) for layer in rows["layer"]})
    x = alt.X(
        **amount("layer", "state (0 = embeddings)", [layers[0] - 0.15, layers[-1] + 0.15], values=layers, format="d")
    )
    at = {"x": x, "y": alt.Y(**amount("value", "probability of the answer", ends))}
    tooltip = tips("name:N|trained as", "layer:Q|state", "shown:N|probability")
    found = lines(trained, at, looks_of(series), size=26, touch=0, tooltip=tooltip)
    if len(marks):
        tops = trained.loc[trained.groupby("series")["layer"].idxmax()].set_index("series")["value"]
        placed = marks.assign(
            layer=marks["centre"], value=[float(tops.get(key, np.nan)) / 2 for key in marks["series"]]
        )
        told = tips("name:N|trained as", "centre:Q|centre|.2f", "half:Q|half|.2f")
        found.append(
            alt.Chart(placed).mark_point(size=190, filled=False, strokeWidth=2.6)
            .encode(**at, color=color_of(series), shape=shape_of(series), opacity=lit(), tooltip=told)
        )  # fmt: skip
    names = [("●", one.label, one.color) for one in series]
    names += [("– –", "untrained", "var(--control)")] if len(grey) else []
    return finished([*control_lines(grey.drop(columns="shown"), at), *found, names_above(names)], _HEIGHT)


def fewer_seeds(marks: pd.DataFrame) -> str:
    """That some marks are means over fewer seeds than there are."""
    fewer = bool((marks["defined"] < marks["seeds"]).any())
    return ", over the seeds in which it is defined (a gain of .05 or more)" if fewer else ""


def place_text(row: dict[str, Any]) -> str:
    """`around state 2.2 (half at 2.0, in 2 of 3 seeds)` of one of the marks."""
    defined, seeds = int(row["defined"]), int(row["seeds"])
    some = f", in {defined} of {seeds} seeds" if defined < seeds else ""
    return f"around state {number(row['centre'], 1)} (half at {number(row['half'], 1)}{some})"
