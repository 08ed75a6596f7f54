"""How representations change: from layer to layer, between objectives, and between seeds."""

from dataclasses import replace

import pandas as pd

from infoflow.representations import LAYER_DISTANCE, MODEL_DISTANCE

from .._curves import curves, interval_note, sample_note
from .._figure import Panel, ReportFigure, Section
from .._in_words import Candidate, Samples, estimate_text, extreme, extremes_words, number, sentence
from .._model_selection import JOIN, ModelSelection
from .._model_tables import ModelTables
from .._theme import Series
from ..forms._layer_chart import LayerChart, shared_range
from ..forms._lines import SHARE
from ._frequency import PWCCA, frequency_figures

_PWCCA = (
    "Distance is 1 − PWCCA: 0 where each space is a linear map of the other, and as high as “shuffled rows” where the "
    "two share nothing."
)


CHANGES = Section(
    id="changes",
    short="Change",
    title="How do representations change?",
    lead="A layer may rewrite a token's vector or pass it on, and two models may end up with the same space or with "
    "different ones. Both are measured as distances between two sets of vectors of the same occurrences.",
    names={
        "layer-change": "representations/layer-distance",
        "change-by-rank": "representations/change-by-frequency",
        "influence-by-rank": "representations/influence-by-frequency",
        "model-distance": "representations/model-distance",
    },
)


