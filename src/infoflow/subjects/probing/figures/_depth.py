"""The depth at which tasks are solved: mixing weights, gains per layer, expected layer and centre of gravity."""

import re
from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd

from infoflow.report._curves import estimates
from infoflow.report._figure import Method, Panel, ReportFigure
from infoflow.report._in_words import Candidate, Estimate, extremes_words, inline_text, listed, number, span_text
from infoflow.report._model_selection import ModelSelection
from infoflow.report._theme import Series
from infoflow.report.forms._marks import HOLLOW

from ..measures import PROBE_DEPTH, PROBE_MIXING
from ._depth_chart import WARNING, DepthDots, MixingBars
from ._rows import case_name, task_label, tasks_of

_DEPTH = Method(
    id="probe-depth",
    title="Edge probes, mixing weights and cumulative scores",
    text="""
    One probe per task reads all layers at once, through Σ<sub>l</sub> <i>s</i><sub>l</sub> <i>h</i><sub>l</sub> with
    <i>s</i> = softmax(<i>a</i>) trained (Tenney et al. 2019). Centre of gravity: Σ <i>l s</i><sub>l</sub>.
    <i>K</i>(<i>s</i>) = KL(<i>s</i> ‖ uniform), in bits: 0 for equal weights, log<sub>2</sub>(<i>L</i> + 1) for one
    layer alone. Cumulative probes see layers 0 to <i>l</i> only; Δ<sub>l</sub> = score(<i>l</i>) − score(<i>l</i> − 1);
    expected layer: Σ <i>l</i> Δ<sub>l</sub> / Σ Δ<sub>l</sub>, with negative Δ kept. It is ill-defined where
    layers gain little in all (less than 2 points) or more than a fifth of all change is loss, and may then lie outside
    the model.
    """,
)
_MOST = 8  # models with panels
_BARS = {"weight": ("weight", "weight in the mix"), "delta": ("delta", "added to F1")}
_DEPTHS = {"expected_layer": ("expected", "expected layer"), "center_of_gravity": ("gravity", "centre of gravity")}
_KEPT = ("expected_layer_running_maximum", "k_weights", "k_differences", "headroom", "negative_mass")
_KEYS = ["series", "group", "task", "statistic", "layer"]


def depth_figure(
    mixing: pd.DataFrame | None, depth: pd.DataFrame | None, models: ModelSelection
) -> ReportFigure | None:
    """Up to two panels per line, one for each available table; None if there are none."""
    bars, places = _estimates(mixing, ("weight", "delta", "score", "fraction"), _BARS), _places(depth)
    trained = pd.concat([bars, places], ignore_index=True)
    trained = trained[trained["group"] == "trained"]
    if trained.empty:
        return None
    tasks, series = tasks_of(trained), models.present(trained)
    labels = [task_label(task) for task in tasks]
    panels = [panel for one in series[:_MOST] for panel in _panels(bars, places, labels, one, len(series) > 1)]
    data = pd.concat([bars, places], ignore_index=True).drop(columns=["shown", "label", "what", "name"])
    left, seeds = [one.label for one in series[_MOST:]], int(trained["seeds"].max())
    bands = f"Means over {seeds} seeds; whiskers: 95% intervals over seeds and sentences"
    bands = bands if seeds > 1 else f"Whiskers: 95% intervals over sentences, {HOLLOW}"
    return ReportFigure(
        id="probe-depth",
        question="At which depth is each task solved?",
        answer=[*_focus_sentence(places, models), *_headroom_sentence(places)],
        words=_words(places, models),
        panels=panels,
        caption=f"{bands}; {int(trained['count'].median()):,} test examples. Weights share one scale; what "
        f"layers add is scaled to each task's row.{f' Only in the data: {listed(left)}.' if left else ''}",
        how_to_read=[
            "Filled bars: the weight of each layer in a probe that reads a weighted sum of all layers; weights sum to "
            "1. Outlined bars: what a probe's score gains when this layer is added to those below; in another colour, "
            "below the line, what it loses. K(s) and K(Δ): how concentrated both are, in bits; 0 is uniform.",
            "Circles: the expected layer, the mean layer at which score is gained. Diamonds: the centre of gravity of "
            "the weights. Small grey marks: untrained models. Next to the rows: the probe's F1 from embeddings alone "
            "and with all layers.",
            f"{WARNING} means that an expected layer is ill-defined: all layers together add little, or more than a "
            "fifth of all change is loss. It may then lie outside the model, at the edge of the figure; the running "
            "maximum of scores is then more reliable. Weights of an untrained model are not uniform either: only the "
            "difference between the two models is due to training.",
        ],
        method=_DEPTH,
        data=data,
        tables=(PROBE_MIXING.name, PROBE_DEPTH.name),
        findings=tuple(f"probing:T-{n}" for n in (1, 2, 3)),
        payload={"layout": "wide", "apart": True},
    )


def _places(depth: pd.DataFrame | None) -> pd.DataFrame:
    """One row per line, task and depth statistic, with a warning if any seed has one."""
    if depth is None:
        return _estimates(None, (), _DEPTHS).assign(warning="")
    found = _estimates(depth.assign(layer=-1), (*_DEPTHS, *_KEPT), _DEPTHS)
    warned = depth[depth["warning"].astype(str) != ""]
    stated = warned.groupby(["series", "trained", warned["task"].astype(str)], sort=False)["warning"].first()
    keys = zip(found["series"], found["group"] == "trained", found["task"], strict=True)
    warnings = [re.sub(r"-(?=\d)", "−", str(stated.get(key, ""))) for key in keys]
    return found.assign(warning=pd.Series(warnings, dtype=object).where(found["statistic"] == "expected_layer", ""))


