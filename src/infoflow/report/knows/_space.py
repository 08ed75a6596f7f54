"""The geometry of a layer's space: similarity of random words, of a word's occurrences, and within sentences."""

from collections.abc import Collection
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from infoflow.representations import DISTANCE_DISTRIBUTION
from infoflow.representations import GEOMETRY as GEOMETRY_TABLE

from .._curves import curves, interval_note, sample_note, trend_sentences, trend_words
from .._figure import Method, Panel, ReportFigure, Section
from .._in_words import Samples, chosen, listed, number
from .._layer_figure import HOW_BANDS, LayerFigure, moves, shared_panels, stacked
from .._model_tables import ModelTables
from .._shown_models import ShownModels
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
    "raw": "as they are",
    "centred": "less the layer's mean",
    "standardised": "every dimension of variance 1",
    "rank": "Spearman's correlation for cosine",
}
_KEYS = ["model", "trained", "stack", "layer", "space"]


def _left_out(rows: pd.DataFrame) -> str:
    """Which words are excluded."""
    least = sorted(set(rows["least"]) - {0}) if "least" in rows else []
    rare = f", and words with fewer than {listed([str(each) for each in least])} sampled occurrences," if least else ""
    return f"Words without letter or digit{rare} are left out."


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
        "The other panels, and the sentences on panels that would be empty, ask what the first rests on. Where "
        "similarity vanishes once the mean is taken away, all vectors share an offset, and their differences may "
        "be as free as before; where it vanishes only in the last panels, a few dimensions with large values rule "
        "the cosine.",
    ),
    method=GEOMETRY,
    claims=("representations:Z-1", "representations:Z-5", "representations:Z-6"),
)
_DIMENSION = LayerFigure(
    id="intrinsic-dimension",
    question="How many dimensions does the cloud of words have?",
    table=GEOMETRY_TABLE,
    axis={
        "y_title": "intrinsic dimension (TwoNN)",
        "baseline_name": "Gaussian of that covariance",
        "bounds": POSITIVE,
    },
    noun="the number of dimensions",
    wording=moves("the dimension"),
    how_to_read=(
        "Across: layers. Up: in how many directions a point can move and stay in the cloud, judged from the ratio "
        "of the distances to its two nearest neighbours.",
        f"{HOW_BANDS} “Gaussian” is a cloud of the same covariance: words lie in tight groups rather than in one "
        "cloud, so they have fewer dimensions.",
    ),
    method=_DIMENSION_METHOD,
)


class _Likeness(NamedTuple):
    """A quantity that is shown both as measured and minus its baseline."""

    measure: str
    control: str  # the same quantity on data without the effect
    control_name: str
    baseline_name: str
    id: str
    question: str
    noun: str
    how: str
    bounds: tuple[float, float] = COSINE
    findings: tuple[str, ...] = ()


_LIKENESSES = (
    _Likeness(
        measure="self_similarity",
        control="shuffled_self_similarity",
        control_name="shuffled words",
        baseline_name="random words",
        id="self-similarity",
        question="Do the occurrences of one word stay alike?",
        noun="similarity within words",
        how="Up: the mean cosine between two occurrences of the same word, averaged over words; 1 means that context "
        "leaves no trace. Corrected: less the mean cosine of random words, which a narrow space raises too. The dotted "
        "line shows what is left when words have exchanged their occurrences.",
        findings=("representations:Z-2",),
    ),
    _Likeness(
        measure="intra_sentence_similarity",
        control="unrelated_intra_sentence_similarity",
        control_name="unrelated words",
        baseline_name="random words",
        id="intra-sentence",
        question="Are the words of a sentence alike?",
        noun="similarity within sentences",
        how="Up: the mean cosine between the words of a sentence and the sentence's mean vector. A word is part of "
        "that mean, so sentences of a few unrelated words are similar too: the dotted line in the corrected panel is "
        "what they would have. Only what lies above it is shared by the words of a sentence.",
    ),
    _Likeness(
        measure="explainable_variance",
        control="shuffled_explainable_variance",
        control_name="shuffled words",
        baseline_name="random words",
        id="explainable-variance",
        question="Could one vector stand for all occurrences of a word?",
        noun="explainable variance",
        how="Up: the share of the variance of a word's occurrences along one direction, averaged over words. "
        "Corrected: less the same of all occurrences together; below .05 the paper calls a static vector a poor "
        "substitute. Few occurrences lie along one direction by chance: the dotted line is what words have after they "
        "exchanged their occurrences.",
        bounds=SHARE,
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
        "intra-sentence": "representations/intra-sentence-similarity",
        "explainable-variance": "representations/explainable-variance",
        "intrinsic-dimension": "representations/intrinsic-dimension",
        "word-distances": "representations/distance-distribution",
    },
)


