"""From measure tables to curves: one row per line and layer, with its interval."""

from dataclasses import asdict

import numpy as np
import pandas as pd

from ._numbers import estimate_text
from ._samples import Estimate, Samples
from .forms._hollow import HOLLOW

COLUMNS = ["series", "group", "layer", "value", "low", "high", "seeds", "count"]


def curves(frame: pd.DataFrame, layer: str = "layer", by: str = "seed") -> pd.DataFrame:
    """Mean and interval of each line at each layer.

    `group` is "trained", "untrained" (the control models) or "baseline" (the measure's own control, such as shuffled
    labels, averaged over models). `frame` needs the column `series` (see `ShownModels.named`).
    """
    rows = []
    positions = frame[layer].to_numpy(dtype=float, na_value=np.nan)
    for series in dict.fromkeys(frame["series"]):
        for trained, group in ((True, "trained"), (False, "untrained")):
            own = _of_line(frame, series, trained)
            for position in np.unique(positions[own & ~np.isnan(positions)]).tolist():
                samples = Samples.of(frame, by, own & (positions == position))
                rows.append(_row(series, group, position, samples.estimate()))
    trained_rows = frame.loc[frame["trained"], [layer, "baseline"]]
    for position, at in trained_rows.dropna(subset="baseline").groupby(layer, sort=True):
        base = float(at["baseline"].mean())
        spread = Estimate(
            value=base, low=float(at["baseline"].min()), high=float(at["baseline"].max()), seeds=0, count=0
        )
        rows.append(_row("", "baseline", position, spread))
    return pd.DataFrame(rows, columns=[*COLUMNS, "shown"])


def samples_at(frame: pd.DataFrame, series: str, layer: int, trained: bool = True, column: str = "layer") -> Samples:
    """One line's samples at one layer."""
    among = _of_line(frame, series, trained) & (frame[column] == layer).to_numpy(dtype=bool, na_value=False)
    return Samples.of(frame, among=among)


def layers_of(frame: pd.DataFrame, series: str, column: str = "layer") -> list[int]:
    """The layers at which a line was measured, in order."""
    return sorted(int(layer) for layer in frame.loc[frame["series"] == series, column].unique())


def has_untrained(frame: pd.DataFrame) -> bool:
    return bool((~frame["trained"]).any())


def interval_note(table: pd.DataFrame) -> str:
    """What the bands of these curves are, and how many observations lie behind a point."""
    trained = table[table["group"] == "trained"]
    if trained.empty:
        return ""
    seeds = int(trained["seeds"].max())
    if seeds > 1:
        bands = f"Lines are means over {seeds} seeds, bands their 95% intervals over seeds and sentences"
    else:
        bands = f"Bands are 95% intervals over sentences, {HOLLOW}"
    if bool(trained["low"].isna().all()):
        bands = "No interval is known for these values"
    count = int(trained["count"].median())
    return f"{bands}; {count:,} occurrences behind each point." if count else f"{bands}."


def _of_line(frame: pd.DataFrame, series: str, trained: bool) -> np.ndarray:
    """For each row whether it is of that line."""
    same = (frame["series"] == series) & (frame["trained"] == trained)
    return same.to_numpy(dtype=bool, na_value=False)


def _row(series: str, group: str, layer: float, estimate: Estimate) -> dict:
    shown = estimate_text(estimate)
    row = {"series": series, "group": group, "layer": int(layer), **asdict(estimate)}
    return row | {"shown": shown.split(" (")[0] if group == "baseline" else shown}
