"""Static against contextual: neighbours of a word's own vector beside those of its occurrences, in their sentences."""

import numpy as np
import pandas as pd

from .._binary import packed_json
from .._curves import curves
from .._figure import Method, Panel, ReportFigure, Section
from .._model_tables import ModelTables
from .._numbers import listed, number
from .._series import Series
from .._shown_models import ShownModels
from ..forms._layer_chart import LayerChart
from ..forms._lines import SHARE
from ._word_payload import SHOWN_WORDS, told_apart, words_payload

_METHOD = Method(
    id="word-neighbours",
    title="Neighbours of words",
    text="""
    Of frequent words that are one token each. A static vector is the row of the matrix that the model reads the word
    with; its neighbours are the nearest rows of other words (cosine). In context a neighbour is the nearest occurrence
    of another word in another sentence, each word once, among occurrences that a hash of the text chooses, the same for
    all models of one tokenizer. Disagreement is 1 − |<i>N</i><sub>i</sub> ∩ <i>N</i><sub>j</sub>| /
    |<i>N</i><sub>i</sub> ∪ <i>N</i><sub>j</sub>|, the mean over pairs of a word's occurrences; its ceiling is what
    occurrences of different words have. A word's occurrences fall into two groups: by the nearer one of the two that
    are farthest apart. After Peters et al. (2018).
    """,
)

WORDS = Section(
    id="words",
    title="One vector for a word, or one for each sentence?",
    lead="Skip-gram, and the input of every other model, knows one vector for a word, whatever it means here. Layer by "
    "layer a model moves the word's occurrences to where their sentences want them: next to other words.",
    names={
        "static-contextual": "representations/word-neighbours",
    },
)
_TOLD = 3


def words_section(tables: ModelTables) -> Section | None:
    """The section, or None where the run measured nothing that belongs here."""
    frame = tables.get("word_neighbours")
    if frame is None:
        return None
    return WORDS.told_by([_figure(frame, tables.models)], tables.models, [frame])


def _figure(frame: pd.DataFrame, models: ShownModels) -> ReportFigure:
    drawn = _models(frame, models)
    shown = words_payload(drawn)
    inside = frame[frame["layer"] > 0]
    table = curves(_disagreement(inside)) if len(inside) else None
    return ReportFigure(
        id="static-contextual",
        question="Static against contextual: which words stand near a word, and near each of its occurrences?",
        answer=_told(drawn),
        panels=[] if table is None else [Panel.of(_chart(table, models.present(inside)))],
        caption=_caption(frame, inside),
        how_to_read=[
            "The chart: how much the neighbours of two occurrences of one word differ; 1 means that they share none. "
            "The dotted line is what occurrences of different words have, the dashed grey one a model of the same "
            "shape that was never trained.",
            "Below it, choose a word. Its static neighbours are there once for each model; its occurrences each have "
            "neighbours of their own, shown in their sentences. Those with one sign stand on one side of the model's "
            "space, those with the other on the other: where the word has two senses, or two uses, they part them.",
            "A causal LM's state at a word stands for what comes next, so its neighbours are words that are followed "
            f"alike. One model of each kind is shown (its first seed), with the {SHOWN_WORDS} words whose occurrences "
            "differ most.",
        ],
        method=_METHOD,
        data=shown.rows.drop(columns=["replicates"], errors="ignore"),
        tables=("word_neighbours",),
        template="words.html.jinja",
        payload={"packed": packed_json(shown.live), "still": shown.still, "live": shown.live},
    )


def _models(frame: pd.DataFrame, models: ShownModels) -> list[tuple[Series, pd.DataFrame]]:
    """The first seed of every line, trained; of a run without trained ones any."""
    chosen = []
    for series in models.present(frame):
        own = frame[frame["series"] == series.key]
        trained = own["trained"].to_numpy(dtype=bool)
        own = own[trained] if trained.any() else own
        chosen.append((series, own[own["model"] == own.sort_values("seed")["model"].iloc[0]]))
    return chosen


def _disagreement(inside: pd.DataFrame) -> pd.DataFrame:
    """Mean over words of each model and layer, with its 95% interval over words."""
    keys = ["series", "model", "trained", "seed", "layer"]
    words = inside.drop_duplicates([*keys, "word"])
    rows = []
    for key, own in words.groupby(keys, sort=False):
        values = own["disagreement"].to_numpy(dtype=float)
        half = 1.96 * values.std(ddof=1) / len(values) ** 0.5 if len(values) > 1 else np.nan
        mean = float(values.mean())
        estimate = {"value": mean, "low": mean - half, "high": mean + half, "count": len(values)}
        rows.append({**dict(zip(keys, key, strict=True)), **estimate, "baseline": float(own["baseline"].mean())})
    return pd.DataFrame(rows)


def _chart(table: pd.DataFrame, series: list[Series]) -> LayerChart:
    return LayerChart(
        table=table,
        series=series,
        y_title="neighbours that two occurrences of a word do not share",
        baseline_name="different words",
        x_title="layer",
        bounds=SHARE,
    )


def _told(models: list[tuple[Series, pd.DataFrame]]) -> list[str]:
    told = []
    for series, rows in models:
        top = rows[rows["layer"] == rows["layer"].max()].drop_duplicates("word")
        if len(top) and top["layer"].iloc[0] > 0:
            told.append(f"{series.label} {number(float(top['disagreement'].mean()), 2)}")
    if not told:
        return ["No model here has layers: a word's neighbours are the same in every sentence."]
    shown = pd.concat([rows for _, rows in models])
    others = number(float(shown.loc[shown["layer"] > 0, "baseline"].mean()), 2)
    words = told_apart(shown)[:_TOLD]
    return [
        f"Share of neighbours that two occurrences of one word do not have in common, in the highest layer: "
        f"{listed(told)} (different words: {others}). A static vector has 0.",
        f"Furthest apart, over these models, are the occurrences of {listed([f'“{word}”' for word in words])}.",
    ]


def _caption(frame: pd.DataFrame, inside: pd.DataFrame) -> str:
    words = frame["word"].nunique()
    if inside.empty:
        return f"{words} frequent words."
    each = int(inside.groupby(["model", "layer", "word"])["occurrence"].nunique().median())
    return (
        f"{words} frequent words, {each} occurrences of each. Bands are 95% intervals over words; with several seeds, "
        "over these."
    )
