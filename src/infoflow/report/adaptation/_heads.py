"""Heads before and after tuning, on one map with a slider, and those whose importance was kept, gained or lost."""

from typing import Any

import altair as alt
import numpy as np
import pandas as pd

from .._figure import Panel, ReportFigure
from .._numbers import listed, number
from .._shown_models import ShownModels
from ..forms._chart import finished, tips
from ..forms._grid import cells
from ..heads._names import kind_label
from ._methods import HEADS
from ._rows import most_examples, of, plain, tasks_of

STEPS = 10  # of the slider
_QUARTER = 0.25
_KEYS = ["series", "seed", "task", "stack", "kind"]
_MOST = 12  # maps
_MOVED = 5  # heads that are named
_BETWEEN = ", "  # the roles of a head, in its table
IMPORTANCE, CONFIDENCE, ATTENTION = "importance (rank)", "confidence", "attention moved (1: most)"


def heads_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """Maps of the first seed, a set for each task and statistic; None without heads before and after tuning."""
    own = most_examples(plain(frame))
    own = own[own["trained"]]
    if own.empty:
        return None
    ranked = with_ranks(own)
    first = ranked[ranked["seed"] == ranked["seed"].min()]
    rows, sets = _drawn(first)
    if rows.empty:
        return None
    data = first[[*_KEYS, "layer", "head", "js", "js_low", "js_high", "confidence_before", "confidence_after",
                  "role_before", "role_after", "cost_before", "value", "low", "high", "fate"]]  # fmt: skip
    groups = [
        (one, stack, kind)
        for one in models.present(rows)
        for stack, kind in of(rows, series=one.key)[["stack", "kind"]]
        .drop_duplicates()
        .itertuples(index=False, name=None)
    ]
    panels = [
        Panel(
            spec=_chart(of(rows, series=one.key, stack=stack, kind=kind)),
            title=f"{one.label}, {kind_label(stack, kind)}",
        )
        for one, stack, kind in groups[:_MOST]
    ]
    return ReportFigure(
        id="tuned-heads",
        question="Which heads did tuning put to other work?",
        answer=[text for one in models.present(ranked) for text in _sentences(of(ranked, series=one.key), one.label)],
        panels=panels,
        caption=f"{_seeds(ranked)} The scale of colours is one for both ends of the slider. No untrained model is "
        "drawn: its heads have no work to lose; two random quarters of the heads would share a sixteenth of them.",
        how_to_read=[
            "Each square is a head: layers from bottom (0) to top, heads from left to right. Move the slider, or "
            "focus it and press the arrow keys, to go from the model before tuning to the one after: what grows "
            "stronger matters more, what fades matters less. Choose task and statistic above the picture.",
            "Importance is by rank: before, what the pretraining loss rises by without the head; after, what the "
            "task's loss rises by. Confidence is the mean strongest weight of a head's attention, on the same texts; "
            "attention moved is how far (Jensen–Shannon divergence), beside the head that moved most. "
            "A frame is a head that is among the most important quarter on one side only.",
        ],
        method=HEADS,
        data=data,
        tables=("tuning_heads",),
        findings=("adaptation:A-12",),
        template="before_after.html.jinja",
        payload={"sets": sets, "steps": STEPS, "layout": "wide", "apart": True},
    )


def with_ranks(own: pd.DataFrame) -> pd.DataFrame:
    """With ranks of importance from 0 to 1 before and after, and the head's fate, within each model and task."""
    parts = []
    for _, heads in own.groupby(["series", "seed", "task"], sort=False):
        ranks = [heads[name].rank(pct=True).to_numpy() for name in ("cost_before", "value")]
        top = [rank > 1 - _QUARTER for rank in ranks]
        fate = np.select([top[0] & top[1], top[1], top[0]], ["kept", "gained", "lost"], "")
        fate = fate if np.isfinite(ranks).all() else np.full(len(heads), "")  # no pretraining loss, or no task loss
        parts.append(heads.assign(rank_before=ranks[0], rank_after=ranks[1], fate=fate))
    return pd.concat(parts, ignore_index=True)


def _drawn(first: pd.DataFrame) -> tuple[pd.DataFrame, list[str]]:
    """A row for each head, task and statistic that is known before and after."""
    sets, parts = [], []
    first = first.assign(still=0.0, moved=first["js"] / (first["js"].max() or 1.0))
    for task in tasks_of(first):
        for name, columns in ((IMPORTANCE, ("rank_before", "rank_after")),
                              (CONFIDENCE, ("confidence_before", "confidence_after")),
                              (ATTENTION, ("still", "moved"))):  # fmt: skip
            rows = first[first["task"] == task].dropna(subset=list(columns))
            if len(rows):
                ends = rows.assign(before=rows[columns[0]], after=rows[columns[1]], set=len(sets), told=_told(rows))
                parts.append(
                    ends[["series", "stack", "kind", "layer", "head", "before", "after", "fate", "set", "told"]]
                )
                sets.append(f"{task}: {name}")
    return (pd.concat(parts, ignore_index=True) if parts else pd.DataFrame({"series": []})), sets


