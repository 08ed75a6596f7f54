"""What the space of a layer looks like: how alike words, occurrences of a word, and words of a sentence are."""

from collections.abc import Callable, Collection
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
import pandas as pd

from .._curves import curves, interval_note
from .._figure import Method, Panel, ReportFigure, Section
from .._model_tables import ModelTables
from .._numbers import listed, number
from .._series import Series
from .._shown_models import ShownModels
from .._trends import Wording, trend_sentences, trend_words
from ..forms._layer_chart import LayerChart, panel_scales
from ..forms._lines import ANY, COSINE, POSITIVE, SHARE
from ._distributions import GEOMETRY, distribution_figure

_DIMENSION = Method(
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
_HOW_BANDS = "A band is a 95% interval. The dashed grey line is a model of the same shape that was never trained."


class _Likeness(NamedTuple):
    """A quantity shown as it is, and less its baseline."""

    measure: str
    control: str  # the same quantity where it has nothing to find
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
    """The section, or None where the run measured nothing that belongs here."""
    models, frames = tables.models, tables.some(("geometry", "distance_distribution"))
    figures: list[ReportFigure] = []
    if "geometry" in frames:
        frame = _one_choice(frames["geometry"])
        figures += _geometry_figures(models.main(frame), models)
        figures += [_decoder(figure) for figure in _geometry_figures(models.others(frame), models)[:2]]
    if "distance_distribution" in frames:
        figures.append(distribution_figure(models.main(frames["distance_distribution"]), models))
    return SPACE.told_by(figures, models, frames.values())


def _one_choice(frame: pd.DataFrame) -> pd.DataFrame:
    """Defined values, of words by the mean of their tokens where these were measured."""
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
    everything = pd.concat([table.assign(space=space) for space, table in tables.items()], ignore_index=True)
    raw = average[average["space"] == "raw"]
    drawn = {space: table for space, table in tables.items() if not _vanishes(space, tables)}
    scales = panel_scales(drawn.values(), "Panels share one scale." if len(drawn) > 1 else "", COSINE)
    how = {"y_title": "mean cosine of two random words", "baseline_name": "isotropic", "bounds": COSINE}
    how["y_range"] = scales.shared
    return ReportFigure(
        id="average-similarity",
        question="Are all words alike?",
        answer=[
            *trend_sentences(
                raw, models.present(raw), Wording("", "rises by", "falls by", subject=_subject("mean cosine"))
            ),
            *_centred_sentence(tables, drawn),
            *_vanished_sentence(tables, drawn),
            *_rogue_sentence(frame, models),
        ],
        words=trend_words(raw, models.present(raw), "the cosine of random words"),
        panels=[
            Panel.of(LayerChart(table=table, series=models.present(table), **how), _SPACES[space])
            for space, table in drawn.items()
        ],
        caption=f"{interval_note(everything)} Words without letter or digit are left out. {scales.note}".rstrip(),
        how_to_read=[
            "Across: layers, from the embeddings (0) to the top. Up: the mean cosine over all pairs of word "
            "occurrences, whatever the words. 0 is a space that looks the same in every direction (isotropic).",
            f"{_HOW_BANDS} The dotted line is an isotropic Gaussian.",
            "The other panels, and the sentences on panels that would be empty, ask what the first rests on. Where "
            "similarity vanishes once the mean is taken away, all vectors share an offset, and their differences may "
            "be as free as before; where it vanishes only in the last panels, a few dimensions with large values rule "
            "the cosine.",
        ],
        method=GEOMETRY,
        data=everything,
        tables=("geometry",),
        findings=tuple(f"representations:Z-{n}" for n in (1, 5, 6)),
    )


def _vanishes(space: str, tables: dict[str, pd.DataFrame]) -> bool:
    """Whether a panel would be a flat zero: nothing of it is seen on the scale of the similarity as it is."""
    return space != "raw" and "raw" in tables and _most(tables[space]) < max(0.01, 0.02 * _most(tables["raw"]))


def _most(table: pd.DataFrame) -> float:
    """The largest size of any line of a model, trained or not."""
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
    """What else leaves a flat zero."""
    gone = {space: _most(table) for space, table in tables.items() if space not in drawn and space != "centred"}
    if not gone:
        return []
    size = "less than 0.01" if max(gone.values()) < 0.01 else f"at most {number(max(gone.values()), 2)}"
    ways = listed([f"“{_SPACES[space]}”" for space in gone])
    return [f"For {ways} {size} is left anywhere, so there is no panel."]


def _rogue_sentence(frame: pd.DataFrame, models: ShownModels) -> list[str]:
    """Where three dimensions carry most of the mean cosine, model by model."""
    rows = frame[(frame["measure"] == "rogue_dimensions") & frame["trained"]]
    if rows.empty:
        return []
    parts = []
    for series in models.present(rows):
        by_layer = rows[rows["series"] == series.key].groupby("layer")["value"].mean()
        parts.append(f"{_percent(by_layer.max())} in {series.label} (layer {by_layer.idxmax()})")
    equal = _percent(float(rows["baseline"].mean()))
    return [f"Of the mean cosine, three dimensions carry up to {listed(parts)}; equal shares would be {equal}."]


def _percent(share: float) -> str:
    return f"{number(100 * share, 0 if share > 0.1 else 1)}%"


def _subject(noun: str) -> Callable[[Series], str]:
    return lambda series: f"the {noun} in {series.label}"


def _likeness_figure(
    likeness: _Likeness, rows: pd.DataFrame, corrected: pd.DataFrame, models: ShownModels
) -> ReportFigure:
    series = models.present(rows)
    tables = {"as it is": curves(rows), "corrected": curves(corrected)}
    names = {"as it is": likeness.baseline_name, "corrected": likeness.control_name}
    everything = pd.concat([table.assign(panel=title) for title, table in tables.items()], ignore_index=True)
    scales = panel_scales(tables.values(), "Panels share one scale.")
    wording = Wording("", "rises by", "falls by", subject=_subject(f"corrected {likeness.noun}"))
    return ReportFigure(
        id=likeness.id,
        question=likeness.question,
        answer=[*trend_sentences(corrected, series, wording), *_chance_sentence(likeness, tables["corrected"])],
        words=trend_words(corrected, series, f"the corrected {likeness.noun}"),
        panels=[
            Panel.of(
                LayerChart(
                    table=table,
                    series=series,
                    y_title=likeness.noun if title == "as it is" else f"less that of {likeness.baseline_name}",
                    baseline_name=names[title],
                    bounds=likeness.bounds if title == "as it is" else ANY,
                    y_range=scales.shared,
                ),
                title,
            )
            for title, table in tables.items()
        ],
        caption=f"{interval_note(tables['as it is'])} {scales.note} Controls are means over models.".replace(
            "occurrences behind", "sentences behind" if likeness.id == "intra-sentence" else "occurrences behind"
        ),
        how_to_read=["Across: layers, from the embeddings (0) to the top.", likeness.how, _HOW_BANDS],
        method=GEOMETRY,
        data=everything,
        tables=("geometry",),
        findings=likeness.findings,
    )


def _chance_sentence(likeness: _Likeness, table: pd.DataFrame) -> list[str]:
    """What the control has, where it is not nothing."""
    control = table.loc[table["group"] == "baseline", "value"]
    if control.empty:
        return []
    low, high = float(control.min()), float(control.max())
    if max(abs(low), abs(high)) < 0.01:
        return [f"For {likeness.control_name} it is less than 0.01 everywhere."]
    return [f"For {likeness.control_name} it is {_span(control, 2)}."]


def _corrected(rows: pd.DataFrame, control: pd.DataFrame, average: pd.DataFrame) -> pd.DataFrame:
    """The rows less their baseline, with the control's corrected value as baseline.

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
    """Replicates less their baseline's, NaN (written as None) where the sentences were too few for one of the two."""
    return None if own is None or other is None else np.asarray(own, dtype=float) - np.asarray(other, dtype=float)


def _places(frame: pd.DataFrame) -> list[tuple]:
    return list(frame[_KEYS].itertuples(index=False, name=None))


def _dimension_figure(rows: pd.DataFrame, models: ShownModels) -> ReportFigure:
    table, series = curves(rows), models.present(rows)
    drawn, hidden = _on_scale(table)
    wording = Wording("", "rises by", "falls by", subject=_subject("dimension"))
    names = {"y_title": "intrinsic dimension (TwoNN)", "baseline_name": "Gaussian of that covariance"}
    chart = LayerChart(table=drawn, series=series, bounds=POSITIVE, **names)
    return ReportFigure(
        id="intrinsic-dimension",
        question="How many dimensions does the cloud of words have?",
        answer=[*trend_sentences(rows[rows["trained"]], series, wording), *_gaussian_sentence(table)],
        words=trend_words(rows[rows["trained"]], series, "the number of dimensions"),
        panels=[Panel.of(chart)],
        caption=f"{interval_note(table)} Repeated points are left out.{hidden}",
        how_to_read=[
            "Across: layers. Up: in how many directions a point can move and stay in the cloud, judged from the ratio "
            "of the distances to its two nearest neighbours.",
            f"{_HOW_BANDS} “Gaussian” is a cloud of the same covariance: words lie in tight groups rather than in one "
            "cloud, so they have fewer dimensions.",
        ],
        method=_DIMENSION,
        data=table,
        tables=("geometry",),
    )


def _on_scale(table: pd.DataFrame) -> tuple[pd.DataFrame, str]:
    """Without untrained values so high that they would squash the curves, and a sentence that names them."""
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
    """`0.13 to 0.19`, or one number where both ends round to it."""
    low, high = number(values.min(), places), number(values.max(), places)
    return low if low == high else f"{low} to {high}"
