"""Definition of bands in all figures: the 95% interval of the mean over seeds and sampled data."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from infoflow.foundation import t_quantile

from ._samples import Samples
from .forms._hollow import HOLLOW


def band_words(seeds: int, over: str = "sentences", bands: str = "bands", known: bool = True) -> str:
    """The caption's sentence about bands, without its full stop.

    Args:
        seeds: Number of seeds behind each mean.
        over: The sampled data besides seeds; "" if nothing was sampled.
        bands: The drawn marks: bands, whiskers.
        known: Whether a single seed has an interval.
    """
    if seeds > 1:
        return f"Means over {seeds} seeds, {bands} their 95% intervals over seeds{f' and {over}' if over else ''}"
    if over and known:
        return f"One seed; {bands} are 95% intervals over {over}, {HOLLOW}"
    return "One seed: no interval is known, and no band is drawn"


def seed_bands(frame: pd.DataFrame, by: Sequence[str], value: str = "value", *, positive: bool = False) -> pd.DataFrame:
    """`value`, `low`, `high` and `seeds` for each combination of `by`: Student's interval of the mean over seeds.

    With one seed the ends are NaN. `positive`: use the log scale, for values that cannot be negative.
    """
    of_seed = frame.groupby([*by, "seed"], sort=False, dropna=False)[value].mean().reset_index()
    grouped: Any = of_seed.groupby(list(by), sort=False, dropna=False)[value]
    table = grouped.agg(value="mean", spread="std", seeds="count").reset_index()
    quantiles = {num: t_quantile(num - 1) if num > 1 else np.nan for num in set(table["seeds"])}
    half = table["seeds"].map(quantiles).astype(float) * table["spread"] / np.sqrt(table["seeds"])
    low, high = table["value"] - half, table["value"] + half
    if positive:
        factor = np.exp(half / table["value"])
        low, high = table["value"] / factor, table["value"] * factor
    return table.assign(low=low, high=high).drop(columns="spread")


def sampled_bands(frame: pd.DataFrame, by: Sequence[str]) -> pd.DataFrame:
    """The same for a measure's rows, over seeds and sentences; one seed keeps its own interval."""
    rows: list[dict[str, Any]] = []
    groups: Any = frame.groupby(list(by), sort=False, dropna=False)
    for key, own in groups:
        found = Samples.of(own).estimate()
        ends = {"value": found.value, "low": found.low, "high": found.high, "seeds": found.seeds}
        rows.append(dict(zip(by, key if isinstance(key, tuple) else (key,), strict=True)) | ends)
    return pd.DataFrame(rows, columns=[*by, "value", "low", "high", "seeds"])


def mean_of_draws(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per seed: the mean over its random draws, with means of their intervals and replicates."""
    if not rows["seed"].duplicated().any():
        return rows
    found = []
    for _, own in rows.groupby("seed", sort=False):
        mean = own.head(1).assign(**{name: float(own[name].mean()) for name in ("value", "low", "high")})
        drawn = [np.asarray(one, dtype=float) for one in own["replicates"]] if "replicates" in own else []
        if drawn and len({one.shape for one in drawn}) == 1:
            mean = mean.assign(replicates=[np.mean(drawn, axis=0)])
        found.append(mean)
    return pd.concat(found)