def space_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run has none of its measures."""
    models, frames = tables.models, tables.some((GEOMETRY_TABLE.name, DISTANCE_DISTRIBUTION.name))
    figures: list[ReportFigure] = []
    if GEOMETRY_TABLE.name in frames:
        frame = _one_choice(frames[GEOMETRY_TABLE.name])
        figures += _geometry_figures(models.main(frame), models)
        figures += [_decoder(figure) for figure in _geometry_figures(models.others(frame), models)[:2]]
    if DISTANCE_DISTRIBUTION.name in frames:
        figures.append(distribution_figure(models.main(frames[DISTANCE_DISTRIBUTION.name]), models))
    return SPACE.told_by(figures, models, frames.values())


def _one_choice(frame: pd.DataFrame) -> pd.DataFrame:
    """Defined values; word vectors are means of their tokens if these were measured."""
    present = list(dict.fromkeys(frame["words"]))
    kept = "mean" if "mean" in present else present[0]
    return frame[(frame["words"] == kept) & frame["value"].notna()]


def _geometry_figures(frame: pd.DataFrame, models: ShownModels) -> list[ReportFigure]:
    average = frame[frame["measure"] == "average_similarity"]
    figures = [_anisotropy_figure(frame, average, models)] if len(average) else []
    for likeness in _LIKENESSES:
        rows = frame[(frame["measure"] == likeness.measure) & (frame["space"] == "raw")]
        if len(rows):
            control = frame[(frame["measure"] == likeness.control) & (frame["space"] == "raw")]
            figures.append(_likeness_figure(likeness, rows, _corrected(rows, control, average), models))
    dimension = frame[frame["measure"] == "intrinsic_dimension"]
    return figures + ([_dimension_figure(dimension, models)] if len(dimension) else [])


def _decoder(figure: ReportFigure) -> ReportFigure:
    question = f"{figure.question.removesuffix('?')}, in the decoder?"
    return replace(figure, id=f"{figure.id}-decoder", question=question, findings=())


def _anisotropy_figure(frame: pd.DataFrame, average: pd.DataFrame, models: ShownModels) -> ReportFigure:
    tables = {space: curves(rows) for space in _SPACES if len(rows := average[average["space"] == space])}
    data = stacked(tables, "space")
    drawn = {space: table for space, table in tables.items() if not _vanishes(space, tables)}
    titled = {_SPACES[space]: table for space, table in drawn.items()}
    panels, scale = shared_panels(titled, models, **_AVERAGE.axis)
    raw = average[average["space"] == "raw"]
    further = [*_centred_sentence(tables, drawn), *_vanished_sentence(tables, drawn), *_rogue_sentence(frame, models)]
    figure = _AVERAGE.drawn(raw, models.present(raw), panels=panels, data=data)
    caption = f"{interval_note(data)} {_left_out(average)} {scale}".rstrip() + sample_note(average)
    return replace(figure, answer=[*figure.answer, *further], caption=caption)


def _vanishes(space: str, tables: dict[str, pd.DataFrame]) -> bool:
    """Whether a panel would look like a flat zero on the scale of the raw similarity."""
    return space != "raw" and "raw" in tables and _most(tables[space]) < max(0.01, 0.02 * _most(tables["raw"]))


def _most(table: pd.DataFrame) -> float:
    """The largest absolute value of any model, trained or not."""
    return float(table.loc[table["group"] != "baseline", "value"].abs().max())


def _centred_sentence(tables: dict[str, pd.DataFrame], drawn: Collection[str]) -> list[str]:
    if "centred" not in tables:
        return []
    trained = tables["centred"][tables["centred"]["group"] == "trained"]
    most = float(trained["value"].abs().max())
    size = "less than 0.01" if most < 0.01 else f"at most {number(most, 2)}"
    shown = "" if "centred" in drawn else ", so it has no panel"
    return [f"Once the layer's mean is taken away, {size} is left in any layer{shown}."]


def _vanished_sentence(tables: dict[str, pd.DataFrame], drawn: Collection[str]) -> list[str]:
    """Which other corrections leave a flat zero."""
    gone = {space: _most(table) for space, table in tables.items() if space not in drawn and space != "centred"}
    if not gone:
        return []
    size = "less than 0.01" if max(gone.values()) < 0.01 else f"at most {number(max(gone.values()), 2)}"
    ways = listed([f"“{_SPACES[space]}”" for space in gone])
    return [f"For {ways} {size} is left anywhere, so there is no panel."]


def _rogue_sentence(frame: pd.DataFrame, models: ShownModels) -> list[str]:
    """Per model, the layer where three dimensions contribute most of the mean cosine."""
    rows = frame[(frame["measure"] == "rogue_dimensions") & frame["trained"]]
    if rows.empty:
        return []
    parts = []
    for series in models.present(rows):
        own = rows[rows["series"] == series.key]
        most = chosen({int(layer): Samples.of(at) for layer, at in own.groupby("layer")})
        if most is not None:
            parts.append(f"{_percent(most.estimate.value)} in {series.label} (layer {most.key})")
    equal = _percent(float(rows["baseline"].mean()))
    return [f"Of the mean cosine, three dimensions carry up to {listed(parts)}; equal shares would be {equal}."]


def _percent(share: float) -> str:
    return f"{number(100 * share, 0 if share > 0.1 else 1)}%"


def _likeness_figure(
    likeness: _Likeness, rows: pd.DataFrame, corrected: pd.DataFrame, models: ShownModels
) -> ReportFigure:
    series = models.present(rows)
    tables = {"as it is": curves(rows), "corrected": curves(corrected)}
    data = stacked(tables, "panel")
    scales = panel_scales(tables.values(), "Panels share one scale.")
    axes = {
        "as it is": {"y_title": likeness.noun, "baseline_name": likeness.baseline_name, "bounds": likeness.bounds},
        "corrected": {"y_title": f"less that of {likeness.baseline_name}", "baseline_name": likeness.control_name},
    }
    note = interval_note(tables["as it is"], "sentences" if likeness.id == "intra-sentence" else "")
    return ReportFigure(
        id=likeness.id,
        question=likeness.question,
        answer=[
            *trend_sentences(corrected, series, moves(f"the corrected {likeness.noun}")),
            *_chance_sentence(likeness, tables["corrected"]),
        ],
        words=trend_words(corrected, series, f"the corrected {likeness.noun}"),
        panels=[
            Panel.of(LayerChart(table=table, series=series, y_range=scales.shared, **axes[title]), title)
            for title, table in tables.items()
        ],
        caption=f"{note} {_left_out(rows)} {scales.note} Controls are means over models.{sample_note(rows)}",
        how_to_read=["Across: layers, from the embeddings (0) to the top.", likeness.how, HOW_BANDS],
        method=GEOMETRY,
        data=data,
        tables=(GEOMETRY_TABLE.name,),
        findings=likeness.findings,
    )


def _chance_sentence(likeness: _Likeness, table: pd.DataFrame) -> list[str]:
    """The control's values; says so if they are negligible."""
    control = table.loc[table["group"] == "baseline", "value"]
    if control.empty:
        return []
    low, high = float(control.min()), float(control.max())
    if max(abs(low), abs(high)) < 0.01:
        return [f"For {likeness.control_name} it is less than 0.01 everywhere."]
    return [f"For {likeness.control_name} it is {_span(control, 2)}."]


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
    """Replicates minus their baseline's; None if either is missing because it had too few sentences."""
    return None if own is None or other is None else np.asarray(own, dtype=float) - np.asarray(other, dtype=float)