def _estimates(
    frame: pd.DataFrame | None, statistics: Sequence[str], drawn: Mapping[str, tuple[str, str]]
) -> pd.DataFrame:
    """Means and intervals over seeds and sentences, with the `what` and `name` that `drawn` gives a statistic."""
    columns = [*_KEYS, "label", "value", "low", "high", "seeds", "count", "shown", "what", "name"]
    if frame is None:
        return pd.DataFrame(columns=columns)
    kept = frame[frame["statistic"].astype(str).isin(statistics) & frame["value"].notna()]
    kept = kept.assign(group=np.where(kept["trained"], "trained", "untrained"), task=kept["task"].astype(str))
    found = estimates(kept.astype({"statistic": str, "layer": int}), _KEYS)
    what, name = (found["statistic"].map({key: words[at] for key, words in drawn.items()}).fillna("") for at in (0, 1))
    return found.assign(label=found["task"].map(task_label), what=what, name=name)[columns]


def _panels(bars: pd.DataFrame, places: pd.DataFrame, labels: list[str], series: Series, several: bool) -> list[Panel]:
    own_bars = bars[(bars["series"] == series.key) & (bars["group"] == "trained")]
    drawn = own_bars[own_bars["what"] != ""]
    own_places = places[places["series"] == series.key]
    prefix = f"{series.label}: " if several else ""
    panels = []
    if len(drawn):
        most = float(bars.loc[(bars["what"] == "weight") & (bars["group"] == "trained"), "value"].max())
        chart = MixingBars(table=drawn, labels=labels, notes=_focus_notes(own_places), series=series, most=most)
        panels.append(Panel.of(chart, f"{prefix}weights, and what layers add"))
    dots = own_places[own_places["what"] != ""]
    if len(dots[dots["group"] == "trained"]):
        last = int(own_bars["layer"].max()) if len(own_bars) else int(max(dots["value"].max(), 1) + 1)
        chart = DepthDots(
            table=_near_maximum(dots, own_places),
            labels=labels,
            notes=_score_notes(own_bars),
            series=series,
            last=last,
        )
        panels.append(Panel.of(chart, f"{prefix}expected layer, centre of gravity"))
    return panels


def _focus_notes(places: pd.DataFrame) -> dict[str, str]:
    found: dict[str, list[str]] = {}
    for statistic, sign in (("k_weights", "K(s)"), ("k_differences", "K(Δ)")):
        rows = places[(places["statistic"] == statistic) & (places["group"] == "trained")]
        for label, value in zip(rows["label"], rows["value"], strict=True):
            found.setdefault(label, []).append(f"{sign} {number(value, 2)}")
    return {label: "\n".join(lines) for label, lines in found.items()}


def _score_notes(bars: pd.DataFrame) -> dict[str, str]:
    scores = bars[bars["statistic"] == "score"].sort_values("layer")
    ends = {label: own["value"].iloc[[0, -1]].tolist() for label, own in scores.groupby("label", sort=False)}
    return {str(label): f"F1 {100 * first:.0f} → {100 * last:.0f}" for label, (first, last) in ends.items()}


def _near_maximum(dots: pd.DataFrame, places: pd.DataFrame) -> pd.DataFrame:
    """Add the value from the running maximum of scores to the text of ill-defined values."""
    rows = places[places["statistic"] == "expected_layer_running_maximum"]
    known = dict(zip(zip(rows["group"], rows["task"], strict=True), rows["shown"], strict=True))
    stated = [
        f"{shown}; by the running maximum {known[group, task]}" if warning and (group, task) in known else shown
        for shown, warning, group, task in dots[["shown", "warning", "group", "task"]].itertuples(index=False)
    ]
    return dots.assign(shown=stated)


def _words(places: pd.DataFrame, models: ModelSelection) -> str:
    """The tasks solved highest and lowest in the network, by well-defined expected layers if there are any."""
    trained = places[(places["group"] == "trained") & (places["warning"] == "")]
    for statistic, (_, name) in _DEPTHS.items():
        own = trained[trained["statistic"] == statistic]
        found = [
            Candidate(case_name(str(row.task), models[str(row.series)].label), _estimate(row))
            for row in own.itertuples()
        ]
        if found:
            return extremes_words(f"the {name}", found)
    return ""


def _estimate(row: object) -> Estimate:
    return Estimate(**{name: getattr(row, name) for name in ("value", "low", "high", "seeds", "count")})


def _focus_sentence(places: pd.DataFrame, models: ModelSelection) -> list[str]:
    """The most and the least concentrated mixing weights."""
    own = places[(places["statistic"] == "k_weights") & (places["group"] == "trained")].sort_values("value")
    if len(own) < 2:
        return []
    (least, most) = (
        f"{row.label} in {models[str(row.series)].label} ({inline_text(_estimate(row), 'bits')})"
        for row in own.iloc[[0, -1]].itertuples()
    )
    grey = places[(places["statistic"] == "k_weights") & (places["group"] == "untrained")]["value"]
    compared = f"; in untrained models it is {number(float(grey.mean()), 2)} on average" if len(grey) else ""
    return [f"The mix of layers is most concentrated for {most} and least for {least}{compared}."]


def _headroom_sentence(places: pd.DataFrame) -> list[str]:
    """The F1 that layers above the embeddings add, in trained and in untrained models."""
    rows = places[places["statistic"] == "headroom"]
    trained, untrained = (rows.loc[rows["group"] == group, "value"] for group in ("trained", "untrained"))
    if trained.empty:
        return []
    text = f"Over embeddings alone, layers add {span_text(100 * trained, 1)} points of F1"
    return [f"{text}; in untrained models {span_text(100 * untrained, 1)}." if len(untrained) else f"{text}."]
