"""What the claims about pruned models read from tables: how many heads can be removed, and which ones remain.

The functions also compare pruned models with models trained from scratch, and describe the remaining heads by kind,
layer, function and gate. Shares of heads have no bootstrap over sentences: their replicates repeat the estimate, so
their intervals come only from seeds.
"""

# R bootstrap replicates, P points of a sweep; rows of numbers hold the estimate first, then its replicates: (1 + R, …)

from collections.abc import Sequence
from dataclasses import replace
from math import comb
from typing import Literal

import numpy as np
import pandas as pd

from infoflow.findings._model_group import TRANSLATION, Absent
from infoflow.findings._table import Reading, SeedRows, Table, exact, together
from infoflow.heads import removable

from ..measures import PRUNED_HEADS, PRUNED_ROLES, PRUNING

CHEAP = {"bleu": 0.5, "loss": 0.05}
"""Maximum cost of removable heads: BLEU, or nats per token."""
GATES, SCRATCH, RANDOM = "hard-concrete", "scratch", "random"
ENCODER, ALL = "encoder-self", "all"
"""Scopes: the heads of the encoder, or of every kind of attention."""
WHOLE = ("unpruned", "importance", "iterative", "confidence", "relevance", "random", SCRATCH)
"""Methods whose step with all heads is the converged model itself."""
KINDS = ("encoder-self", "decoder-self", "decoder-cross")
PUBLISHED_LEFT = 17 / 48
"""Share of the encoder's heads left in the paper's model whose functions were counted."""

_METRICS = ("bleu", "loss")
_HEAD = ("stack", "kind", "layer", "head")
_CONVERGED = -1  # number of the step before the sweep in the table of roles


def pruning_quality() -> Table:
    """Scores of pruned translation models, without unknown scores."""
    needs = ("method", "scope", "draw", "point", "baseline", "replicates", "kept", "total", "kept_decoder_self")
    return Table(PRUNING.name, TRANSLATION, needs=(*needs, "kept_decoder_cross"), known=True)


def removable_share(method: str = GATES) -> Reading:
    """Largest share of the encoder's heads whose removal costs at most `CHEAP`, in BLEU or, if unscored, in loss.

    The curve of each seed and draw starts at the unpruned model, is linear between steps, and is followed until it
    first exceeds that cost; a seed's number is the mean over draws. If a curve contains the unpruned model as a step,
    costs are differences on the same sentences; otherwise intervals reflect only the pruned model's sentences.
    """
    table = pruning_quality().where(metric=_METRICS)
    return together(_removable_share, _chosen_by(table, method, ENCODER), table.where(scope=...))


def pruned_less_scratch(pruned: str = GATES) -> Reading:
    """Quality of the pruned models minus that of models trained from scratch with the same heads, in BLEU and in loss.

    The mean is over the steps that have both models, and positive if the pruned model is better; NaN for an unscored
    metric. It uses the steps of the sweep among all heads if there is one, else those of the sweep among the encoder's
    heads. With `pruned="random"`, the converged model with as many randomly chosen heads takes the place of the pruned
    model; its quality is interpolated between the steps of the mean random order.
    """
    return pruning_quality().where(metric=..., scope=...).reduce(_pruned_less_scratch, pruned=pruned)


def alive_by_kind(method: str = GATES, *, uniform: bool = False) -> Reading:
    """Mean share of living heads over the steps that left some heads but not all, in the sweep among all heads.

    It returns one number for each of `KINDS`, then the lower half of the layers minus the upper half for the decoder's
    self-attention, and the upper minus the lower for cross-attention (the middle layer of an odd number is in neither;
    NaN with one layer). With `uniform`, it returns the same for removal of an equal share from every kind and layer.
    """
    table = _sweep(PRUNED_HEADS.name, *_HEAD, number="alive").where(stack=...)
    return _chosen_by(table, method, ALL).reduce(_alive_by_kind, uniform=uniform)


def surviving_roles(kept: Literal["sweep", "random"] = "sweep") -> Reading:
    """Share of the encoder's head functions that some remaining head still has, with under half of the heads left.

    It uses the sweep step nearest to `PUBLISHED_LEFT` among those with fewer than half of the heads left. A function is
    a role of the table `head_roles` that some head of the converged model holds. With `kept="random"`, it is the exact
    expected share for as many heads drawn at random from the converged model: 1 − C(n − m, k) / C(n, k) for a function
    that m of n heads hold, with k heads drawn. The second number is the number of functions.
    """
    table = _sweep(PRUNED_ROLES.name, *_HEAD, "role", "present", number="alive")
    table = replace(table, absent="no head of the converged models held a function, or no sweep measured roles")
    return table.where(stack="encoder", kind="self", scope=ENCODER).reduce(_surviving_roles, kept=kept)