def _places(frame: pd.DataFrame) -> list[tuple]:
    return list(frame[_KEYS].itertuples(index=False, name=None))


def _dimension_figure(rows: pd.DataFrame, models: ShownModels) -> ReportFigure:
    series, trained = models.present(rows), rows[rows["trained"]]
    figure = _DIMENSION.drawn(rows, series)
    drawn, hidden = _on_scale(figure.data)
    return replace(
        figure,
        answer=[*trend_sentences(trained, series, _DIMENSION.wording), *_gaussian_sentence(figure.data)],
        words=trend_words(trained, series, _DIMENSION.noun),
        panels=[Panel.of(LayerChart(table=drawn, series=series, **_DIMENSION.axis))],
        caption=f"{interval_note(figure.data)} {_left_out(rows)} Repeated points are left out.{hidden}"
        + sample_note(rows),
    )


def _on_scale(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Drop untrained values that would squash the curves, and name them in a sentence."""
    highest = float(table.loc[table["group"] == "trained", ["value", "high"]].max().max())
    far = (table["group"] == "untrained") & (table["value"] > 2 * highest)
    if not bool(far.any()):
        return table, ""
    layers = listed([str(layer) for layer in sorted(set(table.loc[far, "layer"]))])
    return table[~far], f" Off the scale: untrained models at layer {layers} ({_span(table.loc[far, 'value'], 0)})."


def _gaussian_sentence(table: pd.DataFrame) -> list[str]:
    values = table.loc[table["group"] == "baseline", "value"]
    if values.empty:
        return []
    return [f"Gaussian clouds of the same covariance have {_span(values, 0)}."]


def _span(values: pd.Series, places: int) -> str:
    """`0.13 to 0.19`, or one number if both ends round to it."""
    low, high = number(values.min(), places), number(values.max(), places)
    return low if low == high else f"{low} to {high}"
