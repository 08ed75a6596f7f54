"""What claims read of the quality of pruned models: how many heads can go, and whether training from scratch does
as well."""

# R bootstrap replicates, P points of a sweep; rows of numbers hold the estimate first, then its replicates: (1 + R, …)

from dataclasses import dataclass

import numpy as np
import pandas as pd

from infoflow.results import Spec

from ._model_group import Absent
from ._panel import Panel
from ._reading import Objective, Tables, replicates_of, require_rows

CHEAP = {"bleu": 0.5, "loss": 0.05}
"""What heads may cost to count as removable: BLEU, or nats per token."""
GATES, SCRATCH, RANDOM = "hard-concrete", "scratch", "random"
ALL = "-all"
"""Ends the name of a method that could choose among all heads, not among the encoder's alone."""
UNTRAINED = ("unpruned", "importance", "iterative", "confidence", "relevance", "random", SCRATCH)
"""Methods of which a point with all heads is the converged model itself."""

_TABLE = "pruning"
_METRICS = ("bleu", "loss")
_KEPT = ["kept", "total", "kept_decoder_self", "kept_decoder_cross"]


@dataclass(frozen=True, kw_only=True, slots=True)
class RemovableShare:
    """Largest share of the encoder's heads whose removal costs at most `CHEAP`, in BLEU or, without it, in loss.

    The curve of each seed and draw starts at the unpruned model, is straight between points, and is followed up to
    where it first costs more; seeds' numbers are means over draws. Where some curve holds the unpruned model as a
    point, costs are differences on the same sentences; elsewhere intervals count the sentences of the pruned one alone.
    """

    objective: Objective
    method: str = GATES

    @property
    def sources(self) -> tuple[str, ...]:
        return (_TABLE,)

    def panel(self, tables: Tables) -> Panel:
        frame = quality_rows(tables, self.objective)
        rows = of_method(frame, self.method, self.objective)
        metric = _common_metric(rows)
        frame, rows = frame[frame["metric"] == metric], rows[rows["metric"] == metric]
        return stacked({seed: self._seed(own, frame[frame["seed"] == seed]) for seed, own in rows.groupby("seed")})

    def _seed(self, rows: pd.DataFrame, frame: pd.DataFrame) -> np.ndarray:
        return np.mean([removable(*_cost_curve(draw, frame)) for _, draw in rows.groupby("draw")], axis=0)[:, None]


@dataclass(frozen=True, kw_only=True, slots=True)
class PrunedLessScratch:
    """Quality of the pruned models less that of models trained from scratch with the same heads, in BLEU and in loss.

    Mean over the points that have both, positive where the pruned model is better; NaN for a metric that was not
    scored. All heads where they were pruned, else the encoder's. With `pruned="random"`: as many random heads of the
    converged model, interpolated along the mean random order.
    """

    objective: Objective
    pruned: str = GATES

    @property
    def sources(self) -> tuple[str, ...]:
        return (_TABLE,)

    def panel(self, tables: Tables) -> Panel:
        frame = quality_rows(tables, self.objective)
        end = ALL if SCRATCH + ALL in set(frame["method"]) else ""
        scratch = of_method(frame, SCRATCH + end, self.objective)
        scratch = scratch[scratch["kept"] < scratch["total"]]  # with all heads there is nothing to compare
        pruned = of_method(frame, self.pruned + end, self.objective)
        seeds = sorted(set(scratch["seed"]) & set(pruned["seed"]))
        if not seeds:
            raise Absent(f"{_TABLE} has no seed with both {self.pruned + end} and {SCRATCH + end}")
        found = {}
        for seed in seeds:
            own = [rows[rows["seed"] == seed] for rows in (pruned, scratch)]
            found[seed] = [self._gap(*(rows[rows["metric"] == metric] for rows in own)) for metric in _METRICS]
        return stacked({seed: _columns(gaps) for seed, gaps in found.items()})

    def _gap(self, pruned: pd.DataFrame, scratch: pd.DataFrame) -> np.ndarray | None:
        """Mean difference over the points of one seed, (1 + R,); None where the metric was not scored."""
        if pruned.empty or scratch.empty:
            return None
        sign = 1 if scratch["metric"].iloc[0] == "bleu" else -1
        if self.pruned == RANDOM:
            order = pruned.groupby("kept")["value"].mean()
            expected = np.interp(scratch["kept"], order.index.to_numpy(dtype=float), order.to_numpy())
            return np.array([sign * float((expected - scratch["value"]).mean())])
        both = pruned.merge(scratch, on=["draw", "point"], suffixes=("", "_scratch"))
        if both.empty:
            raise Absent(f"{_TABLE} has no point at which the pruned map was also trained from scratch")
        other = both[["value_scratch", "replicates_scratch"]].set_axis(["value", "replicates"], axis=1)
        return sign * _difference(numbers(both), numbers(other)).mean(axis=1)


