"""The loss when the self-attention of blocks is closed, which shows which blocks provide context."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pandas as pd

from infoflow.heads import ENCODER_CONTEXT

from .._curves import band_words, sampled_bands
from .._figure import Method, Panel, PanelGroup, ReportFigure
from .._in_words import number
from .._model_selection import ModelSelection
from .._theme import Series
from ..forms._chart import BASELINE, LABEL_GAP, amount, color_of, finished, lit, tips
from ..forms._layer_chart import control_names, end_labels
from ..forms._lines import control_lines, level, lines, looks_of, names_above
from ..forms._marks import Constant, Layer, draw, span

_METHOD = Method(
    id="encoder-context",
    title="Closed self-attention",
    text="""
    In a closed block, each position sees only itself, so a head outputs that position's own value. The loss added is
    the task's loss with blocks closed minus the loss with all open, on the same sentences with the same corruption. The
    share divides it by what the model has learned beyond unigram frequencies, (<i>L</i><sub>unigram</sub> − <i>L</i>),
    so that different tasks can be compared; it exceeds 1 if a model without context does worse than frequencies alone.
    Cross-attention stays open. A retrained model was trained further with all blocks of one kind closed; it is compared
    with the same model trained further for as long with all open. BLEU is computed on greedy translations. Ours;
    Raganato, Scherrer and Tiedemann (2020) train translation encoders with fixed attention.
    """,
)
_KINDS = {"encoder-self": "encoder self-attention", "decoder-self": "decoder self-attention"}
_HEIGHT = 250
_BESIDE = 0.3  # horizontal offset of a retrained model from the end of its line


@dataclass(frozen=True, kw_only=True, slots=True)
class _Metric:
    label: str
    axis: str
    stated: str  # in the answer sentence
    note: str


_METRICS = {
    "share": _Metric(
        label="share of what is learned",
        axis="share lost",
        stated="the lost share of what is learned beyond unigram frequencies",
        note="Loss added by closing self-attention, as a share of what the model has learned beyond unigram "
        "frequencies.",
    ),
    "loss": _Metric(
        label="loss",
        axis="loss added (nats per token)",
        stated="the loss added, in nats per token",
        note="Loss added by closing self-attention.",
    ),
    "bleu": _Metric(
        label="BLEU",
        axis="change of BLEU",
        stated="change of BLEU",
        note="Change of BLEU of greedy translations: below 0 is worse.",
    ),
}
_KEYS = ["series", "metric", "kind", "which", "number", "retrained"]


def context_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure | None:
    """The figure of the loss with upper or single blocks closed, and after retraining, for each kind of attention."""
    trained = frame.loc[frame["trained"]]
    curves = _curves(trained)
    if curves.empty:
        return None
    control = _curves(frame.loc[~frame["trained"]])
    groups = [
        _group(metric, curves.loc[curves["metric"] == metric], control.loc[control["metric"] == metric], models)
        for metric in _METRICS
        if metric in set(curves["metric"])
    ]
    seeds = int(trained["seed"].nunique())
    return ReportFigure(
        id="encoder-context",
        question="Which self-attention provides the context?",
        answer=list(_sentences(curves, models)),
        panels=groups[0].panels,
        caption=f"{band_words(seeds, bands='bands and whiskers')}; "
        f"{int(trained.loc[trained['metric'] == 'loss', 'count'].median()):,} sentences."
        + (" Grey, dashed: untrained models (loss)." if len(control) else ""),
        how_to_read=[
            "Across: in how many blocks, counted from the top, self-attention is closed, so that each token sees only "
            "itself. Up: what that costs. A line that stays low means that the context comes from elsewhere: from the "
            "layers below or, for an encoder, from the decoder.",
            "A cross shows the loss with one block closed alone, the one that the line closes next. Where crosses lie "
            "far below the line's steps, blocks can stand in for each other.",
            "Diamonds next to a line's end: models trained further with all blocks closed. What they still lose "
            "depends on that context; the rest can be learned without it.",
        ],
        method=_METHOD,
        data=curves,
        tables=(ENCODER_CONTEXT.name,),
        findings=("context:E1", "context:E2"),
        template="metrics.html.jinja",
        payload={"metrics": groups},
    )


def _curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval over seeds for each set of closed blocks, with its x position: how many upper blocks it has."""
    found = sampled_bands(frame.loc[frame["kind"].isin(list(_KINDS))], _KEYS)
    whole = found.loc[found["which"] == "all"].groupby(["series", "kind"])["number"].max().rename("blocks")
    found = found.merge(whole, on=["series", "kind"])
    placed = found["number"].astype(float).where(found["retrained"] == 0, found["blocks"] + _BESIDE)
    return found.assign(closed=placed.where(found["which"] != "block", found["blocks"] - found["number"]))


def _group(metric: str, curves: pd.DataFrame, control: pd.DataFrame, models: ModelSelection) -> PanelGroup:
    shown = _METRICS[metric]
    kinds = [kind for kind in _KINDS if bool((curves["kind"] == kind).any())]
    ends = span(curves[["low", "high", "value"]], 0.0)
    panels = [
        Panel(
            spec=_chart(curves.loc[curves["kind"] == kind], control.loc[control["kind"] == kind], models, shown, ends),
            title=_KINDS[kind],
        )
        for kind in kinds
    ]
    return PanelGroup(id=metric, label=shown.label, note=shown.note, scale=("", ""), panels=panels)


