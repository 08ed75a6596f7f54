"""The geometry of a layer's space: similarity of random words, of a word's occurrences, and within sentences."""

from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.representations import DISTANCE_DISTRIBUTION
from infoflow.representations import GEOMETRY as GEOMETRY_TABLE

from .._curves import curves, interval_note, sample_note, trend_sentences, trend_words
from .._figure import Method, Panel, ReportFigure, Section
from .._in_words import Samples, chosen, listed, number, span_text
from .._layer_figure import HOW_BANDS, LayerFigure, moves, stacked
from .._model_selection import ModelSelection
from .._model_tables import ModelTables
from .._theme import Series
from ..forms._layer_chart import LayerChart, panel_scales
from ..forms._lines import COSINE, POSITIVE, SHARE
from ._distributions import GEOMETRY, distribution_figure

_DIMENSION_METHOD = Method(
    id="intrinsic-dimension",
    title="Intrinsic dimension",
    text="""
    <i>N</i> / Σ ln(<i>r</i><sub>2</sub>/<i>r</i><sub>1</sub>) over the distances of each point to its two nearest
    neighbours. Points that repeat another up to rounding are left out. The value grows with <i>N</i> where the
    dimension is high. After Facco et al. (2017).
    """,
)

_SPACES = {
    "centred": "after the layer's mean is subtracted",
    "standardised": "after every dimension is also scaled to variance 1",
    "rank": "with Spearman's correlation in place of the cosine",
}
_KEYS = ["model", "trained", "stack", "layer", "space"]


def _left_out(rows: pd.DataFrame) -> str:
    least = sorted(set(rows["least"]) - {0}) if "least" in rows else []
    rare = f", and words with fewer than {listed([str(each) for each in least])} sampled occurrences," if least else ""
    return f"Words without a letter or digit{rare} are left out."


_AVERAGE = LayerFigure(
    id="average-similarity",
    question="Are all words alike?",
    table=GEOMETRY_TABLE,
    axis={"y_title": "mean cosine of two random words", "baseline_name": "isotropic", "bounds": COSINE},
    noun="the cosine of random words",
    wording=moves("the mean cosine"),
    how_to_read=(
        "Across: layers, from the embeddings (0) to the top. Up: the mean cosine over all pairs of word "
        "occurrences, whatever the words. 0 is a space that looks the same in every direction (isotropic).",
        f"{HOW_BANDS} The dotted line is an isotropic Gaussian.",
    ),
    method=GEOMETRY,
    caption=_left_out,
    claims=("representations:Z-1", "representations:Z-5", "representations:Z-6"),
)
_DIMENSION = LayerFigure(
    id="intrinsic-dimension",
    question="How many dimensions does the cloud of words have?",
    table=GEOMETRY_TABLE,
    axis={"y_title": "intrinsic dimension (TwoNN)", "baseline_name": "Gaussian of that covariance", "bounds": POSITIVE},
    noun="the number of dimensions",
    wording=moves("the dimension"),
    how_to_read=(
        "Across: layers. Up: in how many directions a point can move and stay in the cloud, estimated from the ratio "
        "of the distances to its two nearest neighbours.",
        f"{HOW_BANDS} “Gaussian” is one cloud with the same covariance. Words have fewer dimensions, because they "
        "lie in tight groups.",
    ),
    method=_DIMENSION_METHOD,
    caption=lambda rows: f"{_left_out(rows)} Repeated points are left out.",
)


class _Likeness(NamedTuple):
    """A quantity that is shown both as measured and after subtracting its baseline."""

    measure: str
    control: str  # the same quantity on data without the effect
    control_name: str
    noun: str
    how: str
    bounds: tuple[float, float] = COSINE
    counted: str = ""  # unit behind each point, other than occurrences


