"""How representations change: from layer to layer, between objectives, and between seeds."""

from dataclasses import replace

import pandas as pd

from .._curves import curves, interval_note
from .._figure import Panel, ReportFigure, Section
from .._in_words import Candidate, extreme, sentence
from .._model_tables import ModelTables
from .._numbers import estimate_text, listed, number
from .._samples import Samples
from .._series import Series
from .._shown_models import JOIN, ShownModels
from ..forms._layer_chart import LayerChart, shared_range
from ..forms._lines import SHARE
from ._frequency import PWCCA, frequency_figures

_PWCCA = (
    "Distance is 1 − PWCCA: 0 where each space is a linear map of the other, and as high as “shuffled rows” where the "
    "two share nothing."
)


CHANGES = Section(
    id="changes",
    title="How do representations change?",
    lead="A layer may rewrite a token's vector or pass it on, and two models may end up with the same space or "
    "with different ones. Both are distances between views of the same occurrences.",
    names={
        "layer-change": "representations/layer-distance",
        "change-by-rank": "representations/change-by-frequency",
        "influence-by-rank": "representations/influence-by-frequency",
        "model-distance": "representations/model-distance",
    },
)


def change_section(tables: ModelTables) -> Section | None:
    """The section, or None where the run measured nothing that belongs here."""
    models = tables.models
    frames = list(tables.some(["layer_distance"]).values())
    figures = [_layer_figure(models.main(frame), models) for frame in frames] + frequency_figures(tables)
    figures += [_model_figure(frame, models) for frame in tables.some(["model_distance"]).values()]
    told = CHANGES.told_by(figures, models, frames)
    return told if frames or told is None else replace(told, keys=list(models.series))


def _layer_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
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
        answer=[f"The largest step {'; '.join(_profile(frame, s) for s in series)}.", *_untrained_sentence(table)],
        words=_step_words(frame, series, table),
        panels=[Panel.of(chart)],
        caption=f"{interval_note(table)} Width {int(frame['width'].median())}.",
        how_to_read=[
            "Across: the step from one layer to the next. Up: how far the two layers' spaces lie apart. " + _PWCCA,
            "The dashed grey line is a model of the same shape that was never trained.",
            "A rise at the last step means that the model rewrites its vectors just before it predicts.",
        ],
        method=PWCCA,
        data=table.rename(columns={"layer": "from_layer"}),
        tables=("layer_distance",),
        findings=("representations:V-9",),
    )


def _step_words(frame: pd.DataFrame, series: list[Series], table: pd.DataFrame) -> str:
    """The largest step of all lines, and the largest of an untrained model."""
    found = [top for line in series if (top := extreme(_steps(frame, line))) is not None]
    highest = extreme([top.candidate for top in found])
    if highest is None:
        return ""
    own = next(top for top in found if top.candidate is highest.candidate)
    same = f", not clearly more than {_other_steps(len(own.alike))} of its own" if own.alike else ""
    said = (
        f"the largest step is {estimate_text(highest.candidate.estimate)} (1 − PWCCA), {highest.candidate.name}{same}"
    )
    untrained = table.loc[table["group"] == "untrained", "value"].dropna()
    beside = f"; the largest of an untrained model is {number(untrained.max(), 3)}" if len(untrained) else ""
    return sentence(f"{said}{beside}")


def _other_steps(count: int) -> str:
    return "another step" if count == 1 else f"{count} other steps"


def _steps(frame: pd.DataFrame, series: Series) -> list[Candidate]:
    own = frame[(frame["series"] == series.key) & frame["trained"]]
    return [
        Candidate(f"{int(str(layer))}→{int(str(layer)) + 1} in {series.label}", Samples.of(rows).estimate())
        for layer, rows in own.groupby("layer")
    ]


def _profile(frame: pd.DataFrame, series: Series) -> str:
    """Where one line changes most and least, or that its steps cannot be told apart."""
    own = frame[(frame["series"] == series.key) & frame["trained"]]
    steps = {int(str(layer)): Samples.of(rows) for layer, rows in own.groupby("layer")}
    means = {layer: samples.estimate().value for layer, samples in steps.items()}
    most, least = max(means, key=means.__getitem__), min(means, key=means.__getitem__)
    text = f"of {series.label} is {most}→{most + 1}: {estimate_text(steps[most].estimate())}"
    if most == least:
        return text
    if (steps[most] - steps[least]).estimate().sign <= 0:
        return f"{text}, not clearly more than the others"
    return f"{text}, its smallest {least}→{least + 1}: {estimate_text(steps[least].estimate())}"


