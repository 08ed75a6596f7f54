"""Distributions by layer as ridges: each layer's shape stands on its own line, from bottom to top."""

from dataclasses import dataclass
from typing import Any, final

import numpy as np
import pandas as pd

from infoflow.representations import DISTANCE_DISTRIBUTION

from .._curves import sample_note
from .._figure import Method, Panel, ReportFigure
from .._in_words import Candidate, both_extremes, number, plain, sentence
from .._model_selection import ModelSelection
from .._theme import Series
from ..forms._chart import AbstractForm, Frame, amount, color_of, finished, lit, tips, with_field
from ..forms._lines import of_one
from ..forms._marks import draw

GEOMETRY = Method(
    id="geometry",
    title="Similarity of words",
    text="""
    Mean cosines are exact over all pairs: (‖Σ<i>u</i>‖² − <i>n</i>) / <i>n</i>(<i>n</i> − 1) for <i>n</i> vectors
    <i>u</i> of length 1. A word's vector is the mean over its tokens; punctuation is left out and, within words, so are
    words with few sampled occurrences (captions say how few). Within sentences: the cosine of each word with the
    sentence's mean, sentences of one word left out; for unrelated words with mean cosine <i>a</i> it would be √[(1 +
    (<i>n</i> − 1)<i>a</i>) / <i>n</i>]. Explainable variance: λ<sub>1</sub> / Σλ of a word's centred occurrences. After
    Ethayarajh (2019) and Vázquez et al. (2021); other spaces and the share of single dimensions after Timkey and van
    Schijndel (2021). High similarity alone is not a defect of a space: around the centres of its clusters it can be
    isotropic (Cai et al. 2021), and clusters rule out isotropy as a whole (Mickus et al. 2024).
    """,
)

_METRICS = {"cosine": "cosine of two random words", "euclidean": "Euclidean distance of two random words"}
_TITLES = {"cosine": "cosine", "euclidean": "distance"}
_DASHES = {"untrained": [4, 3], "baseline": [1, 3]}
_HEIGHT = 1.25  # number of lines above it that a shape may overlap
_VISIBLE = 0.0005  # outer bins with less than this share are cut off
_ROUNDING = 1e-9


def distribution_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    """Cosines and distances of random pairs of words: one panel per model and metric."""
    shapes = pd.concat(
        [_shapes(frame, series, metric) for metric in _METRICS for series in models.present(frame)], ignore_index=True
    )
    panels = []
    for metric, compared in shapes.groupby("metric", sort=False):
        for series, own in models.each(compared):
            seen = (
                compared if metric == "cosine" else own
            )  # cosines share one range; distances have one scale per model
            span = (float(seen["low"].min()), float(seen["high"].max()))
            form = _Ridges(rows=own, series=series, metric=str(metric), span=span)
            panels.append(Panel.of(form, f"{series.label}: {_TITLES[str(metric)]}"))
    return ReportFigure(
        id="word-distances",
        question="How similar, and how far apart, are two random words?",
        words=_words(shapes, models),
        panels=panels,
        caption=f"{int(frame['count'].median()):,} random pairs of word occurrences in each layer of each model, the "
        "same pairs in every layer. Every shape is drawn to the same "
        f"height; cosine panels share their horizontal scale.{sample_note(frame)}",
        how_to_read=[
            "Each line is a layer, from the embeddings (0) at the bottom to the top. The shape on it shows how often "
            "two random words have that cosine, or lie that far apart.",
            "The dashed grey shape is an untrained model; the dotted one is an isotropic Gaussian whose vectors have "
            "the same mean squared length.",
            "A shape that lies to the right of 0 means that all words point in similar directions. Two humps mean that "
            "the layer keeps two kinds of words apart.",
        ],
        method=GEOMETRY,
        data=shapes,
        tables=(DISTANCE_DISTRIBUTION.name,),
    )


