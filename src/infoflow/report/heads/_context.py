"""What is lost with the self-attention of blocks closed: who does the context."""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import altair as alt
import pandas as pd

from .._figure import Method, Panel, PanelGroup, ReportFigure
from .._numbers import number
from .._samples import Samples
from .._series import Series
from .._shown_models import ShownModels
from ..forms._chart import BASELINE, LABEL_GAP, amount, color_of, finished, lit, tips
from ..forms._hollow import HOLLOW
from ..forms._layer_chart import control_names, end_labels
from ..forms._lines import control_lines, level, lines, looks_of
from ..forms._names import names_above

_METHOD = Method(
    id="encoder-context",
    title="Closed self-attention",
    text="""
    In a closed block each position sees itself alone: a head's output is its own value there. Lost: the task's loss
    with blocks closed less the loss with all open, on the same sentences, corrupted alike. The share divides it by what
    the model has learned beyond frequencies, (<i>L</i><sub>unigram</sub> − <i>L</i>), so that models of different tasks
    can be compared; it exceeds 1 where a model without its context does worse than frequencies alone. Cross-attention
    stays open. A retrained model was trained on with all blocks of one kind closed, and is compared with the same
    model trained on as long with all open. BLEU is of greedy translations. Ours; Raganato, Scherrer and Tiedemann
    (2020) train translation encoders with fixed attention.
    """,
)
_KINDS = {"encoder-self": "encoder self-attention", "decoder-self": "decoder self-attention"}
_HEIGHT = 250
_BESIDE = 0.3  # how far beside the end of its line a retrained model stands


@dataclass(frozen=True, kw_only=True, slots=True)
class _Metric:
    """One of the scores that the table has."""

    label: str
    axis: str
    told: str  # in the sentence that answers
    note: str


_METRICS = {
    "share": _Metric(
        label="share of what is learned",
        axis="share lost",
        told="lost of what is learned beyond frequencies",
        note="Loss that closing adds, as a share of what the model has learned beyond frequencies.",
    ),
    "loss": _Metric(
        label="loss",
        axis="loss added (nats per token)",
        told="nats per token added to the loss",
        note="What closing adds to the loss.",
    ),
    "bleu": _Metric(
        label="BLEU",
        axis="change of BLEU",
        told="change of BLEU",
        note="Change of BLEU of greedy translations: below 0 is worse.",
    ),
}
_KEYS = ["series", "metric", "kind", "which", "number", "retrained"]


def context_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure | None:
    """The loss against the number of upper blocks closed, each block alone, and retrained models, by kind."""
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
    bands = "95% intervals over seeds and sentences" if seeds > 1 else f"95% intervals over sentences, {HOLLOW}"
    return ReportFigure(
        id="encoder-context",
        question="Who does the context?",
        answer=list(_sentences(curves, models)),
        panels=groups[0].panels,
        caption=f"{f'Means over {seeds} seeds' if seeds > 1 else 'One seed'}; bands and whiskers: {bands}; "
        f"{int(trained.loc[trained['metric'] == 'loss', 'count'].median()):,} sentences."
        + (" Grey, dashed: untrained models (loss)." if len(control) else ""),
        how_to_read=[
            "Across: how many blocks, counted from the top, can see no other token. Up: what that costs. A line that "
            "stays low means that others do the context: the layers below, or, of an encoder, the decoder.",
            "Crosses close one block alone, the one that the line closes next: where they lie far below the line's "
            "steps, blocks can stand in for each other.",
            "Diamonds beside a line's end were trained on with all blocks closed: what they still lose only that "
            "context can give. The rest the model can do elsewhere if it has to.",
        ],
        method=_METHOD,
        data=curves,
        tables=("encoder_context",),
        findings=("context:E1", "context:E2"),
        template="metrics.html.jinja",
        payload={"metrics": groups},
    )


def _curves(frame: pd.DataFrame) -> pd.DataFrame:
    """Mean and interval over seeds of every closing, and where it stands: the blocks that are closed, from the top."""
    rows = []
    groups: Any = frame.loc[frame["kind"].isin(list(_KINDS))].groupby(_KEYS, sort=False)
    for key, own in groups:
        estimate = Samples.of(own).estimate()
        found = {"value": estimate.value, "low": estimate.low, "high": estimate.high, "seeds": estimate.seeds}
        rows.append(dict(zip(_KEYS, key, strict=True)) | found)
    found = pd.DataFrame(rows, columns=[*_KEYS, "value", "low", "high", "seeds"])
    whole = found.loc[found["which"] == "all"].groupby(["series", "kind"])["number"].max().rename("blocks")
    found = found.merge(whole, on=["series", "kind"])
    beside = found["number"].astype(float).where(found["retrained"] == 0, found["blocks"] + _BESIDE)
    return found.assign(closed=beside.where(found["which"] != "block", found["blocks"] - found["number"]))


def _group(metric: str, curves: pd.DataFrame, control: pd.DataFrame, models: ShownModels) -> PanelGroup:
    told = _METRICS[metric]
    kinds = [kind for kind in _KINDS if bool((curves["kind"] == kind).any())]
    span = _span(curves)
    panels = [
        Panel(
            spec=_chart(curves.loc[curves["kind"] == kind], control.loc[control["kind"] == kind], models, told, span),
            title=_KINDS[kind],
        )
        for kind in kinds
    ]
    return PanelGroup(id=metric, label=told.label, note=told.note, scale=("", ""), panels=panels)


def _span(curves: pd.DataFrame) -> list[float]:
    drawn = curves[["low", "high", "value"]].stack()
    low, high = min(float(drawn.min()), 0.0), max(float(drawn.max()), 0.0)
    margin = 0.05 * (high - low) or 0.1
    return [low - margin, high + margin]


