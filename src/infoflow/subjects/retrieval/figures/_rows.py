"""Rows of the retrieval tables as the figures show them: variants, exposures, means over seeds."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.objectives import further_objectives
from infoflow.report._numbers import listed, number
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import color_of, shape_of
from infoflow.report.forms._dots import interval_dots
from infoflow.report.forms._hollow import HOLLOW
from infoflow.report.forms._lines import ANY, SHARE
from infoflow.report.forms._marks import Channel
from infoflow.report.forms._span import span
from infoflow.subjects.adaptation.figures._rows import averaged, estimated, names_of, of

CONTROL_ARM = "null-share"
EXPOSURES = "facts by how often they were trained"
_KINDS = {"held out": "held out", "withheld": "withheld"}


def of_readers(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of fact readers, from a table of all kinds of models."""
    return frame[frame["objective"].isin(further_objectives())]


def arms(frame: pd.DataFrame) -> pd.DataFrame:
    """Plain variants, and the closed-book reader that trains as rarely without a passage as the others."""
    return frame[frame["variant"].isin(["", CONTROL_ARM])]


def plain_arms(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["variant"] == ""]


def every_exposure(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows about all facts of a kind; earlier table versions have no others."""
    return frame[frame["weight"] == -1] if "weight" in frame else frame


def by_exposure(frame: pd.DataFrame) -> pd.DataFrame:
    """Add each row's exposure rank as text, from the rarest trained facts to withheld ones; drop all other rows."""
    weights = sorted({int(one) for one in frame.loc[frame["facts"] == "trained", "weight"] if one > 0})
    named = {("trained", weight): f"{weight}×" for weight in weights}
    named |= {(kind, -1): label for kind, label in _KINDS.items()}
    places = list(zip(frame["facts"].astype(str), frame["weight"].astype(int), strict=True))
    keep = np.array([place in named for place in places], dtype=bool)
    kept = [place for place in places if place in named]
    order = {label: number for number, label in enumerate(named.values())}
    labels = [named[place] for place in kept]
    return (
        frame[keep]
        .assign(exposure=labels, place=[order[label] for label in labels])
        .sort_values("place", kind="stable")
    )


def drawn(frame: pd.DataFrame, by: list[str], models: ShownModels, bounds: tuple[float, float] = ANY) -> pd.DataFrame:
    """Mean and interval of each line, state and values of `by`, with the line's name; `bounds`: range of the value."""
    return names_of(estimated(averaged(frame, by), by, bounds), models)


def ends_of(rows: pd.DataFrame, *more: float) -> tuple[float, float]:
    """An axis range that holds all intervals, and these values."""
    return span(rows[["low", "high", "value"]], more, margin=0.06, flat=0.05)


def share_dots(
    rows: pd.DataFrame, models: ShownModels, title: str, tooltip: list[Channel], grey: pd.DataFrame, **how: Any
) -> dict[str, Any]:
    """One row per `label`, with its share on an axis from 0 to 1 and a grey cross for the control."""
    series = models.present(rows)
    return interval_dots(
        rows.assign(short=[number(value, 2) for value in rows["value"]]),
        {"color": color_of(series), "shape": shape_of(series)},
        title=title,
        bounds=SHARE,
        tooltip=tooltip,
        grey=grey[grey["label"].isin(rows["label"])],
        **{"domain": (-0.01, 1.02), "step": 30, **how},
    )


def percents(data: pd.DataFrame, models: ShownModels, **wanted: Any) -> str:
    """`31% in closed book and 80% in DPR`: the value of each trained line."""
    found = [(one.label, mean_of(data, series=one.key, **wanted)) for one in models.present(data)]
    return listed([f"{number(100 * value, 0)}% in {label}" for label, value in found if value is not None])


def seeds_note(data: pd.DataFrame, counted: str = "questions") -> str:
    """What the intervals cover."""
    seeds = int(data["seeds"].max()) if len(data) else 0
    count = int(data["count"].median()) if len(data) else 0
    behind = f"; {count:,} {counted} per number" if count else ""
    if seeds > 1:
        return f"Means over {seeds} seeds; 95% intervals over seeds and facts{behind}."
    return f"One seed; 95% intervals over facts, {HOLLOW}{behind}."


def mean_of(data: pd.DataFrame, **wanted: Any) -> float | None:
    """The value of a trained line's only row; None if there is none."""
    own = of(data, trained=True, **wanted)
    return float(own["value"].iloc[0]) if len(own) == 1 and np.isfinite(own["value"].iloc[0]) else None
