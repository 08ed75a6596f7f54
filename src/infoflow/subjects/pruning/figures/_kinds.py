"""Which kinds of attention and which layers keep their heads along a sweep, and whether gates become 0 or 1."""

import math
from functools import partial
from typing import Any

import pandas as pd

from infoflow.report._figure import Panel, ReportFigure
from infoflow.report._in_words import (
    Candidate,
    Estimate,
    both_extremes,
    extremes_words,
    listed,
    number,
    percent_over_models,
    percent_span,
    plain,
    sentence,
)
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._chart import amount, finished, lit, tips
from infoflow.report.forms._lines import LineKind, control_lines, folded, level, lines, looks_of, names_above
from infoflow.report.forms._marks import Constant
from infoflow.report.forms._rows import squares
from infoflow.report.heads._statistics import KINDS, kind_label

from ..measures import PRUNED_HEADS, PRUNING
from ._rows import (
    LEARNED,
    METHOD,
    SUBSET,
    PrunableHeads,
    heads_left,
    over_seeds,
    percent_over_seeds,
    points_axis,
    pools_of,
    rows_axis,
    widest_of,
)

_LOOKS = {
    order.key: order
    for order in (
        LineKind(key="encoder self-attention", label="", dash=(1, 0), shape="circle", mark="●"),
        LineKind(key="decoder self-attention", label="", dash=(6, 2), shape="square", mark="■"),
        LineKind(key="cross-attention", label="", dash=(2, 2), shape="triangle-up", mark="▲"),
    )
}
_HEIGHT = 220