def change_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run has none of its measures."""
    models = tables.models
    frames = [_known(frame) for frame in tables.some([LAYER_DISTANCE.name]).values()]
    figures = [_layer_figure(rows, models) for frame in frames if len(rows := models.main(frame))]
    figures += frequency_figures(tables)
    between = [_known(frame) for frame in tables.some([MODEL_DISTANCE.name]).values()]
    figures += [_model_figure(frame, models) for frame in between if len(frame)]
    stated = CHANGES.drawn_with(figures, models, frames)
    return stated if frames or stated is None else replace(stated, keys=list(models.series))


def _known(frame: pd.DataFrame) -> pd.DataFrame:
    """The rows with enough tokens for PWCCA."""
    return frame[frame["value"].notna()]


def _layer_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    table, series = curves(frame), models.present(frame)
    chart = LayerChart(
        table=table,
        series=series,
        y_title="distance between consecutive layers (1 − PWCCA)",
        x_title="from layer → to layer (0 = embeddings)",
        baseline_name="shuffled rows",
        bounds=SHARE,
        transitions=True,
    )
    return ReportFigure(
        id="layer-change",
        question="How much does each layer change the representation?",
        words=_step_words(frame, series),
        panels=[Panel.of(chart)],
        caption=f"{interval_note(table)} Width {int(frame['width'].median())}.{sample_note(frame)}",
        how_to_read=[
            "Across: the step from one layer to the next. Up: how far the two layers' spaces lie apart. " + _PWCCA,
            "The dashed grey line is an untrained model of the same shape.",
            "A rise at the last step means that the model rewrites its vectors just before it predicts.",
        ],
        method=PWCCA,
        data=table.rename(columns={"layer": "from_layer"}),
        tables=(LAYER_DISTANCE.name,),
        findings=("representations:V-9",),
    )


def _step_words(frame: pd.DataFrame, series: list[Series]) -> str:
    """The largest step of all lines, and the largest of an untrained model."""
    found = [top for line in series if (top := extreme(_steps(frame, line))) is not None]
    highest = extreme([top.candidate for top in found])
    if highest is None:
        return ""
    own = next(top for top in found if top.candidate is highest.candidate)
    others = "another step" if len(own.alike) == 1 else f"{len(own.alike)} other steps"
    same = f", not clearly larger than {others} of the same model" if own.alike else ""
    said = (
        f"the largest step is {estimate_text(highest.candidate.estimate)} (1 − PWCCA), {highest.candidate.name}{same}"
    )
    grey = extreme([step for line in series for step in _steps(frame, line, trained=False)])
    beside = f"; the largest of an untrained model is {number(grey.candidate.estimate.value, 3)}" if grey else ""
    return sentence(f"{said}{beside}")


def _steps(frame: pd.DataFrame, series: Series, trained: bool = True) -> list[Candidate]:
    own = frame[(frame["series"] == series.key) & (frame["trained"] == trained)]
    return [
        Candidate.held_out(f"{int(str(layer))}→{int(str(layer)) + 1} in {series.label}", Samples.of(rows))
        for layer, rows in own.groupby("layer")
    ]


def _model_figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    pairs, seeds = _pair_frames(frame, models)
    lines = _pair_series(pairs, models)
    across = "objectives" if models.by == "objective" else "models"
    drawn = [(f"between {across}{', same seed' if len(seeds) else ''}", curves(pairs, by="pair"), lines)] * bool(
        len(pairs)
    )
    drawn += [("between seeds, same objective", curves(seeds, by="pair"), models.present(seeds))] * bool(len(seeds))
    tables = pd.concat([table.assign(panel=title) for title, table, _ in drawn])
    span = shared_range(tables[tables["group"] != "baseline"], SHARE)
    how = {"y_title": "distance (1 − PWCCA)", "baseline_name": "shuffled rows", "y_range": span, "bounds": SHARE}
    return ReportFigure(
        id="model-distance",
        question="Does the objective matter more than the random initialisation?"
        if len(seeds)
        else f"How far apart are the {across}?",
        words=_distance_words(pairs, seeds, lines, across),
        panels=[Panel.of(LayerChart(table=table, series=series, **how), title) for title, table, series in drawn],
        caption=interval_note(tables).replace("seeds", "pairs of models")
        + (" Both panels share one scale." if len(drawn) > 1 else "")
        + sample_note(frame),
        how_to_read=[
            f"The same layer of two models, measured on the same occurrences. A line between two {across} has both "
            "colours. " + _PWCCA,
            "If the objective shapes representations, lines between objectives lie above lines between seeds, more so "
            "at the top.",
            "Distances between untrained models with the same initialisation are near zero by construction.",
        ],
        method=PWCCA,
        data=tables,
        tables=(MODEL_DISTANCE.name,),
        findings=tuple(f"representations:V-{n}" for n in (6, 7, 8)),
    )


def _pair_frames(frame: pd.DataFrame, models: ModelSelection) -> tuple[pd.DataFrame, pd.DataFrame]:
    """Rows of pairs across lines and of pairs within a line, each with `series`, `pair` and `trained`."""
    side_a, side_b = frame["series_a"], frame["series_b"]
    rank = {series.key: index for index, series in enumerate(models.series)}
    keys = [
        JOIN.join(sorted(pair, key=lambda key: rank.get(key, len(rank)))) for pair in zip(side_a, side_b, strict=True)
    ]
    frame = frame.assign(
        series=keys,
        pair=frame["model_a"].astype(str) + " | " + frame["model_b"].astype(str),
    )
    same = side_a == side_b
    return frame[~same], frame[same].assign(series=side_a[same])


def _pair_series(pairs: pd.DataFrame, models: ModelSelection) -> list[Series]:
    """One line per pair of models, in two colours."""
    present = set(pairs["series"])
    return [
        Series(key=a.key + JOIN + b.key, label=f"{a.label} – {b.label}", slot=a.slot, second_slot=b.slot)
        for index, a in enumerate(models.series)
        for b in models.series[index + 1 :]
        if a.key + JOIN + b.key in present
    ]


def _distance_words(pairs: pd.DataFrame, seeds: pd.DataFrame, lines: list[Series], across: str) -> str:
    """The most distant and the nearest pair at the top layer, and the distance of the most distant seeds."""
    top = [Candidate(f"for {line.label}", _at_top(pairs, line.key).estimate()) for line in lines]
    within = _between_seeds(seeds)
    end = "with one seed of each objective there is no distance between seeds" if across == "objectives" else ""
    end = f"two seeds of one objective are at most {number(max(within), 2)} apart" if within else end
    return extremes_words("the distance at the top layer", top, end=end)


def _between_seeds(seeds: pd.DataFrame) -> list[float]:
    """Distance at the top layer between each line's models of different seeds."""
    return [_at_top(seeds, str(key)).estimate().value for key in dict.fromkeys(seeds["series"])]


def _at_top(frame: pd.DataFrame, key: str) -> Samples:
    own = frame[(frame["series"] == key) & frame["trained"]]
    return Samples.of(own[own["layer"] == own["layer"].max()], "pair")
