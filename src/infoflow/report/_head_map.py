"""All heads at a glance: the layer × head grid of each model, one statistic at a time, the same scale everywhere."""

import math
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from ._figure import Figure, Panel
from ._head_names import KINDS, kind_label
from ._language import Cast
from ._layer_chart import PADDING
from ._numbers import listed, number
from ._theme import vega_config

_OFFSETS = {-1: "previous token", 1: "next token", 0: "itself"}


@dataclass(frozen=True, kw_only=True, slots=True)
class Statistic:
    """One of the amounts that the map can show."""

    id: str
    label: str
    unit: str
    explanation: str
    control: str  # what the measure's baseline is
    top: float  # upper end of the colour scale; the lower end is 0
    strong: float | None  # what counts as a strong head in the sentence


def head_map_figure(frames: dict[str, pd.DataFrame], cast: Cast) -> Figure:
    """The map, from whichever of the three head tables are there."""
    rows = _long(frames)
    statistics = _statistics(rows)
    grids = _grids(rows, cast)
    return Figure(
        id="head-map",
        question="What does each head attend to, and how sharply?",
        answer=[_sentence(rows, statistics[0], cast)],
        panels=heat_panels(rows, statistics[0], cast),
        caption=_caption(rows, cast),
        how_to_read=[
            "Each cell is a head: layers from bottom (0) to top, heads from left to right. The stronger the colour, "
            "the more; every grid has the same scale. Blocks count from 0, so layer 0 reads the embeddings.",
            "Choose a statistic above the grids. Click a head, or move with the arrow keys and press Enter, for its "
            "numbers with intervals, beside the control and all other heads.",
            "Heads of different models with the same number do the same job only by chance, unless the models "
            "started from the same initialisation.",
        ],
        method="head-statistics",
        data=rows.drop(columns=[column for column in ("replicates", "model") if column in rows]),
        tables=tuple(frames),
        findings=("heads:V8",),
        template="heads.html.jinja",
        payload={
            "statistics": [_statistic_payload(rows, statistic, cast) for statistic in statistics],
            "grids": grids,
            "seeds": sorted({grid["seed"] for grid in grids}),
            "untrained": any(not grid["trained"] for grid in grids),
        },
    )


def heat_panels(rows: pd.DataFrame, statistic: Statistic, cast: Cast) -> list[Panel]:
    """The grids of the first seed as charts, for files and downloads."""
    first = rows[(rows["statistic"] == statistic.id) & rows["trained"]]
    first = first[first["seed"] == first["seed"].min()]
    groups = [(series, stack, kind) for series in cast.series for stack, kind in _kinds_of(first, series.key)]
    panels = []
    for series, stack, kind in groups:
        own = first[(first["series"] == series.key) & (first["stack"] == stack) & (first["kind"] == kind)]
        title = f"{series.label}, {kind_label(stack, kind)}"
        is_last = (series, stack, kind) == groups[-1]
        panels.append(Panel(spec=_heat_chart(own, statistic, with_legend=is_last), title=title))
    return panels


def head_statistics(frames: dict[str, pd.DataFrame]) -> tuple[pd.DataFrame, list[Statistic]]:
    """All head rows in one frame with a column `statistic`, and what the statistics are."""
    rows = _long(frames)
    return rows, _statistics(rows)


def _long(frames: dict[str, pd.DataFrame]) -> pd.DataFrame:
    parts = []
    for name, frame in frames.items():
        if name == "head_positional":
            parts.append(frame.assign(statistic=[f"offset{offset:+d}" for offset in frame["offset"]]))
        else:
            parts.append(frame.assign(statistic=name.removeprefix("head_")))
    return pd.concat(parts, ignore_index=True)


def _statistics(rows: pd.DataFrame) -> list[Statistic]:
    present = set(rows["statistic"])
    found = []
    if "confidence" in present:
        found.append(
            Statistic(
                id="confidence", label="confidence", unit="", control="uniform attention", top=1.0, strong=0.8,
                explanation="mean strongest attention weight",
            )
        )  # fmt: skip
    if "entropy" in present:
        top = float(rows.loc[rows["statistic"] == "entropy", "value"].max())
        found.append(
            Statistic(
                id="entropy", label="entropy", unit="nats", control="uniform attention", top=top, strong=None,
                explanation="how widely attention spreads over the sentence",
            )
        )  # fmt: skip
    offsets = sorted(
        (int(name.removeprefix("offset")) for name in present if name.startswith("offset")), key=_offset_rank
    )
    for offset in offsets:
        found.append(
            Statistic(
                id=f"offset{offset:+d}", label=_offset_label(offset), unit="", control="a random key", top=1.0,
                strong=0.9,
                explanation=f"share of queries whose strongest key is the {_offset_label(offset)}",
            )
        )  # fmt: skip
    return found


def _offset_rank(offset: int) -> tuple[int, bool]:
    return abs(offset), offset > 0


def _offset_label(offset: int) -> str:
    return _OFFSETS.get(offset) or f"{abs(offset)} tokens {'ahead' if offset > 0 else 'back'}"