def _untrained_sentence(table: pd.DataFrame) -> list[str]:
    values = table.loc[table["group"] == "untrained", "value"]
    if values.empty:
        return []
    low, high = number(values.min(), 3), number(values.max(), 3)
    return [f"Layers of an untrained model change by {low if low == high else f'{low} to {high}'}."]


def _model_figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
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
        answer=_distance_sentences(pairs, seeds, lines, across),
        words=_distance_words(pairs, seeds, lines, across),
        panels=[Panel.of(LayerChart(table=table, series=series, **how), title) for title, table, series in drawn],
        caption=interval_note(tables).replace("seeds", "pairs of models")
        + (" Both panels share one scale." if len(drawn) > 1 else ""),
        how_to_read=[
            f"The same layer of two models, measured on the same occurrences. A line between two {across} wears both "
            "colours. " + _PWCCA,
            "If the objective shapes representations, lines between objectives lie above lines between seeds, more so "
            "at the top.",
            "Untrained models that started from the same initialisation are near zero by construction.",
        ],
        method=PWCCA,
        data=tables,
        tables=("model_distance",),
        findings=tuple(f"representations:V-{n}" for n in (6, 7, 8)),
    )


def _pair_frames(frame: pd.DataFrame, models: ShownModels) -> tuple[pd.DataFrame, pd.DataFrame]:
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


def _pair_series(pairs: pd.DataFrame, models: ShownModels) -> list[Series]:
    """A line per pair of the models, in two colours."""
    present = set(pairs["series"])
    return [
        Series(key=a.key + JOIN + b.key, label=f"{a.label} – {b.label}", slot=a.slot, second_slot=b.slot)
        for index, a in enumerate(models.series)
        for b in models.series[index + 1 :]
        if a.key + JOIN + b.key in present
    ]


def _distance_words(pairs: pd.DataFrame, seeds: pd.DataFrame, lines: list[Series], across: str) -> str:
    """Which pair is nearest at the top and which farthest, beside the farthest seeds of one objective."""
    top = [Candidate(line.label, _at_top(pairs, line.key).estimate()) for line in lines]
    near, far = extreme(top, least=True), extreme(top)
    if near is None or far is None:
        return ""
    said = f"at the top layer {near.candidate.name} are {estimate_text(near.candidate.estimate)} apart"
    if near.candidate is not far.candidate:
        nearest = f"{near.candidate.name}, {estimate_text(near.candidate.estimate)}"
        farthest = f"{far.candidate.name}, {estimate_text(far.candidate.estimate)}"
        but = (
            f"not clearly nearer than {far.candidate.name}"
            if far.candidate.name in near.alike
            else f"the farthest {farthest}"
        )
        said = f"at the top layer the nearest two {across} are {nearest}, {but}"
    within = [_at_top(seeds, str(key)).estimate().value for key in dict.fromkeys(seeds["series"])] if len(seeds) else []
    return sentence(
        said + (f"; two seeds of one objective are at most {number(max(within), 2)} apart" if within else "")
    )


def _distance_sentences(pairs: pd.DataFrame, seeds: pd.DataFrame, lines: list[Series], across: str) -> list[str]:
    top = {line.label: _at_top(pairs, line.key).estimate() for line in lines}
    if not top:
        return []
    ranked = sorted(top, key=lambda label: top[label].value)
    parts = [f"{label} {estimate_text(top[label])}" for label in ranked]
    sentences = [f"At the top layer, from nearest to farthest: {listed(parts)}."]
    if across == "models":
        return sentences
    within = {str(key): _at_top(seeds, str(key)).estimate().value for key in dict.fromkeys(seeds["series"])}
    if not within:
        return [*sentences, "With one seed of each objective there is no distance between seeds to compare with."]
    nearest, farthest = min(estimate.value for estimate in top.values()), max(within.values())
    relation = "all farther apart than" if nearest > farthest else "not all farther apart than"
    return [
        *sentences,
        f"There, objectives are {relation} seeds: the nearest two objectives are {number(nearest, 3)} apart, the "
        f"farthest seeds of one objective {number(farthest, 3)}.",
    ]


def _at_top(frame: pd.DataFrame, key: str) -> Samples:
    own = frame[(frame["series"] == key) & frame["trained"]]
    return Samples.of(own[own["layer"] == own["layer"].max()], "pair")