def kinds_figure(heads: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Each model's widest sweep with learned gates: shares of remaining heads by kind, and by layer."""
    way = LEARNED if bool((heads["way"] == LEARNED).any()) else SUBSET
    heads = heads.loc[heads["way"] == way]
    if heads.empty:
        return None
    own = {pool: _own(pool, heads) for pool in widest_of(heads, models)}
    tables = {pool: _table(rows) for pool, rows in own.items()}
    panels = [panel for pool, table in tables.items() for panel in _panels(pool, table, own[pool])]
    data = pd.concat([t.assign(series=p.series.key, scope=p.scope) for p, t in tables.items()], ignore_index=True)
    seeds = int(heads["seed"].nunique())
    gates = "learned gates" if way == LEARNED else "gates for exactly k heads"
    return ReportFigure(
        id="pruning-kinds",
        question="Which heads are removed first?",
        words=sentence("; ".join(_words(pool, tables[pool], rows) for pool, rows in own.items())),
        panels=panels,
        caption=f"Heads that {gates} keep. {over_seeds(seeds)}; squares hold the number of heads left, rounded. Grey "
        "and dashed: what is left if every kind loses the same share.",
        how_to_read=[
            "Lines: the share of each kind's heads that is left, by the total number of heads left. A kind above the "
            "dashed line keeps its heads longer than others; a kind below it loses them first.",
            "Maps: layers from bottom (0) to top; one column for each point of the sweep, with the total number of "
            "heads left under it. The stronger the colour, the larger the share of the layer's heads that is left.",
            "It would be surprising if all kinds stayed on the dashed line: then it would not matter where a head is.",
        ],
        method=METHOD,
        data=data,
        tables=(PRUNED_HEADS.name,),
        findings=("heads:V3",),
    )


def _own(pool: PrunableHeads, heads: pd.DataFrame) -> pd.DataFrame:
    """The pool's rows for kinds of attention whose heads could be pruned."""
    own = pool.of(heads)
    own = own.assign(name=[kind_label(s, k) for s, k in zip(own["stack"], own["kind"], strict=True)])
    lost = own.groupby("name")["alive"].transform("min")
    gated = own["log_alpha"].notna() if "log_alpha" in own else True
    return own.loc[~lost.astype(bool) | gated]


def _table(own: pd.DataFrame) -> pd.DataFrame:
    """Share and number of remaining heads by sweep step, kind and layer; `left` and `size` count all these kinds."""
    own = own.assign(alive=own["alive"].astype(float))
    models = own.groupby("point")[["seed", "draw"]].apply(lambda rows: len(rows.drop_duplicates()))
    grouped: Any = own.groupby(["point", "name", "layer"])
    table = grouped["alive"].agg(share="mean", alive="sum").reset_index()
    table["alive"] = table["alive"] / table["point"].map(models)
    table["left"] = table.groupby("point")["alive"].transform("sum")
    table["size"] = (table["alive"] / table["share"]).groupby(table["point"]).transform("sum").max().round().astype(int)
    return table.round({"share": 4, "alive": 3, "left": 3})


def _kinds(table: pd.DataFrame) -> list[str]:
    present = set(table["name"])
    return [name for name in KINDS.values() if name in present] + sorted(present - set(KINDS.values()))


def _panels(pool: PrunableHeads, table: pd.DataFrame, own: pd.DataFrame) -> list[Panel]:
    kinds = _kinds(table)
    maps = [Panel(spec=_map(table.loc[table["name"] == kind]), title=f"{pool.series.label}, {kind}") for kind in kinds]
    if len(kinds) == 1:
        return maps
    lines = _lines(_by_kind(own), kinds, int(table["size"].iloc[0]), pool.series)
    return [Panel(spec=lines, title=f"{pool.series.label}, by kind"), *maps]


def _by_kind(own: pd.DataFrame) -> pd.DataFrame:
    """Percentage of each kind's heads left at each sweep step, its interval over seeds, and the total number left."""
    rows = []
    for point, at in own.groupby("point"):
        left = at.groupby(["seed", "draw"])["alive"].sum().mean()
        for name, kind in at.groupby("name"):
            estimate = percent_over_seeds({seed: 100 * share for seed, share in _share_alive(kind).items()})
            rows.append({"point": point, "name": name, "left": float(left), "percent": estimate.value,
                         "low": estimate.low, "high": estimate.high})  # fmt: skip
    return pd.DataFrame(rows).sort_values(["name", "left"], ascending=False)


def _words(pool: PrunableHeads, table: pd.DataFrame, own: pd.DataFrame) -> str:
    """The kinds or layers with the most and fewest remaining heads when half of all heads are left."""
    point, left, size = _halfway(table)
    kinds = _kinds(table)
    by, each = ("name", "{}") if len(kinds) > 1 else ("layer", "layer {}")
    at = own.loc[own["point"] == point]
    found = [
        Candidate(f"in {each.format(name)}", percent_over_models(_share_alive(rows)))
        for name in (kinds if by == "name" else sorted(set(at["layer"])))
        for rows in [at.loc[at[by] == name]]
    ]
    stated = both_extremes(found, "%").replace(" %", "%")
    return f"with {number(left, 0)} of {size} heads of {pool.series.label} left, the share left is {stated}"


def _share_alive(rows: pd.DataFrame) -> dict[object, float]:
    return rows["alive"].astype(float).groupby(rows["seed"]).mean().to_dict()


def _halfway(table: pd.DataFrame) -> tuple[int, float, int]:
    """The sweep step nearest to half of the heads, the heads left there, and the total."""
    size = int(table["size"].iloc[0])
    left = table.groupby("point")["left"].first()
    point = (left - size / 2).abs().idxmin()
    return int(str(point)), float(left[point]), size


def _lines(rows: pd.DataFrame, kinds: list[str], size: int, series: Series) -> dict[str, Any]:
    if int(rows["left"].max()) < size:  # every line starts at the unpruned model
        bound = 100.0 if bool(rows["low"].notna().any()) else math.nan
        starts = pd.DataFrame({"name": kinds, "left": float(size), "percent": 100.0, "low": bound, "high": bound})
        rows = pd.concat([starts, rows]).sort_values(["name", "left"], ascending=False)
    orders = [
        _LOOKS.get(kind, LineKind(key=kind, label=kind, dash=(4, 2), shape="diamond", mark="◆")) for kind in kinds
    ]
    even = pd.DataFrame([{"left": size, "value": 100.0}, {"left": 0, "value": 0.0}])
    at = {"x": heads_left(size), "y": amount("y", "value", "alive (%)", [0, 100])}
    rows = rows.assign(value=rows["percent"]).loc[:, ["name", "left", "value", "low", "high"]].round(1)
    tooltip = tips("name:N", "left:Q|heads left", "value:Q|alive (%)")
    how = {"light": partial(lit, of=series), "band": 0.12, "width": 1.8, "size": 30, "touch": 0}
    names = [("– –", "equal shares", "var(--soft)"), *((order.mark, order.key, series.color) for order in orders)]
    look, fold = looks_of(orders, "name", series.color), partial(folded, by="name")
    even_lines = control_lines(even, at, band=0, by="")
    layers = [*lines(rows, at, look, **how, tooltip=tooltip, on=fold, beneath=even_lines), names_above(names)]
    return finished(layers, _HEIGHT)


def _map(table: pd.DataFrame) -> dict[str, Any]:
    layers = sorted({int(layer) for layer in table["layer"]}, reverse=True)
    points = table.sort_values("point").drop_duplicates("point")
    names = {int(point): number(left, 0) for point, left in zip(points["point"], points["left"], strict=True)}
    rows = table.assign(text=[number(alive, 0) for alive in table["alive"]], share=table["share"].round(3))
    x = points_axis(names, f"heads left of {int(table['size'].iloc[0])}")
    marks = folded(rows[["point", "layer", "share", "text"]], "layer")
    return finished(squares(marks, x, rows_axis("layer", layers, "layer"), "share"), max(22 * len(layers), 60))


# Whether learned gates decide along a sweep of penalties.


_STARTS = (((1, 0), "circle", "●"), ((6, 2), "square", "■"), ((2, 2), "triangle-up", "▲"), ((4, 2), "diamond", "◆"))
_GATES_HEIGHT = 200


def gates_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """Shares of undecided gates at each penalty, one line per model and set of heads."""
    frame = frame.loc[frame["way"] == LEARNED].drop_duplicates(["series", "scope", "seed", "draw", "point"])
    if frame.empty:
        return None
    frame = frame.assign(percent=100 * frame["undecided"] / frame["size"])
    pools = pools_of(frame, models)
    table = pd.concat([_curve(pool, pool.of(frame)) for pool in pools], ignore_index=True)
    free = frame.loc[frame["setting"] == 0]
    starts = {pool: float(pool.of(free)["percent"].mean()) if len(pool.of(free)) else 100.0 for pool in pools}
    name = "without a penalty" if len(free) else "before training"
    sizes = {pool: int(pool.of(frame)["size"].iloc[0]) for pool in pools}
    gates = [f"{size:,} gates on {pool.heads} of {pool.series.label}" for pool, size in sizes.items()]
    seeds = int(frame["seed"].nunique())
    return ReportFigure(
        id="pruning-gates",
        question="Do the gates decide?",
        words=_gates_words(starts, table, name),
        panels=[Panel(spec=_chart(table, starts, name))],
        caption=f"{over_seeds(seeds)}; {listed(gates)}.",
        how_to_read=[
            "Across: the points of the sweep, by the weight of the penalty on open gates; each point starts from the "
            "previous one. Up: the share of gates between 0 and 1, which would pass on part of their head's output.",
            "While gates are undecided, it is unclear which heads the model needs, and their heads count as left. "
            "Gates start undecided; it would be surprising if many still were at the end.",
        ],
        method=METHOD,
        data=table,
        tables=(PRUNING.name,),
        findings=("heads:V5",),
    )


def _curve(pool: PrunableHeads, own: pd.DataFrame) -> pd.DataFrame:
    rows = []
    for point, at in own.groupby("point"):
        estimate = percent_over_seeds(dict(zip(at["seed"], at["percent"].astype(float), strict=False)))
        rows.append({"point": int(str(point)), "setting": float(at["setting"].mean()), "value": estimate.value,
                     "low": estimate.low, "high": estimate.high, "seeds": estimate.seeds})  # fmt: skip
    return pd.DataFrame(rows).assign(series=pool.series.key, scope=pool.scope)


def _gates_words(starts: dict[PrunableHeads, float], table: pd.DataFrame, name: str) -> str:
    """Where the largest and the smallest share of gates is undecided at the largest penalty."""
    ends = [(f"for {pool.heads} of {pool.series.label}", _end(pool, table)) for pool in starts]
    found = [Candidate(who, one if one.high > one.low else plain(one.value)) for who, one in ends]
    before = f"{name} it is {percent_span(start / 100 for start in starts.values())}"
    return extremes_words("at the largest penalty, the share of undecided gates", found, "%", end=before)


def _end(pool: PrunableHeads, table: pd.DataFrame) -> Estimate:
    """Percent undecided at the largest penalty."""
    end = pool.of(table).sort_values("setting").iloc[-1]
    value, low, high = (float(end[name]) for name in ("value", "low", "high"))
    return Estimate(value=value, low=low, high=high, seeds=int(end["seeds"]), count=0)


def _chart(table: pd.DataFrame, starts: dict[PrunableHeads, float], name: str) -> dict[str, Any]:
    points = table.drop_duplicates("point").sort_values("point")
    names = {int(point): f"{setting:g}" for point, setting in zip(points["point"], points["setting"], strict=True)}
    at = {"x": points_axis(names, "weight of the penalty", gap=0), "y": amount("y", "value", "undecided (%)", [0, 100])}
    layers = [level(value, y=at["y"]) for value in sorted(set(starts.values()))]
    entries = [("– –", name, "var(--soft)")]
    tooltip = tips("series:N|model", "value:Q|undecided (%)")
    for k, pool in enumerate(starts):
        dash, shape, mark = _STARTS[k % len(_STARTS)]
        rows = pool.of(table)[["series", "point", "value", "low", "high"]].round(2)
        color = pool.series.color
        look = {"color": Constant(color), "strokeDash": Constant(list(dash)), "shape": Constant(shape)}
        light = partial(lit, of=pool.series)
        layers += lines(rows, at, look, light=light, band=0.15, width=1.8, size=36, touch=0, tooltip=tooltip)
        entries.append((mark, pool.title, color))
    return finished([*layers, names_above(entries)], _GATES_HEIGHT)
