"""From measure tables to curves: one row per line and layer, with its interval."""

from dataclasses import asdict

import numpy as np
import pandas as pd

from ._bands import band_words, seed_bands
from ._numbers import estimate_text
from ._samples import ColumnArrays, Estimate, Samples

COLUMNS = ["series", "group", "layer", "value", "low", "high", "seeds", "count"]


def curves(frame: pd.DataFrame, layer: str = "layer", by: str = "seed") -> pd.DataFrame:
    """Mean and interval of each line at each layer.

    `group` is "trained", "untrained" (the control models) or "baseline" (the measure's own control, such as shuffled
    labels, averaged over models). `frame` needs the column `series` (see `ShownModels.named`).
    """
    rows = []
    for series in dict.fromkeys(frame["series"]):
        for trained, group in ((True, "trained"), (False, "untrained")):
            for position, samples in samples_by_layer(frame, series, trained, layer, by).items():
                rows.append(_row(series, group, position, samples.estimate()))
    controls = frame.loc[frame["trained"]].dropna(subset="baseline")
    controls = controls if "seed" in controls else controls.assign(seed=0)
    for at in seed_bands(controls, [layer], "baseline").sort_values(layer).to_dict("records"):
        base = Estimate(value=at["value"], low=at["low"], high=at["high"], seeds=0, count=0)
        rows.append(_row("", "baseline", float(at[layer]), base))
    return pd.DataFrame(rows, columns=[*COLUMNS, "shown"])


def samples_by_layer(
    frame: pd.DataFrame, series: str, trained: bool = True, column: str = "layer", by: str = "seed"
) -> dict[float, Samples]:
    """One line's samples at each of its layers, in order."""
    own, positions = _of_line(frame, series, trained), frame[column].to_numpy(dtype=float, na_value=np.nan)
    found = np.unique(positions[own & ~np.isnan(positions)]).tolist()
    rows = ColumnArrays(frame)
    return {position: Samples.of(rows, by, own & (positions == position)) for position in found}


def samples_at(frame: pd.DataFrame, series: str, layer: int, trained: bool = True, column: str = "layer") -> Samples:
    """One line's samples at one layer."""
    among = _of_line(frame, series, trained) & (frame[column] == layer).to_numpy(dtype=bool, na_value=False)
    return Samples.of(frame, among=among)


def layers_of(frame: pd.DataFrame, series: str, column: str = "layer") -> list[int]:
    """The layers at which a line was measured, in order."""
    return sorted(int(layer) for layer in frame.loc[frame["series"] == series, column].unique())


def has_untrained(frame: pd.DataFrame) -> bool:
    return bool((~frame["trained"]).any())


def interval_note(table: pd.DataFrame, counted: str = "") -> str:
    """What the bands of these curves show, and the number of observations behind a point.

    `counted`: the counted unit, and what the intervals cover; by default occurrences and sentences.
    """
    trained = table[table["group"] == "trained"]
    if trained.empty:
        return ""
    seeds = int(trained["seeds"].max())
    bands = band_words(seeds, counted or "sentences", known=bool(trained["low"].notna().any()))
    count = int(trained["count"].median())
    return f"{bands}; {count:,} {counted or 'occurrences'} behind each point." if count else f"{bands}."


def sample_note(frame: pd.DataFrame) -> str:
    """How many of the requested tokens a sample kept if its byte budget cut it; starts with a space."""
    if "tokens_kept" not in frame:
        return ""
    both = zip(frame["tokens_kept"].tolist(), frame["tokens_requested"].tolist(), strict=True)
    cut = sorted({(int(kept), int(requested)) for kept, requested in both if kept < requested})
    if not cut:
        return ""
    (kept, requested), least = cut[0], "as few as " if len(cut) > 1 else ""
    return f" The token sample kept {least}{kept:,} of {requested:,} tokens requested (analysis.sample_bytes)."


def _of_line(frame: pd.DataFrame, series: str, trained: bool) -> np.ndarray:
    """For each row, whether it belongs to that line."""
    same = (frame["series"] == series) & (frame["trained"] == trained)
    return same.to_numpy(dtype=bool, na_value=False)


def _row(series: str, group: str, layer: float, estimate: Estimate) -> dict:
    shown = estimate_text(estimate)
    row = {"series": series, "group": group, "layer": int(layer), **asdict(estimate)}
    return row | {"shown": shown.split(" (")[0] if group == "baseline" else shown}