def _grids(rows: pd.DataFrame, cast: Cast) -> list[dict[str, Any]]:
    """One entry per model, control and kind of attention: arrays by layer, then head."""
    grids = []
    for series in cast.series:
        own = rows[rows["series"] == series.key]
        for stack, kind in _kinds_of(own, series.key):
            of_kind: Any = own[(own["stack"] == stack) & (own["kind"] == kind)].groupby(["seed", "trained"])
            for (seed, trained), grid in of_kind:
                grids.append(
                    {
                        "id": f"{series.key}/{stack}/{kind}",
                        "label": series.label,
                        "series": series.key,
                        "slot": series.slot,
                        "kind": kind_label(stack, kind),
                        "seed": int(seed),
                        "trained": bool(trained),
                        "layers": int(grid["layer"].max()) + 1,
                        "heads": int(grid["head"].max()) + 1,
                        "statistics": {name: _cells(part) for name, part in grid.groupby("statistic")},
                    }
                )
    return grids


def _cells(part: pd.DataFrame) -> dict[str, list]:
    """value, low, high and baseline by layer and head, flattened; None where unknown."""
    layers, heads = int(part["layer"].max()) + 1, int(part["head"].max()) + 1
    index = pd.MultiIndex.from_product([range(layers), range(heads)])
    part = part.drop_duplicates(["layer", "head"]).set_index(["layer", "head"]).reindex(index)
    return {
        column: [None if not math.isfinite(v) else float(f"{v:.4g}") for v in part[column].astype(float)]
        for column in ("value", "low", "high", "baseline")
    }


def _kinds_of(rows: pd.DataFrame, series: str) -> list[tuple[str, str]]:
    pairs = set(rows.loc[rows["series"] == series, ["stack", "kind"]].itertuples(index=False, name=None))
    order = list(KINDS)
    return sorted(pairs, key=lambda pair: (order.index(pair) if pair in order else 99, pair))


def _statistic_payload(rows: pd.DataFrame, statistic: Statistic, cast: Cast) -> dict[str, Any]:
    own = rows[rows["statistic"] == statistic.id]
    keys = ["series", "seed", "stack", "kind", "layer", "head"]
    both = own[own["trained"]].merge(own[~own["trained"]], on=keys, suffixes=("", "_untrained"))
    change = (both["value"] - both["value_untrained"]).abs().max() if len(both) else 0.0
    return {
        "id": statistic.id,
        "label": statistic.label,
        "unit": statistic.unit,
        "explanation": statistic.explanation,
        "control": statistic.control,
        "top": float(f"{statistic.top:.3g}"),
        "change": float(f"{change:.3g}") or 1.0,
        "sentence": _sentence(rows, statistic, cast),
    }


def _sentence(rows: pd.DataFrame, statistic: Statistic, cast: Cast) -> str:
    """Means over each model's self-attention heads of the main stack, strong heads, and the controls."""
    own = cast.main(rows[(rows["statistic"] == statistic.id) & (rows["kind"] == "self")])
    own = own if len(own) else rows[rows["statistic"] == statistic.id]
    parts = []
    for series in cast.series:
        heads = own[(own["series"] == series.key) & own["trained"]]
        if heads.empty:
            continue
        text = f"{number(heads['value'].mean(), 2)} in {series.label}"
        if statistic.strong is not None:
            strong = int((heads["value"] >= statistic.strong).sum())
            text += f" ({strong} of {len(heads)} heads reach {statistic.strong:g})"
        parts.append(text)
    unit = f", in {statistic.unit}" if statistic.unit else ""
    sentence = f"Mean {statistic.label} over heads{unit}: {listed(parts)}; "
    if "offset" in statistic.id:
        sentence = (
            f"On average a head's strongest key is the {statistic.label} in this share of cases: {listed(parts)}; "
        )
    untrained = own.loc[~own["trained"], "value"]
    control = f"{statistic.control} would give {number(own.loc[own['trained'], 'baseline'].mean(), 2)}"
    return sentence + (f"untrained models {number(untrained.mean(), 2)}, " if len(untrained) else "") + control + "."


def _caption(rows: pd.DataFrame, cast: Cast) -> str:
    count = int(rows["count"].median())
    seeds = int(rows["seed"].nunique())
    several = f" One of {seeds} seeds is shown at a time." if seeds > 1 else ""
    return f"Intervals in the panel: 95%, bootstrap over sentences; about {count:,} queries per head.{several}"


def _heat_chart(own: pd.DataFrame, statistic: Statistic, with_legend: bool) -> dict[str, Any]:
    layers = sorted((int(layer) for layer in own["layer"].unique()), reverse=True)
    title = f"{statistic.label}{f' ({statistic.unit})' if statistic.unit else ''}"
    legend = alt.Legend(orient="bottom", gradientLength=120, gradientThickness=8, tickCount=3)
    chart = (
        alt.Chart(own[["layer", "head", "value"]])
        .mark_rect(stroke="var(--paper)", strokeWidth=1)
        .encode(
            x=alt.X("head:O", title="head", axis=alt.Axis(labelAngle=0, domain=False, ticks=False)),
            y=alt.Y("layer:O", title="layer", sort=layers, axis=alt.Axis(domain=False, ticks=False)),
            color=alt.Color(
                "value:Q",
                title=title,
                scale=alt.Scale(
                    domain=[0, statistic.top / 2, statistic.top], range=[f"var(--heat-{i})" for i in range(3)]
                ),
                legend=legend if with_legend else None,
            ),
        )
    )
    spec = chart.properties(width="container", height=max(20 * len(layers), 60)).to_dict()
    return {**spec, "config": vega_config(), "padding": PADDING}
