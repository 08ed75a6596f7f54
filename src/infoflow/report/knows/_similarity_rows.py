"""Rows of `space_similarity` for the report: the pair of lines of each row, and means over pairs of models."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._numbers import estimate_text
from .._samples import Estimate, Samples, seeds_of_pairs
from .._series import Series
from .._shown_models import JOIN, ShownModels

LAYERS = ["layer_a", "layer_b"]
CONTROL = ""
"""Key of the untrained pair."""


@dataclass(frozen=True, kw_only=True, slots=True)
class PairOfLines:
    """Two lines of the report whose layers are compared; the same line twice for models that differ in the seed."""

    key: str
    up: str  # model of the vertical axis
    across: str
    title: str
    same: bool = False  # models that differ only in the seed


def similarity_rows(frame: pd.DataFrame, models: ShownModels) -> pd.DataFrame:
    """Add the columns `line` (key of a `PairOfLines`) and `pair`; the earlier line of the models is always a.

    Untrained models of different seeds form one control; if there are none, untrained models of one seed do.
    """
    rank = {series.key: index for index, series in enumerate(models.series)}
    swap = frame["series_a"].map(rank) > frame["series_b"].map(rank)
    rows: Any = pd.concat([frame[~swap], _mirrored(frame[swap])])
    line = rows["series_a"] + JOIN + rows["series_b"]
    pair = rows["model_a"].astype(str) + " | " + rows["model_b"].astype(str)
    rows = rows.assign(line=line.where(rows["trained"], CONTROL), pair=pair)
    if "seed_a" not in rows:
        return rows
    other_seed = rows["seed_a"] != rows["seed_b"]
    return rows[rows["trained"] | other_seed | ~other_seed[~rows["trained"]].any()]


def _mirrored(frame: pd.DataFrame) -> pd.DataFrame:
    names = {name: name[:-1] + ("b" if name[-1] == "a" else "a") for name in frame if name[-2:] in ("_a", "_b")}
    return frame.rename(columns=names)


def pairs_of_lines(rows: pd.DataFrame, models: ShownModels) -> list[PairOfLines]:
    """Pairs across lines, then lines with themselves, then the control."""
    present = set(rows["line"])
    across = [(a, b) for index, a in enumerate(models.series) for b in models.series[index + 1 :]]
    pairs = [_pair(a, b, f"{a.label} – {b.label}") for a, b in across]
    pairs += [_pair(a, a, f"{a.label}, two seeds") for a in models.series]
    seeds = "seed_a" in rows and bool((rows["seed_a"] != rows["seed_b"])[rows["line"] == CONTROL].any())
    title = "two untrained models" + (", two seeds" if seeds else "")
    return [
        *(pair for pair in pairs if pair.key in present),
        *([PairOfLines(key=CONTROL, up="the one", across="the other", title=title)] if CONTROL in present else []),
    ]


def _pair(a: Series, b: Series, title: str) -> PairOfLines:
    up, across = (a.label, b.label) if a.key != b.key else ("one seed", "another seed")
    return PairOfLines(key=a.key + JOIN + b.key, up=up, across=across, title=title, same=a.key == b.key)


def means(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per pair of layers: mean over pairs of models with its interval, and the mean baseline."""
    found = []
    by_layers: Any = rows.groupby(LAYERS)
    for (layer_a, layer_b), own in by_layers:
        estimate = Samples.of(own, "pair").estimate()
        row = {"layer_a": int(layer_a), "layer_b": int(layer_b)}
        row |= {"value": estimate.value, "low": estimate.low, "high": estimate.high}
        row |= {"baseline": float(own["baseline"].mean()), "pairs": estimate.seeds, "count": estimate.count}
        found.append(row | {"shown": estimate_text(estimate)})
    return pd.DataFrame(found)


def equal_depth(table: pd.DataFrame) -> pd.Series:
    """Which cells compare layers of equal relative depth."""
    depth_a, depth_b = int(table["layer_a"].max()), int(table["layer_b"].max())
    return table["layer_a"] == (table["layer_b"] * depth_a / max(depth_b, 1)).round().astype(int)


def excess_at_equal_depth(rows: pd.DataFrame) -> Estimate:
    """Mean over layers of equal depth minus the mean over all others, paired within each pair of models."""
    chosen = equal_depth(rows)
    return (_mean(rows[chosen]) - _mean(rows[~chosen])).estimate()


def _mean(rows: pd.DataFrame) -> Samples:
    groups = [(pair, own.dropna(subset="value")) for pair, own in rows.groupby("pair")]
    groups = [(pair, own) for pair, own in groups if len(own)]
    return Samples.by_key(
        values={pair: float(own["value"].mean()) for pair, own in groups},
        replicates={pair: np.mean(np.stack(own["replicates"].to_list()), axis=0) for pair, own in groups},
        count=int(rows["count"].median()) if len(rows) else 0,
        units=seeds_of_pairs(rows, "pair", np.flatnonzero(~rows.duplicated("pair"))),
    )
