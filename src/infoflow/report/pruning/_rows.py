"""Rows of the tables of pruning as the report shows them: by way of choosing heads, and by which heads might go."""

from dataclasses import dataclass, replace
from typing import Any

import pandas as pd

from .._samples import Estimate, Samples
from .._series import Series
from .._shown_models import ShownModels
from ..forms._hollow import HOLLOW

LEARNED, SUBSET, SCRATCH, RANDOM = "hard-concrete", "subset", "scratch", "random"
RECOVERED, RECOVERED_RANDOM, RECOVERED_ALL = "recovered", "recovered-random", "recovered-all"
UNPRUNED = "unpruned"
"""The converged model, which no choice made."""
CHEAP = {"bleu": 0.5, "loss": 0.05}
"""What the sentences call almost no cost, as the claim heads:V1 does."""
METRICS = {"bleu": ("BLEU", ""), "loss": ("loss", " (nats per token)")}

_SCOPES = {
    "all": "all heads",
    "decoder-self": "decoder self-attention heads",
    "decoder-cross": "cross-attention heads",
    "encoder-self": "encoder heads",
}
_KEPT = {scope: f"kept_{scope.replace('-', '_')}" for scope in _SCOPES if scope != "all"}


@dataclass(frozen=True, kw_only=True, slots=True)
class PruningMethod:
    """How heads were chosen, and how its line looks."""

    key: str
    label: str
    dash: tuple[int, ...]
    shape: str
    mark: str  # the shape as a character


WAYS = (
    PruningMethod(key=LEARNED, label="learned gates", dash=(1, 0), shape="circle", mark="●"),
    PruningMethod(key=SUBSET, label="gates for exactly k", dash=(8, 3), shape="diamond", mark="◆"),
    PruningMethod(
        key="straight-through", label="exactly k, straight-through", dash=(8, 2, 2, 2), shape="triangle-right", mark="▶"
    ),
    PruningMethod(key="iterative", label="importance, ranked anew", dash=(6, 2, 2, 2), shape="triangle-up", mark="▲"),
    PruningMethod(key="importance", label="importance", dash=(3, 2), shape="square", mark="■"),
    PruningMethod(key="confidence", label="confidence", dash=(1, 2), shape="triangle-down", mark="▼"),
    PruningMethod(key="relevance", label="relevance", dash=(5, 2, 1, 2), shape="cross", mark="✚"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrunableHeads:
    """The heads of a model's line that might go."""

    series: Series
    scope: str

    @property
    def heads(self) -> str:
        return _SCOPES[self.scope]

    @property
    def title(self) -> str:
        return f"{self.series.label}, {self.heads}"

    @property
    def subject(self) -> str:
        """As a sentence begins with it."""
        return f"{self.heads.capitalize()} of {self.series.label}"

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The pool's rows."""
        return frame.loc[(frame["series"] == self.series.key) & (frame["scope"] == self.scope)]


def scoped(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of trained models with `way` for `method`, of the scopes that are drawn."""
    frame = frame.loc[frame["trained"] & frame["method"].ne(UNPRUNED) & frame["scope"].isin(_SCOPES)]
    return frame.assign(way=frame["method"].astype(str), scope=frame["scope"].astype(str))


def of_whole_models(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of trained models that have all their heads: before any went, and trained on from there."""
    return frame.loc[frame["trained"] & frame["method"].isin([UNPRUNED, RECOVERED_ALL])]


def pools_of(frame: pd.DataFrame, models: ShownModels) -> list[PrunableHeads]:
    """In reading order: of each line the encoder's heads, then other kinds, then all."""
    pairs = set(frame[["series", "scope"]].itertuples(index=False, name=None))
    scopes = list(_SCOPES)[::-1]
    return [
        PrunableHeads(series=series, scope=scope)
        for series in models.series
        for scope in scopes
        if (series.key, scope) in pairs
    ]


def widest_of(frame: pd.DataFrame, models: ShownModels) -> list[PrunableHeads]:
    """Of each line the last of its pools, which has most heads."""
    return list({pool.series.key: pool for pool in pools_of(frame, models)}.values())


def with_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """`left` and `size`: heads of the pool that are left, and that it has. What has no gate stays as it was."""
    kept = [row[_KEPT.get(scope, "kept")] for scope, row in zip(frame["scope"], frame.to_dict("records"), strict=True)]
    left = pd.Series(kept, index=frame.index, dtype=int)
    return frame.assign(left=left, size=left + frame["total"] - frame["kept"])


def quality_curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval at each point of each line, pool, way and metric, from `with_counts`.

    Points of one number stand for one penalty, or one number of heads; their heads are means over seeds too. The band
    of random orders is their whole range, over orders and seeds.
    """
    rows = []
    groups: Any = frame.groupby(["series", "scope", "way", "metric", "point"], sort=False)
    for (series, scope, way, metric, point), own in groups:
        estimate = Samples.of(own).estimate()
        drawn = way == RANDOM
        rows.append(
            {
                "series": series,
                "scope": scope,
                "way": way,
                "metric": metric,
                "point": int(point),
                "setting": float(own["setting"].mean()),
                "left": float(own["left"].mean()),
                "size": int(own["size"].iloc[0]),
                "value": float(own["value"].mean()),
                "low": float(own["value"].min()) if drawn else estimate.low,
                "high": float(own["value"].max()) if drawn else estimate.high,
                "unpruned": float(own["baseline"].mean()),
                "seeds": estimate.seeds,
            }
        )
    table = pd.DataFrame(rows).round({"value": 4, "low": 4, "high": 4, "unpruned": 4, "left": 2})
    return table.sort_values(["series", "scope", "way", "metric", "left"], ascending=False)


def metrics_of(frame: pd.DataFrame) -> list[str]:
    """The metrics that the frame has; BLEU before the loss."""
    present = set(frame["metric"])
    return [metric for metric in METRICS if metric in present]


def signature(frame: pd.DataFrame) -> str:
    """How BLEU was computed, as a caption ends; empty where it was not."""
    found = [name for name in dict.fromkeys(frame.get("signature", pd.Series(dtype=str))) if name]
    return f" sacreBLEU signature: {found[0]}." if found else ""


def several(frame: pd.DataFrame, bands: str = "bands") -> str:
    """What values and bands of a caption's figure are, by the number of seeds."""
    seeds = int(frame["seed"].nunique())
    if seeds > 1:
        return f"Means over {seeds} seeds, {bands} their 95% intervals over seeds and sentences"
    return f"One seed; {bands} are 95% intervals over sentences, {HOLLOW}"


def over_seeds(seeds: int, bands: str = "bands") -> str:
    """The same for what is counted and has no sentences behind it: with one seed there are no bands."""
    return f"Means over {seeds} seeds, {bands} their 95% intervals over seeds" if seeds > 1 else "One seed"


def percent_over_seeds(percent: dict[object, float]) -> Estimate:
    """The mean of a share and its interval over seeds, cut at 0 and 100."""
    estimate = Samples.bare(percent).estimate()
    return replace(estimate, low=max(estimate.low, 0.0), high=min(estimate.high, 100.0))