def _chart(
    own: pd.DataFrame, control: pd.DataFrame, models: ShownModels, told: _Metric, span: list[float]
) -> dict[str, Any]:
    series, most = models.present(own), int(own["blocks"].max())
    at = {
        "x": alt.X(
            **amount("closed", "upper blocks closed", [0, most + 2 * _BESIDE], values=list(range(most + 1)), format="d")
        ),
        "y": alt.Y(**amount("value", told.axis, span)),
    }
    upper = _from_nothing(own.loc[own["which"].eq("upper") | (own["which"].eq("all") & own["retrained"].eq(0))])
    alone, retrained = own.loc[own["which"] == "block"], own.loc[own["retrained"] > 0]
    grey = _from_nothing(control.loc[control["which"] == "upper"])
    tooltip = tips("series:N|model", "closed:Q|upper blocks closed", f"value:Q|{told.label}|.3f")
    layers = [
        level(0.0, BASELINE, y=at["y"]),
        *control_lines(_lean(grey), at, band=0),
        *lines(_lean(upper), at, looks_of(series), width=2, size=34, touch=0, tooltip=tooltip),
        *_alone(_lean(alone.assign(block=alone["number"])), at, series, told),
        *_retrained(_lean(retrained), at, series, told),
    ]
    layers += _named(grey, at, series, span)
    names = [("●–", "upper blocks", "var(--soft)")]
    names += [("✚", "one block alone", "var(--soft)")] * bool(len(alone))
    names += [("◆", "all, retrained", "var(--soft)")] * bool(len(retrained))
    names += [("– –", "untrained", "var(--control)")] * bool(len(grey))
    return finished([*layers, names_above(names)], _HEIGHT)


def _named(grey: pd.DataFrame, at: dict[str, Any], series: list[Series], span: list[float]) -> list[alt.Chart]:
    """Whose each untrained line is, at its end; of several lines that end together one name."""
    ends = grey.sort_values("closed", kind="stable").drop_duplicates("series", keep="last")
    if len(ends) < 2:  # the key above the picture says enough
        return []
    gap = LABEL_GAP / _HEIGHT * (span[1] - span[0])
    told = control_names(ends, "untrained", {one.key: one.label for one in series}, 2 * gap)
    frame = pd.DataFrame(told, columns=["text", "at"]).assign(closed=float(ends["closed"].max()), series="")
    return [end_labels(frame, gap, span[1], at, alt.ColorValue("var(--soft)"))] if len(told) > 1 else []


def _lean(rows: pd.DataFrame) -> pd.DataFrame:
    drawn = ["series", "closed", "value", "low", "high", "seeds", "retrained", "block"]
    return rows[[name for name in drawn if name in rows]].round(4)


def _from_nothing(rows: pd.DataFrame) -> pd.DataFrame:
    """Lines begin where nothing is closed and nothing is lost."""
    rows = rows.drop_duplicates(["series", "closed"])
    starts = rows.drop_duplicates("series").assign(closed=0.0, value=0.0, low=0.0, high=0.0)
    return pd.concat([starts, rows]).sort_values(["series", "closed"])


def _alone(rows: pd.DataFrame, at: dict[str, Any], series: list[Series], told: _Metric) -> list[alt.Chart]:
    if rows.empty:
        return []
    tooltip = tips("series:N|model", "block:Q|block alone", f"value:Q|{told.label}|.3f")
    mark = alt.Chart(rows).mark_point(shape="cross", size=46, filled=True)
    return [mark.encode(**at, color=color_of(series), opacity=lit(0.75), tooltip=tooltip)]


def _retrained(rows: pd.DataFrame, at: dict[str, Any], series: list[Series], told: _Metric) -> list[alt.Chart]:
    if rows.empty:
        return []
    base, look = alt.Chart(rows), {"color": color_of(series), "opacity": lit()}
    tooltip = tips("series:N|model", "retrained:Q|updates retrained", f"value:Q|{told.label}|.3f")
    ends = base.mark_rule(strokeWidth=2).encode(x=at["x"], y=alt.Y("low:Q"), y2=alt.Y2("high:Q"), **look)
    return [ends, base.mark_point(shape="diamond", size=95, filled=True).encode(**at, **look, tooltip=tooltip)]


def _sentences(curves: pd.DataFrame, models: ShownModels) -> Iterator[str]:
    """What is lost with all blocks closed, of the share where there is one; then what is still lost after training."""
    metric = next(metric for metric in _METRICS if metric in set(curves["metric"]))
    all_closed = curves.loc[curves["which"].eq("all") & curves["metric"].eq(metric)]
    for kind, name in _KINDS.items():
        own = all_closed.loc[all_closed["kind"] == kind]
        parts = [_lost(own.loc[own["series"] == one.key], one) for one in models.present(own)]
        if parts:
            yield f"With {name} closed at all blocks, {_METRICS[metric].told}: {'; '.join(parts)}."


def _lost(own: pd.DataFrame, series: Series) -> str:
    """At test time, and of models that were retrained."""
    rows = list(own.sort_values("retrained").itertuples())
    texts = [f"{_value(row)} after {row.retrained:,} updates of training on" for row in rows if row.retrained]
    begin = [f"{_value(row)} in {series.label}" for row in rows if not row.retrained] or [f"in {series.label}"]
    return ", ".join([*begin, *texts])


def _value(row: Any) -> str:
    if row.low != row.low:  # no interval is known
        return number(row.value, 2)
    return f"{number(row.value, 2)} ({number(row.low, 2)} to {number(row.high, 2)})"