def _told(rows: pd.DataFrame) -> list[str]:
    """Of each head its numbers and roles."""
    return [
        f"costs {number(row.cost_before, 3)} nats of pretraining, {number(row.value, 3)} of the task; attention moved "
        f"by {number(row.js, 3)} nats; role {row.role_before or 'none'} → {row.role_after or 'none'}"
        for row in rows.itertuples()
    ]


def _chart(rows: pd.DataFrame) -> dict[str, Any]:
    layers = sorted((int(layer) for layer in rows["layer"].unique()), reverse=True)
    base = alt.Chart(rows.round({"before": 3, "after": 3})).transform_filter("datum.set === shown")
    base = base.transform_calculate(now=f"datum.before + (datum.after - datum.before) * frame / {STEPS}")
    heads = sorted(int(head) for head in rows["head"].unique())
    place = {
        "x": cells(alt.X, "head", "head", heads, whole=True),
        "y": cells(alt.Y, "layer", "layer", layers, whole=True),
    }
    opacity = alt.Opacity("now:Q", scale=alt.Scale(domain=[0, 1], range=[0.03, 1], clamp=True), legend=None)
    tooltip = tips("layer:O", "head:O", "now:Q|now|.2f", "before:Q|before|.2f", "after:Q|after|.2f", "told:N|numbers")
    marks = base.mark_rect(cornerRadius=2, color="var(--heat-2)").encode(**place, opacity=opacity, tooltip=tooltip)
    moved = base.transform_filter("datum.fate === 'gained' || datum.fate === 'lost'")
    frame = moved.mark_rect(filled=False, cornerRadius=2, strokeWidth=1.6).encode(
        **place,
        stroke=alt.Stroke(
            "fate:N", scale=alt.Scale(domain=["gained", "lost"], range=["var(--above)", "var(--below)"]), legend=None
        ),
    )
    known = sorted(int(one) for one in rows["set"].unique())
    missing = alt.Chart(pd.DataFrame([{"text": "not known here"}])).transform_filter(f"indexof({known}, shown) < 0")
    words = missing.mark_text(color="var(--soft)", fontSize=11).encode(
        text=alt.Text("text:N"), x=alt.XValue(alt.expr("width / 2")), y=alt.YValue(alt.expr("height / 2"))
    )
    return finished([marks, frame, words], max(22 * len(layers), 66), shown=0, frame=STEPS)


def _seeds(ranked: pd.DataFrame) -> str:
    seeds = int(ranked["seed"].nunique())
    told = "sentences are means over all, but for the heads that they name"
    drawn = f"One of {seeds} seeds of pretraining is drawn; {told}." if seeds > 1 else "One seed."
    return f"{drawn} Numbers are means over seeds of tuning."


def _sentences(ranked: pd.DataFrame, name: str) -> list[str]:
    first = ranked[ranked["seed"] == ranked["seed"].min()]
    moved = first.groupby(["stack", "kind", "layer", "head"])["js"].mean().nlargest(_MOVED).reset_index()
    several = first[["stack", "kind"]].drop_duplicates().shape[0] > 1
    heads = [f"{layer}.{head}" + (f" ({kind_label(stack, kind)})" if several else "")
             for stack, kind, layer, head, _ in moved.itertuples(index=False, name=None)]  # fmt: skip
    other = [_roles(before) != _roles(after) for before, after in
             zip(ranked["role_before"], ranked["role_after"], strict=True)]  # fmt: skip
    attention = f"Attention moved most in heads {', '.join(heads)} (layer.head)"
    share = number(100 * float(np.mean(other)), 0)
    return [*_fates(ranked, name), f"{attention}; {share}% of the heads have other roles than before."]


def _roles(names: object) -> set[str]:
    """The roles of a head, whichever is the clearest."""
    return set(str(names).split(_BETWEEN)) - {""}


def _fates(ranked: pd.DataFrame, name: str) -> list[str]:
    """Shares of heads whose importance was kept, gained and lost; none where it is not known before and after."""
    known = ranked[ranked.groupby(["task", "seed"])["fate"].transform(lambda fates: bool((fates != "").any()))]
    if known.empty:
        sides = {"before": "cost_before", "after": "value"}
        unknown = [side for side, column in sides.items() if bool(ranked[column].isna().any())]
        if not unknown:
            return [f"In {name}, no heads stand out by what they are worth."]
        side = unknown[0]
        why = ": there was no text, or no head, to take the pretraining loss with" if side == "before" else ""
        return [f"In {name}, what heads are worth {side} tuning is not known{why}."]
    shares = known.groupby(["task", "seed"])["fate"].value_counts(normalize=True).unstack(fill_value=0.0)
    means = {fate: float(shares[fate].mean()) if fate in shares else 0.0 for fate in ("kept", "gained", "lost")}
    parts = [f"{number(100 * share, 0)}% {fate}" for fate, share in means.items()]
    quarter = "their place in the most important quarter (of two random quarters 6% would be in both)"
    return [f"In {name}, of all heads {listed(parts)} {quarter}."]