_WITHIN_WORDS = _Likeness(
    measure="self_similarity",
    control="shuffled_self_similarity",
    control_name="shuffled words",
    noun="similarity within words",
    how="Within words: the mean cosine between two occurrences of the same word, averaged over words; 1 means that "
    "context leaves no trace. The dotted line of the corrected panel shows the value after occurrences were shuffled "
    "between words.",
)
_WITHIN_SENTENCES = _Likeness(
    measure="intra_sentence_similarity",
    control="unrelated_intra_sentence_similarity",
    control_name="unrelated words",
    noun="similarity within sentences",
    how="Within sentences: the mean cosine between the words of a sentence and the sentence's mean vector. A word is "
    "part of that mean, so even unrelated words in a short sentence are similar to it: the dotted line in the "
    "corrected panel shows how similar. Only what lies above it is shared by the words of a sentence.",
    counted="sentences",
)
_VARIANCE = _Likeness(
    measure="explainable_variance",
    control="shuffled_explainable_variance",
    control_name="shuffled words",
    noun="explainable variance",
    how="Up: the share of the variance of a word's occurrences that lies along one direction, averaged over words. "
    "For random words, the share is taken over the occurrences of all words together. If the corrected share is below "
    "0.05, the paper calls a static vector a poor substitute. With few occurrences, one direction explains much by "
    "chance: the dotted line shows the value after occurrences were shuffled between words.",
    bounds=SHARE,
)
_RANDOM = "random words"  # the baseline that a correction subtracts
_PLAIN, _LESS = "uncorrected", "corrected"


class _LikenessFigure(NamedTuple):
    id: str
    question: str
    likenesses: tuple[_Likeness, ...]
    findings: tuple[str, ...] = ()


_LIKENESSES = (
    _LikenessFigure(
        id="self-similarity",
        question="How much do words depend on their sentence?",
        likenesses=(_WITHIN_WORDS, _WITHIN_SENTENCES),
        findings=("representations:Z-2",),
    ),
    _LikenessFigure(
        id="explainable-variance",
        question="Could one vector stand for all occurrences of a word?",
        likenesses=(_VARIANCE,),
    ),
)


SPACE = Section(
    id="space",
    title="What does the space look like?",
    lead="Vectors of one layer do not fill their space evenly. How alike are random words, the occurrences of one "
    "word, the words of one sentence, and how much of that is due to a direction that all vectors share?",
    names={
        "average-similarity": "representations/average-similarity",
        "self-similarity": "representations/self-similarity",
        "explainable-variance": "representations/explainable-variance",
        "intrinsic-dimension": "representations/intrinsic-dimension",
        "word-distances": "representations/distance-distribution",
    },
    folded=("explainable-variance", "intrinsic-dimension", "average-similarity-decoder", "self-similarity-decoder"),
)


def space_section(tables: ModelTables) -> Section | None:
    """The section on what the space looks like, or None if the run has none of its measures."""
    models, frames = tables.models, tables.some((GEOMETRY_TABLE.name, DISTANCE_DISTRIBUTION.name))
    figures: list[ReportFigure] = []
    shapes = models.main(frames[DISTANCE_DISTRIBUTION.name]) if DISTANCE_DISTRIBUTION.name in frames else None
    shown = None if shapes is None else distribution_figure(shapes, models)
    if GEOMETRY_TABLE.name in frames:
        frame = _one_choice(frames[GEOMETRY_TABLE.name])
        figures += _geometry_figures(models.main(frame), models)
        decoders = [one for one in _geometry_figures(models.others(frame), models) if one.id not in SPACE.folded]
        figures += [one.of_decoder() for one in decoders]
    if shown and figures and figures[0].id == _AVERAGE.id:
        figures[0] = _with_shapes(figures[0], shown)
    elif shown:
        figures.append(shown)
    return SPACE.drawn_with(figures, models, frames.values())


def _with_shapes(average: ReportFigure, shapes: ReportFigure) -> ReportFigure:
    """The mean similarity, and below it the distributions side by side: a row of cosines, a row of distances."""
    (curve,) = average.panels
    return replace(
        average,
        question="How alike are random words?",
        words=" ".join(filter(None, (average.words, shapes.words))),
        panels=[replace(curve, title="average similarity"), *shapes.panels],
        caption=f"{average.caption} {shapes.caption}",
        how_to_read=[*average.how_to_read, *shapes.how_to_read],
        data=pd.concat([average.data, shapes.data], ignore_index=True),
        tables=(*average.tables, *shapes.tables),
        payload={"layout": "topped pairs" if len(shapes.panels) == 4 else "topped"},
    )


