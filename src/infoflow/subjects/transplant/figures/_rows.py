"""Learning curves of fresh models as the report shows them: means over draws and seeds, and their differences."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
import pandas as pd

from infoflow.heads import ARMS, log_mean
from infoflow.report._samples import Samples

NONE, SPECIALISED, RANDOM, SHUFFLED = ARMS
WAYS = {False: "heads keep learning", True: "frozen heads"}


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ArmCurve:
    """Scores of one variant by seed, at each step, with their replicates."""

    steps: tuple[int, ...]
    values: dict[object, np.ndarray]  # (P,)
    replicates: dict[object, np.ndarray]  # (R, P)
    count: int

    def at(self, index: int) -> Samples:
        """The score at one step."""
        values = {seed: float(own[index]) for seed, own in self.values.items()}
        drawn = {seed: own[:, index] for seed, own in self.replicates.items()}
        return Samples.by_key(values, drawn, count=self.count)

    def over(self) -> Samples:
        """The mean over the logarithm of updates."""
        values = {seed: float(log_mean(self.steps, own[None])[0]) for seed, own in self.values.items()}
        drawn = {seed: log_mean(self.steps, own) for seed, own in self.replicates.items()}
        return Samples.by_key(values, drawn, count=self.count)


def curve_of(frame: pd.DataFrame, arm: str, frozen: bool, metric: str = "loss") -> ArmCurve | None:
    """A variant's scores from the first update on, as means over its draws; None if there are none."""
    own = frame[(frame["arm"] == arm) & (frame["frozen"] == frozen) & (frame["metric"] == metric) & (frame["step"] > 0)]
    if own.empty:
        return None
    steps = sorted(int(step) for step in own["step"].unique())
    values, replicates = {}, {}
    for seed, rows in own.groupby("seed"):
        wide = rows.pivot_table(index="draw", columns="step", values="value").reindex(columns=steps)
        if wide.isna().to_numpy().any():
            continue  # a seed with missing steps
        values[seed] = wide.to_numpy().mean(axis=0)
        drawn = [
            np.stack([np.asarray(one, dtype=float) for one in part.sort_values("step")["replicates"]], axis=1)
            for _, part in rows.groupby("draw")
        ]
        replicates[seed] = np.mean(drawn, axis=0)
    return ArmCurve(steps=tuple(steps), values=values, replicates=replicates, count=int(own["count"].median()))


def last_of(frame: pd.DataFrame, arm: str, frozen: bool, metric: str) -> Samples | None:
    """A variant's final score; None if there is none."""
    curve = curve_of(frame, arm, frozen, metric)
    return None if curve is None else curve.at(-1)


def curve_rows(frame: pd.DataFrame, arms: Sequence[str]) -> pd.DataFrame:
    """One row per line, freezing, variant and step: the loss, and the gain over the fresh model's own heads."""
    rows: list[dict[str, Any]] = []
    for series, own in frame.groupby("series", sort=False):
        for frozen in WAYS:
            plain = curve_of(own, NONE, frozen)
            for arm in arms:
                curve = curve_of(own, arm, frozen)
                for index, step in enumerate(curve.steps if curve else ()):
                    assert curve is not None
                    row = {"series": series, "frozen": frozen, "arm": arm, "step": step}
                    rows.append({**row, "what": "loss", **asdict(curve.at(index).estimate())})
                    if plain is not None and arm != NONE and plain.steps == curve.steps:
                        gain = (plain.at(index) - curve.at(index)).estimate()
                        rows.append({**row, "what": "gain", **asdict(gain)})
    columns = ["series", "frozen", "arm", "step", "what", "value", "low", "high", "seeds", "count"]
    return pd.DataFrame(rows, columns=columns)