def _shapes(frame: pd.DataFrame, series: Series, metric: str) -> pd.DataFrame:
    """Mean share over seeds of each bin, for the trained models, the untrained ones and the Gaussian."""
    own = frame[(frame["series"] == series.key) & (frame["metric"] == metric)]
    # The width of Euclidean bins is a power of two, so bins of all seeds and layers nest in the widest.
    width = float((own["bin_high"] - own["bin_low"]).max())
    own = own.assign(place=np.floor(own["bin_low"] / width + _ROUNDING))
    groups = {
        "trained": (own[own["trained"]], "share"),
        "untrained": (own[~own["trained"]], "share"),
        "baseline": (own[own["trained"]], "baseline"),
    }
    parts = []
    for group, (rows, column) in groups.items():
        sums: Any = rows.groupby(["layer", "place"])[column].sum() / max(rows["seed"].nunique(), 1)
        shape = sums.rename("share").reset_index()
        parts += [_visible(of_layer).assign(group=group) for _, of_layer in shape.groupby("layer")]
    shapes = pd.concat(parts, ignore_index=True).assign(series=series.key, metric=metric)
    low, high = (shapes["place"] * width).round(6), ((shapes["place"] + 1) * width).round(6)
    return shapes.assign(low=low, high=high, share=shapes["share"].round(5)).drop(columns="place")


def _visible(rows: pd.DataFrame) -> pd.DataFrame:
    """One shape's bins without the nearly empty ones at both ends, except the first on each side."""
    seen = np.flatnonzero(rows["share"] > _VISIBLE)
    return rows.iloc[max(seen[0] - 1, 0) : seen[-1] + 2] if len(seen) else rows.head(0)


@final
@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class _Ridges(AbstractForm):
    """One shape per layer, the embeddings at the bottom."""

    rows: pd.DataFrame
    series: Series
    metric: str
    span: tuple[float, float]
    chosen: Frame | None = None

    @property
    def frame(self) -> Frame:
        layers = [int(layer) for layer in self.rows["layer"].unique()]
        return self.chosen or Frame(min(layers), max(layers), *self.span)

    @property
    def spec(self) -> dict[str, Any]:
        highest = self.rows.groupby(["group", "layer"])["share"].transform("max")
        rows = self.rows.assign(
            middle=((self.rows["low"] + self.rows["high"]) / 2).round(5),
            top=(self.rows["layer"] + _HEIGHT * self.rows["share"] / highest).round(3),
        ).sort_values(["layer", "middle"], ascending=[False, True])
        frame, key = self.frame, self.series.key
        levels = list(range(frame.first, frame.last + 1))
        shape = {name: of_one(own[["layer", "middle", "top"]], key) for name, own in rows.groupby("group")}
        upward = amount(
            "y", "top", "layer", [frame.first - 0.1, frame.last + _HEIGHT + 0.05], values=levels, format="d"
        )
        at = {"x": amount("x", "middle", _METRICS[self.metric], (frame.low, frame.high)), "y": upward}
        each, color, smooth = {"detail": "layer:O"}, {"color": color_of([self.series])}, {"interpolate": "monotone"}
        grey = {**each, "color": "var(--control)", "strokeWidth": 1.3, "opacity": lit(0.9, 0.5)}
        floor = {"x": at["x"], "y": with_field(at["y"], "layer"), "y2": "top:Q"}
        trained, tooltip = shape["trained"], tips("layer:Q")
        layers = [
            draw("area", trained, floor, each, color, smooth, opacity=lit(0.35), tooltip=tooltip),
            *(draw("line", shape[name], at, grey, strokeDash=dash) for name, dash in _DASHES.items() if name in shape),
            draw("line", trained, at, each, color, smooth, strokeWidth=1.5, opacity=lit()),
        ]
        return finished(layers, 70 + 32 * len(levels))


def _words(shapes: pd.DataFrame, models: ModelSelection) -> str:
    """The models whose random words are most and least similar in the top layer, by the median cosine."""
    cosines = shapes[shapes["metric"] == "cosine"]
    trained, untrained = (cosines[cosines["group"] == group] for group in ("trained", "untrained"))
    tops = [Candidate(f"in {series.label}", plain(_median_on_top(own))) for series, own in models.each(trained)]
    stated = both_extremes(tops)
    if not stated:
        return ""
    control = [_median_on_top(own) for _, own in untrained.groupby("series", sort=False)]
    compared = f"; in an untrained model it is at most {number(max(control), 2)}" if control else ""
    return sentence(f"at the top layer the median cosine of two random words is {stated}{compared}")


def _median_on_top(rows: pd.DataFrame) -> float:
    """Median of a histogram, interpolated within bins and rounded to hundredths, which is finer than the bins."""
    rows = rows[rows["layer"] == rows["layer"].max()].sort_values("low")
    edges = np.concatenate([rows["low"].iloc[:1], rows["high"]])
    summed = np.concatenate([[0.0], rows["share"].cumsum()])
    return round(float(np.interp(summed[-1] / 2, summed, edges)), 2)
