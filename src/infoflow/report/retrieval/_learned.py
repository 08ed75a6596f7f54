"""Who learned to answer: the loss that retriever and reader removed, over updates."""

from typing import Any, NamedTuple

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import listed, number
from .._shown_models import ShownModels
from ..adaptation._rows import of
from ..forms._chart import amount, finished, tips, values_of
from ..forms._lines import lines
from ..forms._names import names_above
from ._methods import LEARNED
from ._rows import plain_arms, span

_HEIGHT = 210
_POINTS = 60  # of a line, at most


class _Part(NamedTuple):
    label: str
    color: str
    dash: tuple[int, ...]
    components: tuple[str, ...]


_PARTS = {
    "retriever": _Part("retriever", "var(--series-6)", (1, 0), ("retriever",)),
    "prior": _Part("what weighs passages", "var(--soft)", (2, 3), ("prior",)),
    "attention": _Part("reader's attention", "var(--heat-1)", (1, 0), ("query", "key", "value", "output")),
    "mlp": _Part("reader's feed-forward", "var(--heat-2)", (9, 3), ("mlp_in", "mlp_out")),
    "embeddings": _Part("reader's embeddings", "var(--ink)", (4, 3), ("embeddings", "positions", "segments")),
    "rest": _Part("reader's norms and output", "var(--control)", (1, 2), ()),  # what is left
}


def learned_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """A panel for each arm, a line for each part; None where no loss change of an arm was recorded."""
    own = of(plain_arms(frame), set="train")
    if own.empty:
        return None
    data = _removed(own).assign(name=lambda rows: rows["series"].map({one.key: one.label for one in models.series}))
    series = sorted(models.present(data), key=lambda one: "retriever" not in set(of(data, series=one.key)["part"]))
    seeds = int(own["seed"].nunique())
    bands = ", bands from the lowest to the highest" if seeds > 1 else ""
    return ReportFigure(
        id="retrieval-learned",
        question="Who learns to answer: the retriever or the reader?",
        answer=[_sentence(of(data, series=one.key), one.label) for one in series],
        panels=[Panel(spec=_curve(of(data, series=one.key), data), title=one.label) for one in series],
        caption=f"{seeds} seed{'s' if seeds > 1 else ''}{bands}. All panels on one scale; the loss is taken on "
        "training queries, each with its right passage, others by BM25 and the empty one; the closed book has the last "
        "alone.",
        how_to_read=[
            "Up: the loss that a part of the model has removed until then, in nats per masked token; a line that falls "
            "puts loss back. The lines of a panel add up to the fall of the loss.",
            "A learned retriever is frozen in the first updates, so its line begins flat. What it removes is seen on "
            "fixed candidates: that it finds better ones while it learns is in the figures about search. It would be "
            "surprising if it removed more than the reader.",
        ],
        method=LEARNED,
        data=data,
        tables=("allocation_steps",),
        findings=("retrieval:R-24",),
        payload={"apart": True},
    )


def _removed(own: pd.DataFrame) -> pd.DataFrame:
    """series, part, update, value, low, high: the loss removed until then, mean and ends over seeds; 0 at the start."""
    part = {component: key for key, one in _PARTS.items() for component in one.components}
    rows = own.assign(part=[part.get(str(component), "rest") for component in own["component"]])
    sums = rows.groupby(["series", "seed", "part", "end"], as_index=False)["value"].sum().sort_values("end")
    sums = sums.assign(value=-sums.groupby(["series", "seed", "part"])["value"].cumsum())
    ends = sums.groupby(["series", "part", "end"], as_index=False)["value"].agg(["mean", "min", "max"])
    ends = ends.rename(columns={"end": "update", "mean": "value", "min": "low", "max": "high"})
    updates = sorted(set(ends["update"]))
    ends = ends[ends["update"].isin([*updates[:: max(1, -(-len(updates) // _POINTS))], updates[-1]])]
    start = ends.drop_duplicates(["series", "part"]).assign(update=0, value=0.0, low=0.0, high=0.0)
    found = pd.concat([start, ends], ignore_index=True).sort_values(["series", "update"], kind="stable")
    return found.assign(shown=found["part"].map({key: one.label for key, one in _PARTS.items()}))


def _curve(rows: pd.DataFrame, every: pd.DataFrame) -> dict[str, Any]:
    present = [key for key in _PARTS if key in set(rows["part"])]
    at = {
        "x": alt.X(**amount("update", "update", [0.0, 1.02 * float(every["update"].max())], format="~s", ticks=5)),
        "y": alt.Y(**amount("value", "nats removed", span(every))),
    }
    look = {
        "color": alt.Color(**values_of("part", present, [_PARTS[key].color for key in present])),
        "strokeDash": alt.StrokeDash(**values_of("part", present, [list(_PARTS[key].dash) for key in present])),
    }
    tooltip = tips("shown:N|part", "update:Q||,", "value:Q|nats removed|.3f")
    band = 0.18 if bool((rows["high"] > rows["low"]).any()) else 0.0
    found = lines(rows, at, look, size=0, band=band, touch=60, tooltip=tooltip)
    names = [("—", _PARTS[key].label, _PARTS[key].color) for key in present]
    return finished([*found, names_above(names)], _HEIGHT)


def _sentence(rows: pd.DataFrame, name: str) -> str:
    """What each part removed in all, and when the retriever did half of it."""
    last = rows[rows["update"] == rows["update"].max()].set_index("part")["value"]
    whole = float(last.sum())
    if not whole > 0:
        return f"In {name} the loss did not fall."
    order = last.sort_values(ascending=False)
    percents = {_PARTS[str(part)].label: 100 * float(value) / whole for part, value in order.items()}
    shares = [f"{label} {number(share, 0 if abs(share) >= 1 else 2)}%" for label, share in percents.items()]
    told = f"In {name} the loss falls by {number(whole, 2)} nats: {listed(shares)}."
    done = float(last.get("retriever", 0.0))
    if done <= 0:
        return told
    own = of(rows, part="retriever")
    half = int(own.loc[own["value"] >= done / 2, "update"].min())
    return f"{told} Half of the retriever's part is done by update {half:,}."
