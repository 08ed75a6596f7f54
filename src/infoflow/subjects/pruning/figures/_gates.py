"""Whether learned gates decide along a sweep of penalties."""

from functools import partial
from typing import Any

import pandas as pd

from infoflow.report._declared import DeclaredFigure, Drawn
from infoflow.report._figure import Panel
from infoflow.report._in_words import Candidate, extremes_words, percent_span, plain
from infoflow.report._numbers import estimate_text, listed
from infoflow.report._samples import Estimate
from infoflow.report._shown_models import ShownModels
from infoflow.report.forms._chart import amount, finished, lit, tips
from infoflow.report.forms._lines import level, lines
from infoflow.report.forms._marks import Constant
from infoflow.report.forms._names import names_above

from ..measures import PRUNING
from ._rows import LEARNED, METHOD, PrunableHeads, over_seeds, percent_bands, points_axis, pools_of, swept

_LOOKS = (((1, 0), "circle", "●"), ((6, 2), "square", "■"), ((2, 2), "triangle-up", "▲"), ((4, 2), "diamond", "◆"))
_HEIGHT = 200


def _draw_gates(frame: pd.DataFrame, models: ShownModels) -> Drawn | None:
    """Shares of undecided gates at each penalty, one line per model and set of heads."""
    frame = swept(frame)
    frame = frame.loc[frame["way"] == LEARNED].drop_duplicates(["series", "scope", "seed", "draw", "point"])
    if frame.empty:
        return None
    frame = frame.assign(percent=100 * frame["undecided"] / frame["size"])
    pools = pools_of(frame, models)
    table = pd.concat([_curve(pool, pool.of(frame)) for pool in pools], ignore_index=True)
    free = frame.loc[frame["setting"] == 0]
    starts = {pool: float(pool.of(free)["percent"].mean()) if len(pool.of(free)) else 100.0 for pool in pools}
    name = "without a penalty" if len(free) else "before training"
    seeds = int(frame["seed"].nunique())
    return Drawn(
        data=table,
        panels=[Panel(spec=_chart(table, starts, name))],
        answer=[
            f"Gates that are neither 0 nor 1 at the largest penalty: "
            f"{'; '.join(f'{_last(pool, table)} ({name} {start:.0f}%)' for pool, start in starts.items())}."
        ],
        words=_words(starts, table, name),
        caption=f"{over_seeds(seeds)}; {listed([_gates(pool, frame) for pool in pools])}.",
    )


GATES = DeclaredFigure(
    name="pruning/gates",
    id="pruning-gates",
    question="Do the gates decide?",
    how_to_read=(
        "Across: the points of the sweep, by the weight of the penalty on open gates; each goes on from the one "
        "before. Up: the share of gates that would pass on a part of their head's output, neither 0 nor 1.",
        "While gates are undecided, it is open which heads the model needs, and their heads count as left. Gates "
        "start undecided; it would be surprising if many still were at the end.",
    ),
    method=METHOD,
    tables=(PRUNING.name,),
    findings=("heads:V5",),
    draw=_draw_gates,
)


def _curve(pool: PrunableHeads, own: pd.DataFrame) -> pd.DataFrame:
    settings = own.groupby("point", as_index=False)["setting"].mean()
    curve = settings.merge(percent_bands(own, ["point"]), on="point")
    return curve.assign(series=pool.series.key, scope=pool.scope)


def _gates(pool: PrunableHeads, frame: pd.DataFrame) -> str:
    return f"{int(pool.of(frame)['size'].iloc[0]):,} gates on {pool.heads} of {pool.series.label}"


def _words(starts: dict[PrunableHeads, float], table: pd.DataFrame, name: str) -> str:
    """Where most and fewest gates are undecided at the largest penalty."""
    ends = [(f"for {pool.heads} of {pool.series.label}", _end(pool, table)) for pool in starts]
    found = [Candidate(who, one if one.high > one.low else plain(one.value)) for who, one in ends]
    before = f"{name} it is {percent_span(start / 100 for start in starts.values())}"
    return extremes_words("at the largest penalty, the share of undecided gates", found, "%", end=before)


def _end(pool: PrunableHeads, table: pd.DataFrame) -> Estimate:
    """Percent undecided at the largest penalty."""
    end = pool.of(table).sort_values("setting").iloc[-1]
    value, low, high = (float(end[name]) for name in ("value", "low", "high"))
    return Estimate(value=value, low=low, high=high, seeds=int(end["seeds"]), count=0)


def _last(pool: PrunableHeads, table: pd.DataFrame) -> str:
    estimate = _end(pool, table)
    shown = (
        estimate_text(estimate, "%").replace(" %", "%") if estimate.high > estimate.low else f"{estimate.value:.0f}%"
    )
    return f"{pool.heads} of {pool.series.label} {shown}"


def _chart(table: pd.DataFrame, starts: dict[PrunableHeads, float], name: str) -> dict[str, Any]:
    points = table.drop_duplicates("point").sort_values("point")
    names = {int(point): f"{setting:g}" for point, setting in zip(points["point"], points["setting"], strict=True)}
    at = {
        "x": points_axis(names, "weight of the penalty", gap=0),
        "y": amount("y", "value", "undecided (%)", [0, 100]),
    }
    layers = [level(value, y=at["y"]) for value in sorted(set(starts.values()))]
    entries = [("– –", name, "var(--soft)")]
    tooltip = tips("series:N|model", "value:Q|undecided (%)")
    for number, pool in enumerate(starts):
        dash, shape, mark = _LOOKS[number % len(_LOOKS)]
        rows = pool.of(table)[["series", "point", "value", "low", "high"]].round(2)
        color = pool.series.color
        look = {
            "color": Constant(color),
            "strokeDash": Constant(list(dash)),
            "shape": Constant(shape),
        }
        light = partial(lit, of=pool.series)
        layers += lines(rows, at, look, light=light, band=0.15, width=1.8, size=36, touch=0, tooltip=tooltip)
        entries.append((mark, pool.title, color))
    return finished([*layers, names_above(entries)], _HEIGHT)
