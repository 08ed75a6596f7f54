"""Rows of the pruning tables, and what all their figures share: sets of heads, methods, axes, the unpruned model."""

from dataclasses import dataclass
from typing import Any

import pandas as pd

from infoflow.report._curves import band_words, mean_of_draws
from infoflow.report._figure import Method
from infoflow.report._in_words import Estimate, Samples
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount
from infoflow.report.forms._lines import LineKind
from infoflow.report.forms._marks import Channel, span
from infoflow.report.forms._rows import cells

LEARNED, SUBSET, SCRATCH, RANDOM = "hard-concrete", "subset", "scratch", "random"
RECOVERED, RECOVERED_RANDOM, RECOVERED_ALL = "recovered", "recovered-random", "recovered-all"
UNPRUNED = "unpruned"
"""The converged model, before any pruning."""
CHEAP = {"bleu": 0.5, "loss": 0.05}
"""Cost that the figures' sentences call almost none, as in the claim heads:V1."""
METRICS = {"bleu": ("BLEU", ""), "loss": ("loss", " (nats per token)")}

_SCOPES = {
    "all": "all heads",
    "decoder-self": "decoder self-attention heads",
    "decoder-cross": "cross-attention heads",
    "encoder-self": "encoder heads",
}
_KEPT = {scope: f"kept_{scope.replace('-', '_')}" for scope in _SCOPES if scope != "all"}


WAYS = (
    LineKind(key=LEARNED, label="learned gates", dash=(1, 0), shape="circle", mark="●"),
    LineKind(key=SUBSET, label="gates for exactly k", dash=(8, 3), shape="diamond", mark="◆"),
    LineKind(
        key="straight-through", label="exactly k, straight-through", dash=(8, 2, 2, 2), shape="triangle-right", mark="▶"
    ),
    LineKind(key="iterative", label="importance, ranked again", dash=(6, 2, 2, 2), shape="triangle-up", mark="▲"),
    LineKind(key="importance", label="importance", dash=(3, 2), shape="square", mark="■"),
    LineKind(key="confidence", label="confidence", dash=(1, 2), shape="triangle-down", mark="▼"),
    LineKind(key="relevance", label="relevance", dash=(5, 2, 1, 2), shape="cross", mark="✚"),
)


@dataclass(frozen=True, kw_only=True, slots=True)
class PrunableHeads:
    """A set of prunable heads of the models that share a line, such as the encoder's heads."""

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
        """The set of heads as the subject of a sentence."""
        return f"{self.heads.capitalize()} of {self.series.label}"

    def of(self, frame: pd.DataFrame) -> pd.DataFrame:
        """The pool's rows."""
        return frame.loc[(frame["series"] == self.series.key) & (frame["scope"] == self.scope)]


def scoped(frame: pd.DataFrame) -> pd.DataFrame:
    """Pruned rows of trained models in the drawn scopes; the column `way` holds the method."""
    frame = frame.loc[frame["trained"] & frame["method"].ne(UNPRUNED) & frame["scope"].isin(_SCOPES)]
    return frame.assign(way=frame["method"].astype(str), scope=frame["scope"].astype(str))