def undecided_gates(at: Literal["largest", "zero"] = "largest") -> Reading:
    """Share of the gates that are neither 0 nor 1 in evaluation, at one end of the sweep of penalties.

    `at` selects the largest penalty or a penalty of 0. The gates are those on the encoder's heads if these were
    learned, else those on all heads. The second number is the number of gates.
    """
    curve = _sweep("pruning", "setting", number="undecided").where(metric=..., method=GATES, scope=(ENCODER, ALL))
    gates = _sweep(PRUNED_HEADS.name, number="log_alpha").where(stack=..., method=GATES, scope=(ENCODER, ALL))
    return together(_undecided, replace(curve, absent=_not_chosen(GATES, ENCODER)), gates, at=at)


def paired_difference(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Difference, paired by replicate; a single row is a number without replicates."""
    common = min(len(first), len(second)) if len(second) > 1 else len(first)
    return first[:common] - (second[:common] if len(second) > 1 else second)


def side_by_side(gaps: Sequence[np.ndarray | None]) -> np.ndarray:
    """Stack numbers with replicates, (1 + R,) each, as columns of their common length; unknown ones become NaN."""
    common = min((len(gap) for gap in gaps if gap is not None), default=1)
    return np.stack([np.full(common, np.nan) if gap is None else gap[:common] for gap in gaps], axis=1)


def _sweep(name: str, *needs: str, number: str) -> Table:
    return Table(name, TRANSLATION, needs=("method", "scope", "draw", "point", *needs), number=number)


def _chosen_by(table: Table, method: str, scope: str) -> Table:
    return replace(table.where(method=method, scope=scope), absent=_not_chosen(method, scope))


def _not_chosen(method: str, scope: str) -> str:
    heads = "heads (scope all)" if scope == ALL else "heads of the encoder"
    return f"no {heads} were chosen by method {method} in a {TRANSLATION.name} model: set it in the plan's [pruning]"


def _method(rows: SeedRows, method: str, scope: str) -> SeedRows:
    found = rows.at((rows.frame["method"] == method) & (rows.frame["scope"] == scope))
    if found.frame.empty:
        raise Absent(_not_chosen(method, scope))
    return found


def _removable_share(rows: SeedRows, every: SeedRows) -> np.ndarray:
    metric = rows.frame["metric"].iloc[0]
    frame = every.frame
    whole = every.at((frame["metric"] == metric) & (frame["kept"] == frame["total"]) & frame["method"].isin(WHOLE))
    draws = [removable(*_cost_curve(draw, metric, whole)) for _, draw in rows.groups("draw")]
    return np.mean(draws, axis=0)[:, None]


def _cost_curve(rows: SeedRows, metric: str, whole: SeedRows) -> tuple[np.ndarray, np.ndarray]:
    """Shares of the encoder's heads removed, and their costs relative to the allowed cost, (1 + R, P)."""
    heads = rows.frame["total"] - rows.frame["kept_decoder_self"] - rows.frame["kept_decoder_cross"]
    removed = ((rows.frame["total"] - rows.frame["kept"]) / heads).to_numpy(dtype=float)
    start = SeedRows(whole.frame.head(1)).numbers if len(whole.frame) else np.full((1, 1), rows.column("baseline")[0])
    cost_RP = (-1 if metric == "bleu" else 1) * paired_difference(rows.numbers, start) / CHEAP[metric]
    points = np.unique(removed[removed > 0])
    if not len(points):
        raise Absent("no point of the sweep removed a head of the encoder: sweep larger penalties")
    return points, np.stack([cost_RP[:, removed == point].mean(axis=1) for point in points], axis=1)


def _pruned_less_scratch(rows: SeedRows, pruned: str) -> np.ndarray:
    scopes = set(rows.frame.loc[rows.frame["method"] == SCRATCH, "scope"])
    scope = ALL if ALL in scopes else ENCODER
    scratch = _method(rows, SCRATCH, scope)
    scratch = scratch.at(scratch.frame["kept"] < scratch.frame["total"])  # with all heads there is nothing to compare
    both = (_method(rows, pruned, scope), scratch)
    gaps = [_gap(*(one.at(one.frame["metric"] == metric) for one in both), metric, pruned) for metric in _METRICS]
    return side_by_side(gaps)


def _gap(pruned: SeedRows, scratch: SeedRows, metric: str, method: str) -> np.ndarray | None:
    """Mean difference over the steps of one seed, (1 + R,); None if the metric was not scored."""
    if pruned.frame.empty or scratch.frame.empty:
        return None
    sign = 1 if metric == "bleu" else -1
    if method == RANDOM:
        order = pruned.frame.groupby("kept")["value"].mean()
        expected = np.interp(scratch.frame["kept"], order.index.to_numpy(dtype=float), order.to_numpy())
        return np.array([sign * float((expected - scratch.frame["value"]).mean())])
    both = pruned.frame.merge(scratch.frame, on=["draw", "point"], suffixes=("", "_scratch"))
    if both.empty:
        raise Absent("pruning has no point whose heads were also trained from scratch")
    other = both[["value_scratch", "replicates_scratch"]].set_axis(["value", "replicates"], axis=1)
    return sign * paired_difference(SeedRows(both).numbers, SeedRows(other).numbers).mean(axis=1)


def _alive_by_kind(rows: SeedRows, uniform: bool) -> np.ndarray:
    frame = rows.frame.assign(alive=rows.column("alive"), kind=rows.frame["stack"] + "-" + rows.frame["kind"])
    left = frame.groupby(["draw", "point"])["alive"].transform("mean")
    frame = frame[(left > 0) & (left < 1)]
    if frame.empty:
        raise Absent("no point of the sweep removed some, but not all heads")
    own = {kind: frame[frame["kind"] == kind] for kind in KINDS}
    if missing := [kind for kind in KINDS if own[kind].empty]:
        raise Absent(f"pruned_heads has no heads of {', '.join(missing)} in the sweep")
    if uniform:
        return exact([frame["alive"].mean()] * len(KINDS) + [0.0, 0.0])
    shares = [own[kind]["alive"].mean() for kind in KINDS]
    return exact([*shares, -_rise(own["decoder-self"]), _rise(own["decoder-cross"])])


def _rise(frame: pd.DataFrame) -> float:
    """Living share of the upper half of the layers minus that of the lower half."""
    layers = sorted(set(frame["layer"]))
    half = len(layers) // 2
    if not half:
        return float("nan")
    low, high = (frame[frame["layer"].isin(part)]["alive"].mean() for part in (layers[:half], layers[-half:]))
    return float(high - low)


def _surviving_roles(rows: SeedRows, kept: str) -> np.ndarray | None:
    before = rows.frame[rows.frame["point"] == _CONVERGED]
    if before.empty:
        raise Absent(f"pruned_roles has no roles of the converged model (point {_CONVERGED})")
    sweep = _method(rows.at(rows.frame["point"] != _CONVERGED), GATES, ENCODER)
    holders = before[before["present"]].drop_duplicates([*_HEAD, "role"]).groupby("role").size()
    if holders.empty:
        return None
    shares = [_surviving_share(holders, draw.frame, kept) for _, draw in sweep.groups("draw")]
    return exact([np.mean(shares), len(holders)])


def _surviving_share(holders: pd.Series, sweep: pd.DataFrame, kept: str) -> float:
    """Share of functions that survive in one draw; `holders` counts the heads with each role in the converged model."""
    heads = sweep.drop_duplicates(["point", *_HEAD])
    left = heads.groupby("point")["alive"].mean()
    few = left[left < 0.5]
    if few.empty:
        raise Absent(f"no point of the sweep {GATES} left fewer than half of the encoder's heads")
    point = (few - PUBLISHED_LEFT).abs().idxmin()
    if kept == "random":
        alive = heads[heads["point"] == point]["alive"]
        num, drawn = len(alive), int(alive.sum())
        return float(np.mean([1 - comb(num - int(m), drawn) / comb(num, drawn) for m in holders]))
    at = sweep[sweep["point"] == point]
    there = set(at[at["present"].astype(bool) & at["alive"].astype(bool)]["role"])
    return float(np.mean([role in there for role in holders.index]))


def _undecided(curve: SeedRows, heads: SeedRows, at: str) -> np.ndarray:
    key = ["scope", "draw", "point"]
    gates = heads.frame.dropna(subset="log_alpha").groupby(key).size().rename("gates").reset_index()
    rows = curve.frame.drop_duplicates(key).merge(gates, on=key)
    if rows.empty:
        raise Absent(f"pruned_heads has no gates of the sweep {GATES}")
    shares = [_undecided_share(draw, at) for _, draw in rows.groupby("draw")]
    return exact([np.mean(shares), rows["gates"].min()])


def _undecided_share(rows: pd.DataFrame, at: str) -> float:
    end = rows.loc[rows["setting"].idxmax() if at == "largest" else rows["setting"].idxmin()]
    if at == "zero" and end["setting"] > 0:
        raise Absent(f"the sweep begins at a penalty of {end['setting']:g}: let the plan's penalties begin at 0")
    return float(end["undecided"] / end["gates"])
