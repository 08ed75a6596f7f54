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
    own = own[own["trained"]]
    if own.empty:
        return None
    means = averaged(own, ["quantity", "rewound", "blocks"])
    data = estimated(means, ["quantity", "rewound", "blocks"])
    series = models.present(data)[:_MOST]
    panels = [
        Panel(spec=_chart(rows, one, axis), title=f"{one.label}: {axis.split(' (')[0]}")
        for one in series
        for name, axis in QUANTITIES.items()
        if len(rows := of(data, series=one.key, quantity=name))
    ]
    if not panels:
        return None
    return ReportFigure(
        id="layer-swaps",
        question="Where does the task sit, and where was pretraining forgotten?",
        answer=[text for one in series for text in _sentences(of(means, series=one.key), one.label)],
        panels=panels,
        caption=f"{bands(data)} Means over tasks. Each panel has its own scale.",
        how_to_read=[
            "Across: how many blocks have again the weights from before tuning, from none to all. Up: what the task's "
            "score is then, and what the loss of pretraining is. Circles: from the bottom (with the embeddings); "
            "triangles: from the top.",
            "The dashed grey line is the model before tuning, under the tuned head. The line whose score falls first "
            "lost what the task needs; the one whose loss falls first got back what was forgotten. It would be "
            "surprising if the order did not matter.",
        ],
        method=METHOD,
        data=data,
        tables=("layer_swaps",),
        findings=("adaptation:A-11",),
        payload={"layout": "wide", "apart": True},
    )


def with_ends(rows: pd.DataFrame) -> pd.DataFrame:
    """Both sides from none to all."""
    shared = rows[rows["rewound"].isin(["none", "all"])]
    parts = [part.assign(side=side.key) for side in SIDES for part in (rows[rows["rewound"] == side.key], shared)]
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
        half = rows[rows["rewound"].isin(["lower", "upper"])]
        gap = _gap(half)
        if gap and quantity == "pretraining-loss":
            more = "more" if gap.estimate().value >= 0 else "less"
            size = gap.estimate() if gap.estimate().value >= 0 else gap.estimate().negated()
            told.append(f"taking back upper blocks regains {gap_text(size)} nats {more} than as many lower ones")
    return [f"In {name}, {'; '.join(told)}."] if told else []


def _gap(half: pd.DataFrame) -> Samples | None:
    """Lower less upper blocks, mean over numbers of blocks that both have."""
    sides = [half[half["rewound"] == side] for side in ("lower", "upper")]
    shared = set(sides[0]["blocks"]) & set(sides[1]["blocks"])
    if not shared:
        return None
    lower, upper = (Samples.of(averaged(side[side["blocks"].isin(shared)], [])) for side in sides)
    return lower - upper