def quality_rows(tables: Tables, objective: Objective) -> pd.DataFrame:
    """The rows of the objective's models in the table of pruned models."""
    columns = ["objective", "seed", "method", "draw", "point", "metric", "value", "baseline", "replicates", *_KEPT]
    frame = tables.rows(_TABLE, Spec(objective), columns)
    rows = frame[frame["metric"].isin(_METRICS)].dropna(subset="value")
    require_rows(rows, tables.table(_TABLE), _TABLE, objective, True)
    return rows


def of_method(frame: pd.DataFrame, method: str, objective: Objective) -> pd.DataFrame:
    """The rows of one way to choose heads."""
    rows = frame[frame["method"] == method]
    if rows.empty:
        raise Absent(f"no heads of a {objective} model were chosen by {method}: set it in the plan's [pruning]")
    return rows


def numbers(rows: pd.DataFrame) -> np.ndarray:
    """Estimates and replicates of each row, (1 + R, rows)."""
    return np.concatenate([rows["value"].to_numpy(dtype=float)[None], replicates_of(rows).T])


def stacked(found: dict) -> Panel:
    """A panel of (1 + R, K) numbers of each seed."""
    if not found:
        raise Absent("no seed has what the claim needs")
    common = min(len(rows) for rows in found.values())
    rows_URK = np.stack([rows[:common] for rows in found.values()])
    units = tuple((int(seed),) for seed in found)
    return Panel(units=units, layers=(0,), values_UK=rows_URK[:, 0], replicates_URK=rows_URK[:, 1:])


def removable(removed_P: np.ndarray, cost_RP: np.ndarray) -> np.ndarray:
    """Where each row of costs, in units of what is allowed, first exceeds 1; (rows,).

    Args:
        removed_P: Shares removed, rising.
        cost_RP: Costs there; nothing removed costs nothing.
    """
    share_P = np.concatenate([[0.0], removed_P])
    cost_RP = np.concatenate([np.zeros((len(cost_RP), 1)), cost_RP], axis=1)
    found = np.full(len(cost_RP), share_P[-1])
    for row, cost_P in enumerate(cost_RP):
        dear = np.flatnonzero(cost_P > 1)
        if len(dear):
            after, before = dear[0], dear[0] - 1
            part = (1 - cost_P[before]) / (cost_P[after] - cost_P[before])
            found[row] = share_P[before] + part * (share_P[after] - share_P[before])
    return found


def _common_metric(rows: pd.DataFrame) -> str:
    """BLEU where every seed has it, else the loss."""
    scored = rows.groupby("metric")["seed"].nunique()
    return "bleu" if scored.get("bleu", 0) == rows["seed"].nunique() else "loss"


def _cost_curve(rows: pd.DataFrame, frame: pd.DataFrame) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the encoder's heads removed, and costs there in units of what is allowed, (1 + R, P)."""
    heads = rows["total"] - rows["kept_decoder_self"] - rows["kept_decoder_cross"]
    removed = ((rows["total"] - rows["kept"]) / heads).to_numpy(dtype=float)
    metric = str(rows["metric"].iloc[0])
    sign = -1 if metric == "bleu" else 1
    whole = frame[(frame["kept"] == frame["total"]) & frame["method"].str.removesuffix(ALL).isin(UNTRAINED)]
    start = numbers(whole.head(1)) if len(whole) else np.full((1, 1), float(rows["baseline"].iloc[0]))
    cost_RP = sign * _difference(numbers(rows), start) / CHEAP[metric]
    points = np.unique(removed[removed > 0])
    if not len(points):
        raise Absent("no point of the sweep removed a head of the encoder: sweep larger penalties")
    return points, np.stack([cost_RP[:, removed == point].mean(axis=1) for point in points], axis=1)


def _difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Paired, replicate by replicate; a single row is a number without replicates."""
    common = min(len(first), len(second)) if len(second) > 1 else len(first)
    return first[:common] - (second[:common] if len(second) > 1 else second)


def _columns(gaps: list[np.ndarray | None]) -> np.ndarray:
    known = [gap for gap in gaps if gap is not None]
    common = min((len(gap) for gap in known), default=1)
    return np.stack([np.full(common, np.nan) if gap is None else gap[:common] for gap in gaps], axis=1)