def of_whole_models(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows of trained models with all their heads: before pruning, and after further training."""
    return frame.loc[frame["trained"] & frame["method"].isin([UNPRUNED, RECOVERED_ALL])]


def pools_of(frame: pd.DataFrame, models: ModelSelection) -> list[PrunableHeads]:
    """The pools in reading order: for each line the encoder's heads, then other kinds, then all."""
    pairs = set(frame[["series", "scope"]].itertuples(index=False, name=None))
    scopes = list(_SCOPES)[::-1]
    return [
        PrunableHeads(series=series, scope=scope)
        for series in models.series
        for scope in scopes
        if (series.key, scope) in pairs
    ]


def widest_of(frame: pd.DataFrame, models: ModelSelection) -> list[PrunableHeads]:
    """Each line's last pool, which has the most heads."""
    return list({pool.series.key: pool for pool in pools_of(frame, models)}.values())


def with_counts(frame: pd.DataFrame) -> pd.DataFrame:
    """Add `left` and `size`: remaining and total heads of the pool.

    Heads without a gate count as unchanged.
    """
    kept = [row[_KEPT.get(scope, "kept")] for scope, row in zip(frame["scope"], frame.to_dict("records"), strict=True)]
    left = pd.Series(kept, index=frame.index, dtype=int)
    return frame.assign(left=left, size=left + frame["total"] - frame["kept"])


def quality_curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval at each sweep step of each line, pool, method and metric, from `with_counts`.

    Sweep steps with the same number share a penalty or a number of heads; heads left are also means over seeds. Random
    orders of one seed count once, as their mean.
    """
    rows = []
    groups: Any = frame.groupby(["series", "scope", "way", "metric", "point"], sort=False)
    for (series, scope, way, metric, point), own in groups:
        estimate = Samples.of(mean_of_draws(own)).estimate()
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
                "low": estimate.low,
                "high": estimate.high,
                "unpruned": float(own["baseline"].mean()),
                "seeds": estimate.seeds,
            }
        )
    table = pd.DataFrame(rows).round({"value": 4, "low": 4, "high": 4, "unpruned": 4, "left": 2})
    return table.sort_values(["series", "scope", "way", "metric", "left"], ascending=False)


def metrics_of(frame: pd.DataFrame) -> list[str]:
    """The metrics of the frame; BLEU comes before the loss."""
    present = set(frame["metric"])
    return [metric for metric in METRICS if metric in present]


def signature(frame: pd.DataFrame) -> str:
    """How BLEU was computed, at the end of a caption; empty without BLEU."""
    found = [name for name in dict.fromkeys(frame.get("signature", pd.Series(dtype=str))) if name]
    return f" sacreBLEU signature: {found[0]}." if found else ""


def several(frame: pd.DataFrame, bands: str = "bands") -> str:
    """What a figure's values and bands show, by the number of seeds."""
    return band_words(int(frame["seed"].nunique()), bands=bands)


def over_seeds(seeds: int, bands: str = "bands") -> str:
    """Like `several`, but for counts, which have no interval over sentences and so no bands with one seed."""
    return band_words(seeds, over="", bands=bands)


def percent_over_seeds(percent: dict[object, float]) -> Estimate:
    """Mean of a percentage and its interval over seeds, clipped to 0–100."""
    return Samples.bare(percent, "percent").estimate()


METHOD = Method(
    id="pruning",
    title="Pruning",
    text="""
    Learned gates: each head's output is multiplied by a Hard Concrete gate <i>g</i> = min(1, max(0, 1.2 σ((ln <i>u</i>
    − ln(1 − <i>u</i>) + log <i>α</i>)/.33) − .1)), whose probability of being open is penalised; training starts from
    the converged model and goes from one penalty weight to the next. In evaluation a gate is min(1, max(0, 1.2 σ(log
    <i>α</i>) − .1)), undecided where |log <i>α</i>| &lt; 2.4; a head counts as removed once its gate is 0 (log <i>α</i>
    &lt; −2.4), so an undecided head counts as left. After Voita et al. (2019) and Louizos, Welling and Kingma (2018).
    Trained further: without gates or penalty; removed heads stay removed; the learning rate begins high and falls again
    (learning-rate rewinding, Renda, Frankle and Carbin 2020). Gates for exactly <i>k</i> heads after Li et al. (2021).
    Other methods rank heads on validation sentences and train nothing. Every choice is scored on the same held-out
    sentences; BLEU is sacreBLEU's. Roles are measured again at every point by the thresholds of the head map.
    """,
)

UNPRUNED_NAME = ("·····", "unpruned model", "var(--soft)")
RANDOM_NAME = ("– –", "random choice", "var(--soft)")
_GAP = 0.04  # gap between squares, as a share of their distance


def heads_left(size: int) -> Channel:
    """The axis: all heads at the left, none at the right."""
    return amount("x", "left", f"heads left of {size}", [0, size], reverse=True, tickMinStep=1, ticks=min(5, size))


def points_axis(names: dict[int, str], title: str, gap: float = _GAP) -> Channel:
    """Sweep steps as columns, labelled by `names`."""
    label = f"{list(names.values())}[indexof({list(names)}, datum.value)]"
    return cells("x", "point", title, list(names), whole=True, gap=gap, labelExpr=label, labelOverlap=True)


def rows_axis(field: str, order: list, title: str | None = None) -> Channel:
    """Rows in this order, from the top."""
    return cells("y", field, title, order, gap=_GAP, labelLimit=130)


def span_of(pool: PrunableHeads, curves: pd.DataFrame) -> list[float]:
    """The panel's own quality scale, since heads of all kinds cost many times more than the encoder's."""
    drawn = pool.of(curves)[["low", "high", "value", "unpruned"]]
    low, high = span(drawn, margin=0.06)
    return [max(low, 0.0) if drawn.min().min() >= 0 else low, high]