def _one_choice(frame: pd.DataFrame) -> pd.DataFrame:
    """Rows with defined values, those of words as means of their tokens if these were measured."""
    present = list(dict.fromkeys(frame["words"]))
    kept = "mean" if "mean" in present else present[0]
    return frame[(frame["words"] == kept) & frame["value"].notna()]


def _geometry_figures(frame: pd.DataFrame, models: ModelSelection) -> list[ReportFigure]:
    average = frame[frame["measure"] == "average_similarity"]
    figures = []
    if len(average):
        raw = average[average["space"] == "raw"]  # the sentences say what remains of it in the other spaces
        figure = _AVERAGE.drawn(raw, models.present(raw))
        further = [*_spaces_sentence(average), *_rogue_sentence(frame, models)]
        figures.append(replace(figure, answer=[*figure.answer, *further]))
    for likeness in _LIKENESSES:
        figure = _likeness_figure(likeness, frame[frame["space"] == "raw"], average, models)
        figures += [figure] if figure else []
    dimension = frame[frame["measure"] == "intrinsic_dimension"]
    return figures + ([_dimension_figure(dimension, models)] if len(dimension) else [])


def _spaces_sentence(average: pd.DataFrame) -> list[str]:
    """The largest absolute value of any model, trained or not, in each other space."""
    tables = {space: curves(rows) for space in _SPACES if len(rows := average[average["space"] == space])}
    most = {space: table.loc[table["group"] != "baseline", "value"].abs().max() for space, table in tables.items()}
    stated = [
        f"{'less than 0.01' if size < 0.01 else f'at most {number(size, 2)}'} {_SPACES[space]}"
        for space, size in most.items()
    ]
    return [f"In every layer the mean cosine is {listed(stated)}."] if stated else []


def _rogue_sentence(frame: pd.DataFrame, models: ModelSelection) -> list[str]:
    """Per model, the layer where three dimensions contribute most of the mean cosine."""
    rows = frame[(frame["measure"] == "rogue_dimensions") & frame["trained"]]
    if rows.empty:
        return []
    parts = []
    for series, own in models.each(rows):
        most = chosen({int(layer): Samples.of(at) for layer, at in own.groupby("layer")})
        if most is not None:
            parts.append(f"{_percent(most.estimate.value)} in {series.label} (layer {most.key})")
    equal = _percent(float(rows["baseline"].mean()))
    return [
        f"The share of the mean cosine that three dimensions carry is up to {listed(parts)}; with equal shares it "
        f"would be {equal}."
    ]


def _percent(share: float) -> str:
    return f"{number(100 * share, 0 if share > 0.1 else 1)}%"


def _likeness_figure(
    figure: _LikenessFigure, frame: pd.DataFrame, average: pd.DataFrame, models: ModelSelection
) -> ReportFigure | None:
    """A panel as measured and one corrected for each quantity that the run has; None if it has none."""
    tables: dict[tuple[_Likeness, str], pd.DataFrame] = {}
    answer, words, notes = [], [], []
    several = len(figure.likenesses) > 1
    series: list[Series] = []
    for likeness in figure.likenesses:
        rows, control = (frame[frame["measure"] == name] for name in (likeness.measure, likeness.control))
        if rows.empty:
            continue
        series, corrected = models.present(rows), _corrected(rows, control, average)
        tables |= {(likeness, _PLAIN): curves(rows), (likeness, _LESS): curves(corrected)}
        noun = f"the corrected {likeness.noun}"
        answer += trend_sentences(corrected, series, moves(noun))
        answer += _chance_sentence(likeness, tables[likeness, _LESS])
        words.append(trend_words(corrected, series, noun))
        of = f"{likeness.noun.partition(' ')[2].capitalize()}: " if several else ""
        notes.append(f"{of}{interval_note(tables[likeness, _PLAIN], likeness.counted)} {_left_out(rows)}")
    if not tables:
        return None
    y_range, scale = panel_scales(tables.values(), "Panels share one scale.")
    return ReportFigure(
        id=figure.id,
        question=figure.question,
        answer=answer,
        words=" ".join(filter(None, words)),
        panels=[
            Panel.of(
                LayerChart(table=table, series=series, y_range=y_range, **_likeness_axis(likeness, panel)),
                f"{likeness.noun.partition(' ')[2]}, {panel}" if several else panel,
            )
            for (likeness, panel), table in tables.items()
        ],
        caption=f"{' '.join(notes)} {scale} Controls are means over models.{sample_note(frame)}",
        how_to_read=[
            "Across: layers, from the embeddings (0) to the top. Corrected: the value for random words, which is also "
            "high in a narrow space, is subtracted.",
            *dict.fromkeys(likeness.how for likeness, _ in tables),
            HOW_BANDS,
        ],
        method=GEOMETRY,
        data=stacked({(one.measure, panel): table for (one, panel), table in tables.items()}, "measure", "panel"),
        tables=(GEOMETRY_TABLE.name,),
        findings=figure.findings,
    )