def _chart(
    own: pd.DataFrame, control: pd.DataFrame, models: ModelSelection, shown: _Metric, ends: tuple[float, float]
) -> dict[str, Any]:
    series, most = models.present(own), int(own["blocks"].max())
    at = {
        "x": amount(
            "x", "closed", "upper blocks closed", [0, most + 2 * _BESIDE], values=list(range(most + 1)), format="d"
        ),
        "y": amount("y", "value", shown.axis, ends),
    }
    upper = _from_nothing(own.loc[own["which"].eq("upper") | (own["which"].eq("all") & own["retrained"].eq(0))])
    alone, retrained = own.loc[own["which"] == "block"], own.loc[own["retrained"] > 0]
    grey = _from_nothing(control.loc[control["which"] == "upper"])
    tooltip = tips("series:N|model", "closed:Q|upper blocks closed", f"value:Q|{shown.label}|.3f")
    alone_tips = tips("series:N|model", "block:Q|block alone", f"value:Q|{shown.label}|.3f")
    cross = {"shape": "cross", "size": 46, "filled": True, "color": color_of(series), "opacity": lit(0.75)}
    retrained_tips = tips("series:N|model", "retrained:Q|updates retrained", f"value:Q|{shown.label}|.3f")
    diamond, look = {"shape": "diamond", "size": 95, "filled": True}, {"color": color_of(series), "opacity": lit()}
    further = _lean(retrained)
    layers = [
        level(0.0, BASELINE, y=at["y"]),
        *control_lines(_lean(grey), at, band=0),
        *lines(_lean(upper), at, looks_of(series), width=2, size=34, touch=0, tooltip=tooltip),
        draw("point", _lean(alone.assign(block=alone["number"])), at, cross, tooltip=alone_tips),
        draw("rule", further, look, strokeWidth=2, x=at["x"], y="low:Q", y2="high:Q"),
        draw("point", further, at, look, diamond, tooltip=retrained_tips),
        *_named(grey, at, series, ends),
    ]
    names = [("●–", "upper blocks", "var(--soft)")]
    names += [("✚", "one block alone", "var(--soft)")] * bool(len(alone))
    names += [("◆", "all, retrained", "var(--soft)")] * bool(len(retrained))
    names += [("– –", "untrained", "var(--control)")] * bool(len(grey))
    return finished([*layers, names_above(names)], _HEIGHT)


def _named(grey: pd.DataFrame, at: dict[str, Any], series: list[Series], ends: tuple[float, float]) -> list[Layer]:
    """Label each untrained line at its end; lines that end together share one label."""
    last = grey.sort_values("closed", kind="stable").drop_duplicates("series", keep="last")
    if len(last) < 2:  # the legend above the picture is enough
        return []
    gap = LABEL_GAP / _HEIGHT * (ends[1] - ends[0])
    stated = control_names(last, "untrained", {one.key: one.label for one in series}, 2 * gap)
    frame = pd.DataFrame(stated, columns=["text", "at"]).assign(closed=float(last["closed"].max()), series="")
    return [end_labels(frame, gap, ends[1], at, Constant("var(--soft)"))] if len(stated) > 1 else []


def _lean(rows: pd.DataFrame) -> pd.DataFrame:
    drawn = ["series", "closed", "value", "low", "high", "seeds", "retrained", "block"]
    return rows[[name for name in drawn if name in rows]].round(4)


def _from_nothing(rows: pd.DataFrame) -> pd.DataFrame:
    """Start each line at a loss of 0, where nothing is closed."""
    rows = rows.drop_duplicates(["series", "closed"])
    starts = rows.drop_duplicates("series").assign(closed=0.0, value=0.0, low=0.0, high=0.0)
    return pd.concat([starts, rows]).sort_values(["series", "closed"])


def _sentences(curves: pd.DataFrame, models: ModelSelection) -> Iterator[str]:
    """What closing all blocks costs, as a share where known, and what it still costs after retraining."""
    metric = next(metric for metric in _METRICS if metric in set(curves["metric"]))
    all_closed = curves.loc[curves["which"].eq("all") & curves["metric"].eq(metric)]
    for kind, name in _KINDS.items():
        parts = [_lost(own, one) for one, own in models.each(all_closed.loc[all_closed["kind"] == kind])]
        if parts:
            yield f"With {name} closed in all blocks, {_METRICS[metric].stated}: {'; '.join(parts)}."


def _lost(own: pd.DataFrame, series: Series) -> str:
    rows = list(own.sort_values("retrained").itertuples())
    texts = [f"{_value(row)} after {row.retrained:,} updates of further training" for row in rows if row.retrained]
    begin = [f"{_value(row)} in {series.label}" for row in rows if not row.retrained] or [f"in {series.label}"]
    return ", ".join([*begin, *texts])


def _value(row: Any) -> str:
    if row.low != row.low:  # the interval is unknown
        return number(row.value, 2)
    return f"{number(row.value, 2)} ({number(row.low, 2)} to {number(row.high, 2)})"
