"""Candidate quantities for the front page's cards: a quantity over layers and the number that summarises it."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Literal

import pandas as pd
from markupsafe import Markup

from infoflow._subjects import provided
from infoflow.heads import HEAD_CONFIDENCE, HEAD_PRUNING_CURVE, HEAD_SURFACE
from infoflow.representations import (
    CONTEXT_NEIGHBOURS,
    GEOMETRY,
    IDENTITY_NEIGHBOURS,
    LAYER_DISTANCE,
    MUTUAL_INFORMATION,
    POSITION_NEIGHBOURS,
    USABLE_INFORMATION,
)

from .._curves import mean_of_draws
from .._in_words import Samples
from .._model_selection import ModelSelection
from .._model_tables import ModelTables
from ..representations._information import LIMITED_BY, input_rows, output_rows

Contrast = Literal["ends", "middle", "best", "reached"]
"""The number that summarises a line: last minus first layer, the value at the middle layer or at the layer with the
largest value (`{at}` in the measure's verbs), or the change up to `reached`."""


@dataclass(frozen=True, kw_only=True, slots=True)
class Card:
    """One answer on the front page."""

    figure: str  # id of the figure that it links to
    question: str
    sentence: str
    difference: str = ""  # the number that the card rests on, with its interval and the control
    clear: bool = True
    strength: float = 0.0
    picture: Markup = Markup("")  # noqa: RUF009 (immutable)
    picked: bool = False  # picked among many by its strength; otherwise it belongs to its command's tables


@dataclass(frozen=True, kw_only=True, slots=True)
class CardMeasure:
    """A quantity over layers (or updates, ...), and how a card describes it."""

    figure: str  # id of the figure that shows the whole quantity
    section: str  # the front page shows one measure per section
    question: str
    table: str
    rows: Callable[[pd.DataFrame, ModelSelection], pd.DataFrame] = lambda frame, models: models.main(frame)
    opening: str  # start of the sentence, with `{span}`, `{middle}` or `{reached}` for the layers compared
    contrast: Contrast = "ends"
    falls: str = "falls in {line} by"  # verbs; equal if the contrast is not a change
    rises: str = "rises in {line} by"
    unit: str = ""
    what: str = ""  # words after the first number
    noun: str = ""  # name of the quantity in a sentence that no effect is seen: "in {noun}"
    percent: bool = False
    bounded: bool = False  # whether it lies between 0 and 1, as percentages do
    axis: str = ""  # title of the y axis
    untrained: bool = True  # whether an untrained model is its control
    x: str = "layer"
    ends: tuple[str, str] | None = None  # names of the first and the last position, if no number describes them
    unless: str = ""  # a table that answers the same question better
    reached: float = 0.5  # end of the contrast "reached", a share; positions are then in percent
    fills: bool = False  # shown only where the others leave room: reports of `heads` and `probe`


def _cosine(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    rows = frame[(frame["measure"] == "average_similarity") & (frame["space"] == "raw")]
    return models.main(rows[rows["words"] == "mean"] if "words" in rows else rows)


def _removed(frame: pd.DataFrame, models: ModelSelection) -> pd.DataFrame:
    """Rise of the loss as heads are pruned, least important first; `layer` holds the share of pruned heads."""
    rows = frame[(frame["order"] == "importance") & (frame["kind"] == "all") & (frame["metric"] == "loss")]
    return rows.assign(layer=(100 * rows["removed"]).round().astype(int))


def mean_over_heads(rows: pd.DataFrame) -> pd.DataFrame:
    """One row per model and layer of self-attention: the mean over its heads, with the interval of that mean."""
    found = []
    for _, own in rows[rows["kind"] == "self"].groupby(["series", "seed", "trained", "layer"], sort=False):
        mean = mean_of_draws(own)
        if "replicates" in mean:
            drawn = {0: mean["replicates"].iloc[0]}
            ends = Samples.by_key({0: mean["value"].iloc[0]}, drawn, count=int(mean["count"].iloc[0])).estimate()
            if ends.has_interval:
                mean = mean.assign(low=ends.low, high=ends.high)
        found.append(mean)
    return pd.concat(found, ignore_index=True) if found else rows.head(0)


_KEPT = CardMeasure(
    figure="mi-input",
    axis="nats",
    noun="the change of usable information about the input token",
    section="knows",
    question="How much of the input do layers keep?",
    table=USABLE_INFORMATION.name,
    rows=lambda frame, models: input_rows(models.main(frame)),
    opening="From {span}, ",
    rises="gains",
    falls="loses",
    unit="nats",
    what="of usable information about its input token",
)

MEASURES: tuple[CardMeasure, ...] = (
    _KEPT,
    replace(
        _KEPT,
        unless=USABLE_INFORMATION.name,
        noun=f"the change of information about the input token, {LIMITED_BY},",
        table=MUTUAL_INFORMATION.name,
        what=f"of information about its input token, {LIMITED_BY}",
    ),
    replace(
        _KEPT,
        figure="mi-output",
        noun="the change of information about the token to predict",
        question="How much do layers encode about the output?",
        table=MUTUAL_INFORMATION.name,
        rows=lambda frame, models: output_rows(models.main(frame)),
        what="of information about the token to predict",
    ),
    CardMeasure(
        figure="identity",
        axis="% of neighbours",
        noun="the share of neighbours that are the same token",
        section="knows",
        question="Do nearest neighbours stay the same token?",
        table=IDENTITY_NEIGHBOURS.name,
        opening="From {span}, neighbours that are the same token ",
        rises="rise in {line} by",
        falls="fall in {line} by",
        percent=True,
    ),
    CardMeasure(
        figure="layer-change",
        axis="1 − PWCCA",
        noun="the trend of the change per layer",
        section="changes",
        question="Do upper layers change more than lower ones?",
        table=LAYER_DISTANCE.name,
        opening="From the first step to the last, the change per layer ",
    ),
    CardMeasure(
        figure="average-similarity",
        axis="mean cosine",
        noun="the similarity of random words",
        section="space",
        question="Do all words become alike?",
        table=GEOMETRY.name,
        rows=_cosine,
        opening="From {span}, the mean cosine of random words ",
    ),
    CardMeasure(
        figure="position-neighbours",
        axis="tokens apart",
        noun="how much of the position is kept",
        section="neighbours",
        question="Is a token's position kept?",
        table=POSITION_NEIGHBOURS.name,
        opening="From {span}, the distance in position of neighbours ",
        unit="tokens",
    ),
    CardMeasure(
        figure="context-neighbours",
        axis="% of neighbours",
        noun="the share of neighbours that follow the same token",
        section="neighbours",
        question="Do neighbours share their context?",
        table=CONTEXT_NEIGHBOURS.name,
        rows=lambda frame, models: models.main(frame[frame["side"] == "left"]),
        opening="From {span}, neighbours that follow the same token ",
        rises="rise in {line} by",
        falls="fall in {line} by",
        percent=True,
    ),
    CardMeasure(
        figure="heads-removed",
        axis="loss (nats)",
        noun="the loss without {reached} % of the heads",
        section="heads",
        question="Which heads matter?",
        table=HEAD_PRUNING_CURVE.name,
        rows=_removed,
        contrast="reached",
        opening="With {reached} % of all heads removed, least important first, the loss ",
        unit="nats",
        x="% of heads removed",
    ),
    CardMeasure(
        figure="head-map",
        axis="% of attention",
        noun="the attention to special tokens",
        section="heads",
        question="How much attention goes to special tokens?",
        table=HEAD_SURFACE.name,
        rows=lambda frame, models: mean_over_heads(models.main(frame[frame["statistic"] == "special"])),
        contrast="best",
        opening="The mean share of attention on special tokens is largest ",
        rises="in layer {at} of {line}, at",
        falls="in layer {at} of {line}, at",
        percent=True,
        fills=True,
    ),
    CardMeasure(
        figure="head-map",
        axis="mean largest weight",
        noun="how sharply heads attend",
        section="heads",
        question="In which layer do heads attend most sharply?",
        table=HEAD_CONFIDENCE.name,
        rows=lambda frame, models: mean_over_heads(models.main(frame)),
        contrast="best",
        opening="A head's largest weight is on average largest ",
        rises="in layer {at} of {line}, at",
        falls="in layer {at} of {line}, at",
        bounded=True,
        fills=True,
    ),
)
"""The core's candidate measures for cards, in the order of the report."""


def card_measures(tables: ModelTables) -> list[CardMeasure]:
    """All candidate measures for cards, of the core and then of the subjects."""
    found = list(MEASURES)
    for offered in (one for own in provided("figures", "CARDS") for one in own):
        found += [offered] if isinstance(offered, CardMeasure) else offered(tables)
    return found


def measured(measure: CardMeasure, tables: ModelTables) -> pd.DataFrame | None:
    """The rows of a measure: series, seed, trained, layer, value, low, high, replicates; None if there are none.

    A model measured at a single layer has no line and is left out.
    """
    frame = tables.get(measure.table)
    if frame is None or (measure.unless and tables.get(measure.unless) is not None):
        return None
    rows = measure.rows(frame, tables.models)
    layers = rows[rows["trained"]].groupby("series")["layer"].nunique()
    rows = rows[rows["series"].isin(layers.index[layers > 1])]
    return rows if len(rows) else None
