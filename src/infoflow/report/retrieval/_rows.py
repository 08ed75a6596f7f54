"""Rows of the tables about retrieval as figures show them: arms, exposures, means over seeds."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.objectives import RETRIEVAL_OBJECTIVES

from .._shown_models import ShownModels
from ..adaptation._rows import averaged, estimated, names_of, of
from ..forms._hollow import HOLLOW
from ..forms._lines import ANY

CONTROL_ARM = "null-share"
EXPOSURES = "facts by how often they were trained"
_KINDS = {"held out": "held out", "withheld": "withheld"}


def of_readers(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of readers of facts, of a table about all kinds of models."""
    return frame[frame["objective"].isin(RETRIEVAL_OBJECTIVES)]


def arms(frame: pd.DataFrame) -> pd.DataFrame:
    """Plain arms, and the closed-book reader that is asked as seldom as the others are without a passage."""
    return frame[frame["variant"].isin(["", CONTROL_ARM])]


def plain_arms(frame: pd.DataFrame) -> pd.DataFrame:
    return frame[frame["variant"] == ""]


def every_exposure(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows about all facts of a kind; tables of earlier versions have no others."""
    return frame[frame["weight"] == -1] if "weight" in frame else frame


def by_exposure(frame: pd.DataFrame) -> pd.DataFrame:
    """With the place of each row from the rarest trained facts to withheld ones, as text; others are left out."""
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
    """Mean and interval of each line, state and values of `by`, with the name of the line; `bounds`: of the number."""
    return names_of(estimated(averaged(frame, by), by, bounds), models)


def span(rows: pd.DataFrame, *more: float) -> list[float]:
    """An axis that holds all intervals, and these values."""
    known = [float(value) for name in ("low", "high", "value") for value in rows[name] if np.isfinite(value)] + [*more]
    low, high = min(known, default=0.0), max(known, default=1.0)
    margin = 0.06 * (high - low) or 0.05
    return [low - margin, high + margin]


def seeds_note(data: pd.DataFrame, counted: str = "questions") -> str:
    """What intervals cover."""
    seeds = int(data["seeds"].max()) if len(data) else 0
    count = int(data["count"].median()) if len(data) else 0
    behind = f"; {count:,} {counted} for a number" if count else ""
    if seeds > 1:
        return f"Means over {seeds} seeds; 95% intervals over seeds and facts{behind}."
    return f"One seed; 95% intervals over facts, {HOLLOW}{behind}."


def mean_of(data: pd.DataFrame, **wanted: Any) -> float | None:
    """The value of the one row of a trained line; None where there is none."""
    own = of(data, trained=True, **wanted)
    return float(own["value"].iloc[0]) if len(own) == 1 and np.isfinite(own["value"].iloc[0]) else None