def _likeness_axis(likeness: _Likeness, panel: str) -> dict[str, Any]:
    if panel == _LESS:
        return {"y_title": f"minus that of {_RANDOM}", "baseline_name": likeness.control_name}
    return {"y_title": likeness.noun, "baseline_name": _RANDOM, "bounds": likeness.bounds}


def _chance_sentence(likeness: _Likeness, table: pd.DataFrame) -> list[str]:
    control = table.loc[table["group"] == "baseline", "value"]
    if control.empty:
        return []
    low, high = float(control.min()), float(control.max())
    if max(abs(low), abs(high)) < 0.01:
        return [f"For {likeness.control_name} it is less than 0.01 everywhere."]
    return [f"For {likeness.control_name} it is {span_text(control, 2)}."]


def _corrected(rows: pd.DataFrame, control: pd.DataFrame, average: pd.DataFrame) -> pd.DataFrame:
    """Subtract the baseline from the rows; their baseline becomes the control's corrected value.

    Replicates are paired with those of the average similarity; other baselines hardly vary and count as exact.
    """
    of_control = dict(zip(_places(control), control["corrected"], strict=True))
    of_average = dict(zip(_places(average), average["replicates"], strict=True))
    by_average = bool((rows["measure"] == "self_similarity").all())
    replicates = [
        _less(own, of_average.get(place, base) if by_average else base)
        for own, base, place in zip(rows["replicates"], rows["baseline"], _places(rows), strict=True)
    ]
    return rows.assign(
        value=rows["corrected"],
        low=rows["corrected_low"],
        high=rows["corrected_high"],
        baseline=[of_control.get(place, np.nan) for place in _places(rows)],
        replicates=replicates,
    )


def _less(own: Any, other: Any) -> np.ndarray | None:
    """Replicates minus those of their baseline; None if either is missing because there were too few sentences."""
    return None if own is None or other is None else np.asarray(own, dtype=float) - np.asarray(other, dtype=float)


def _places(frame: pd.DataFrame) -> list[tuple]:
    return list(frame[_KEYS].itertuples(index=False, name=None))


def _dimension_figure(rows: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    series, trained = models.present(rows), rows[rows["trained"]]
    figure = _DIMENSION.drawn(rows, series)
    drawn, hidden = _on_scale(figure.data)
    gaussian = figure.data.loc[figure.data["group"] == "baseline", "value"]
    answer = trend_sentences(trained, series, _DIMENSION.wording)
    answer += [f"Gaussian clouds of the same covariance have {span_text(gaussian, 0)}."] if len(gaussian) else []
    panel = Panel.of(LayerChart(table=drawn, series=series, **_DIMENSION.axis))
    return replace(figure, answer=answer, panels=[panel], caption=f"{figure.caption}{hidden}")


def _on_scale(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Drop untrained values that would squash the curves, and name them in a sentence."""
    highest = float(table.loc[table["group"] == "trained", ["value", "high"]].max().max())
    far = (table["group"] == "untrained") & (table["value"] > 2 * highest)
    if not bool(far.any()):
        return table, ""
    layers = listed([str(layer) for layer in sorted(set(table.loc[far, "layer"]))])
    return table[~far], f" Off the scale: untrained models at layer {layers} ({span_text(table.loc[far, 'value'], 0)})."
