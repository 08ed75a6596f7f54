"""Layers taken back to what they were: what the task loses, what the pretraining objective regains."""

from typing import Any

import altair as alt
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import number
from .._samples import Samples
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import CONTROL, amount, finished, tips
from ..forms._lines import LineKind, lines, looks_of
from ..forms._names import names_above
from ._methods import SWAPS as METHOD
from ._rows import averaged, bands, estimated, gap_text, most_examples, of, plain

_HEIGHT = 220
SIDES = (
    LineKind(key="lower", label="lower blocks taken back", dash=(1, 0), shape="circle", mark="●"),
    LineKind(key="upper", label="upper blocks taken back", dash=(6, 3), shape="triangle-up", mark="▲"),
)
QUANTITIES = {"score": "score of the task", "pretraining-loss": "pretraining loss (nats per token)"}
_MOST = 8


def swaps_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Two panels for each line; None where no layers were taken back."""
    own = most_examples(plain(frame))
    own = own[own["trained"] & (own["rewound"] != "one")]
    if own.empty:
        return None
    own = own.assign(depth=own.groupby(["series", "task"])["blocks"].transform("max"))
    by = ["depth", "quantity", "rewound", "blocks"]
    means = averaged(own, by)
    data = estimated(means, by)
    series = models.present(data)[:_MOST]
    panels = [
        Panel(spec=_chart(rows, one, axis), title=f"{_named(one.label, depth, data, one)}: {axis.split(' (')[0]}")
        for one in series
        for depth in depths_of(data, one)
        for name, axis in QUANTITIES.items()
        if len(rows := of(data, series=one.key, depth=depth, quantity=name))
    ]
    if not panels:
        return None
    return ReportFigure(
        id="layer-swaps",
        question="Where does the task sit, and where was pretraining forgotten?",
        answer=[
            text
            for one in series
            for depth in depths_of(data, one)
            for text in _sentences(of(means, series=one.key, depth=depth), _named(one.label, depth, data, one))
        ],
        panels=panels,
        caption=f"{bands(of(data, quantity='score'))} Means over tasks. Each panel has its own scale.",
        how_to_read=[
            "Across: how many blocks have again the weights from before tuning, from none to all. Up: what the task's "
            "score is then, and what the loss of pretraining is. Circles: from the bottom, at 0 the embeddings alone; "
            "triangles: from the top, at 0 nothing, or the norm above the blocks alone.",
            "The dashed grey line is the model before tuning (of the score: under the tuned head). The line whose "
            "score falls first lost what the task needs; the one whose loss falls first got back what was forgotten. "
            "It would be surprising if the order did not matter.",
        ],
        method=METHOD,
        data=data,
        tables=("layer_swaps",),
        findings=("adaptation:A-11",),
        payload={"layout": "wide", "apart": True},
    )


def depths_of(data: pd.DataFrame, series: Series) -> list[int]:
    """How many blocks the tuned models of a line have: those that write have a decoder's too."""
    return sorted({int(depth) for depth in of(data, series=series.key)["depth"]})


def _named(label: str, depth: int, data: pd.DataFrame, series: Series) -> str:
    return f"{label}, {depth} blocks" if len(depths_of(data, series)) > 1 else label


def with_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Both sides from what lies outside of the blocks, or from none, to all."""
    parts = []
    for side in SIDES:
        own = rows[rows["rewound"] == side.key]
        ends = ["all"] if 0 in own["blocks"].tolist() else ["none", "all"]
        parts += [part.assign(side=side.key) for part in (own, rows[rows["rewound"].isin(ends)])]
    return pd.concat(parts).sort_values(["side", "blocks"])


def _chart(rows: pd.DataFrame, series: Series, axis: str) -> dict[str, Any]:
    drawn = with_ends(rows)
    base = float(rows["baseline"].mean())
    low, high = (
        min(float(drawn[["low", "value"]].min().min()), base),
        max(float(drawn[["high", "value"]].max().max()), base),
    )
    margin = 0.07 * (high - low) or 0.05
    blocks = sorted(int(number) for number in drawn["blocks"].unique())
    x = alt.X(
        **amount(
            "blocks",
            "blocks taken back",
            [-0.03 * max(blocks), 1.02 * max(blocks)],
            values=blocks,
            zero=alt.Undefined,
            format="d",
        )
    )
    at = {"x": x, "y": alt.Y(**amount("value", axis, [low - margin, high + margin]))}
    control = alt.Chart(pd.DataFrame([{"value": base, "shown": number(base, 2)}])).mark_rule(**CONTROL)
    names = [(one.mark, one.label, series.color) for one in SIDES] + [("– –", "model before tuning", "var(--control)")]
    told = tips("side:N|taken back", "blocks:Q|blocks", "shown:N|value")
    marks = lines(drawn, at, looks_of(SIDES, "side", series.color), touch=0, tooltip=told, light=_plain)
    return finished([control.encode(y=at["y"]), *marks, names_above(names)], _HEIGHT)


def _plain(opacity: float = 1.0) -> alt.OpacityValue:
    return alt.OpacityValue(opacity)


def _sentences(means: pd.DataFrame, name: str) -> list[str]:
    told = []
    for quantity, words in (("pretraining-loss", "nats of pretraining loss"), ("score", "of score")):
        rows = of(means, quantity=quantity)
        none, all_of_them = (Samples.of(of(rows, rewound=side)) for side in ("none", "all"))
        if none and all_of_them:
            change = (none - all_of_them).estimate()
            verb = "costs" if quantity == "pretraining-loss" else "is worth"
            told.append(f"tuning {verb} {gap_text(change)} {words}")
        gap = _gap(rows)
        if gap and quantity == "pretraining-loss":
            more = "more" if gap.estimate().value >= 0 else "less"
            size = gap.estimate() if gap.estimate().value >= 0 else gap.estimate().negated()
            told.append(f"upper blocks taken back regain {gap_text(size)} nats {more} than as many lower ones")
    return [f"In {name}, {'; '.join(told)}."] if told else []


def _gap(rows: pd.DataFrame) -> Samples | None:
    """Lower less upper blocks, mean over numbers of blocks that both have, beyond what lies outside of the blocks."""
    sides = [of(rows, rewound=side) for side in ("lower", "upper")]
    shared = set(sides[0]["blocks"]) & set(sides[1]["blocks"]) - {0}
    embeddings, norm = (side[side["blocks"] == 0] for side in sides)
    if not shared or embeddings.empty:
        return None
    lower, upper = (Samples.of(averaged(side[side["blocks"].isin(shared)], [])) for side in sides)
    outside = Samples.of(embeddings) - Samples.of(of(rows, rewound="none") if norm.empty else norm)
    return (lower - upper) - outside
