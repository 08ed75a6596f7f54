"""Static or contextual: neighbours of a word's own vector, and of its occurrences in sentences."""

from typing import Any

import numpy as np
import pandas as pd

from infoflow.representations import WORD_NEIGHBOURS

from .._curves import curves
from .._embedding import packed_json
from .._figure import Method, Panel, ReportFigure, Section
from .._in_words import listed, number
from .._model_selection import ModelSelection
from .._model_tables import ModelTables
from .._theme import Series
from ..forms._layer_chart import LayerChart
from ..forms._lines import SHARE

SHOWN_WORDS, SHOWN_NEIGHBOURS, SHOWN_LAYERS = 16, 3, 5


def words_payload(models: list[tuple[Series, pd.DataFrame]]) -> tuple[dict[str, Any], pd.DataFrame]:
    """The words whose occurrences differ most at the highest layers, over all models, and the shown rows.

    `models` are lines, each with the `word_neighbours` of one of its models. `live`: texts, words, lines, neighbours by
    line, layer and word; `packed`: `live`, compressed; `still`: the first word at the top of the first layered line.
    """
    words = most_disagreement(pd.concat([rows for _, rows in models]))[:SHOWN_WORDS]
    kept = [(series, _shown(rows, words)) for series, rows in models]
    texts: dict[str, int] = {}  # each sentence once, with its number
    lines, static, context = [], [], []
    for series, rows in kept:
        layers = sorted(int(layer) for layer in rows["layer"].unique() if layer > 0)
        lines.append({"label": series.label, "slot": series.slot, "layers": layers})
        alone, inside = rows[rows["layer"] == 0], rows[rows["layer"] > 0]
        static.append([_pairs(alone[alone["word"] == word]) for word in words])
        context.append([[_in_context(inside, layer, word, texts) for word in words] for layer in layers])
    live = {"texts": list(texts), "words": words, "lines": lines, "static": static, "context": context}
    first = next((index for index, line in enumerate(lines) if line["layers"]), None)
    live["first"] = first
    shown = pd.concat([rows.assign(series=series.label) for series, rows in kept], ignore_index=True)
    return {"packed": packed_json(live), "still": _still(live, first), "live": live}, shown


def most_disagreement(rows: pd.DataFrame) -> list[str]:
    """Words, sorted by how much their occurrences differ at the highest layers, largest first.

    With static vectors alone there is no difference, and words keep their order.
    """
    inside = rows[rows["layer"] > 0]
    if inside.empty:
        return list(dict.fromkeys(rows["word"].astype(str)))
    top = inside[inside["layer"] == inside.groupby("model")["layer"].transform("max")]
    mean = top.drop_duplicates(["model", "word"]).groupby("word", sort=True)["disagreement"].mean()
    return [str(word) for word in mean.sort_values(ascending=False, kind="stable").index]


def _shown(rows: pd.DataFrame, words: list[str]) -> pd.DataFrame:
    """Rows of these words, limited to a few layers (including the highest) and the nearest neighbours."""
    layers = sorted(int(layer) for layer in rows["layer"].unique() if layer > 0)
    places = np.linspace(0, len(layers) - 1, min(len(layers), SHOWN_LAYERS)).round().astype(int)
    few = [layers[at] for at in np.unique(places)]
    near = (rows["rank"] < SHOWN_NEIGHBOURS) | (rows["layer"] == 0)
    return rows[rows["word"].isin(words) & rows["layer"].isin([0, *few]) & near]


def _pairs(rows: pd.DataFrame) -> list[list[Any]]:
    ordered = rows.sort_values("rank")
    return [[str(word), round(float(cosine), 2)] for word, cosine in ordered[["neighbour", "cosine"]].values]


def _in_context(inside: pd.DataFrame, layer: int, word: str, texts: dict[str, int]) -> dict[str, Any] | None:
    rows = inside[(inside["layer"] == layer) & (inside["word"] == word)]
    if rows.empty:
        return None
    first = rows.iloc[0]
    return {
        "apart": round(float(first["disagreement"]), 2),
        "others": round(float(first["baseline"]), 2),
        "occurrences": [_occurrence(own.sort_values("rank"), texts) for _, own in rows.groupby("occurrence")],
    }


def _occurrence(rows: pd.DataFrame, texts: dict[str, int]) -> dict[str, Any]:
    first = rows.iloc[0]
    places = rows[["neighbour_text", "neighbour_begin", "neighbour_end"]].values.tolist()
    near = [
        [str(word), round(float(cosine), 2), *_place(texts, *place)]
        for word, cosine, place in zip(rows["neighbour"], rows["cosine"], places, strict=True)
    ]
    at = _place(texts, first["text"], first["begin"], first["end"])
    return {"group": int(first["group"]), "at": at, "near": near}


def _place(texts: dict[str, int], text: Any, begin: Any, end: Any) -> list[int]:
    return [texts.setdefault(str(text), len(texts)), int(begin), int(end)]


def _still(live: dict[str, Any], first: int | None) -> dict[str, Any]:
    """The version for print or browsers without scripts: each sentence in three parts, with the word in the middle."""
    word = live["words"][0]
    static = [(line, near[0]) for line, near in zip(live["lines"], live["static"], strict=True)]
    if first is None or live["context"][first][-1][0] is None:
        return {"word": word, "static": static, "line": None, "layer": 0, "occurrences": []}
    line = live["lines"][first]
    occurrences = [
        {
            "group": one["group"],
            "parts": _parts(live["texts"], *one["at"]),
            "near": [(word, cosine, _parts(live["texts"], *at)) for word, cosine, *at in one["near"]],
        }
        for one in sorted(live["context"][first][-1][0]["occurrences"], key=lambda one: one["group"])
    ]
    return {"word": word, "static": static, "line": line, "layer": line["layers"][-1], "occurrences": occurrences}


def _parts(texts: list[str], text: int, begin: int, end: int) -> tuple[str, str, str]:
    whole = texts[text]
    return whole[:begin], whole[begin:end], whole[end:]


_METHOD = Method(
    id="word-neighbours",
    title="Neighbours of words",
    text="""
    Measured for frequent words that are one token each. A static vector is the word's row in the input embeddings; its
    neighbours are the nearest rows of other words (cosine). In context a neighbour is the nearest occurrence of another
    word in another sentence, each word once, among occurrences that a hash of the text chooses, the same for all models
    of one tokenizer. Disagreement is 1 − |<i>N</i><sub>i</sub> ∩ <i>N</i><sub>j</sub>| / |<i>N</i><sub>i</sub> ∪
    <i>N</i><sub>j</sub>|, the mean over pairs of a word's occurrences; its ceiling is the disagreement of occurrences
    of different words. A word's occurrences form two groups: each joins the nearer of the two occurrences that are
    farthest apart. After Peters et al. (2018).
    """,
)

WORDS = Section(
    id="words",
    title="One vector for a word, or one for each sentence?",
    lead="Skip-gram, like the inputs of all other models, has one vector for a word, whatever it means in its "
    "sentence. Layer by layer a model moves the word's occurrences apart, towards other words that fit their "
    "sentences.",
    names={"static-contextual": "representations/word-neighbours"},
)
_DESCRIBED = 3


def words_section(tables: ModelTables) -> Section | None:
    """The section on neighbours of words, or None if the run has none of its measures."""
    frame = tables.get(WORD_NEIGHBOURS.name)
    if frame is None:
        return None
    return WORDS.drawn_with([_figure(frame, tables.models)], tables.models, [frame])


def _figure(frame: pd.DataFrame, models: ModelSelection) -> ReportFigure:
    drawn = _models(frame, models)
    payload, shown = words_payload(drawn)
    inside = frame[frame["layer"] > 0]
    table = curves(_disagreement(inside)) if len(inside) else None
    return ReportFigure(
        id="static-contextual",
        question="Static or contextual: which words are near a word, and near each of its occurrences?",
        answer=_text(drawn),
        panels=[] if table is None else [Panel.of(_chart(table, models.present(inside)))],
        caption=_caption(frame, inside),
        how_to_read=[
            "The chart: how much the neighbours of two occurrences of one word differ; 1 means that they share none. "
            "The dotted line shows occurrences of different words, the dashed grey one an untrained model of the same "
            "shape.",
            "Below it, choose a word. Its static neighbours are shown once for each model; each occurrence has its own "
            "neighbours, shown in their sentences. The two signs mark the two groups of occurrences that lie apart in "
            "the model's space: if the word has two senses, or two uses, the groups may separate them.",
            "A causal LM's state at a word stands for what comes next, so its neighbours are words with similar "
            f"continuations. One model of each kind is shown (its first seed), with the {SHOWN_WORDS} words whose "
            "occurrences differ most.",
        ],
        method=_METHOD,
        data=shown.drop(columns=["replicates"], errors="ignore"),
        tables=(WORD_NEIGHBOURS.name,),
        template="words.html.jinja",
        payload=payload,
    )


def _models(frame: pd.DataFrame, models: ModelSelection) -> list[tuple[Series, pd.DataFrame]]:
    """The first trained seed of every line, or any seed if no model was trained."""
    chosen = []
    for series, own in models.each(frame):
        trained = own["trained"].to_numpy(dtype=bool)
        own = own[trained] if trained.any() else own
        chosen.append((series, own[own["model"] == own.sort_values("seed")["model"].iloc[0]]))
    return chosen


def _disagreement(inside: pd.DataFrame) -> pd.DataFrame:
    """Mean over words for each model and layer, with its 95% interval over words."""
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


def _text(models: list[tuple[Series, pd.DataFrame]]) -> list[str]:
    stated = []
    for series, rows in models:
        top = rows[rows["layer"] == rows["layer"].max()].drop_duplicates("word")
        if len(top) and top["layer"].iloc[0] > 0:
            stated.append(f"{series.label} {number(float(top['disagreement'].mean()), 2)}")
    if not stated:
        return ["No model here has layers: a word's neighbours are the same in every sentence."]
    shown = pd.concat([rows for _, rows in models])
    others = number(float(shown.loc[shown["layer"] > 0, "baseline"].mean()), 2)
    words = most_disagreement(shown)[:_DESCRIBED]
    return [
        "Share of neighbours that two occurrences of one word do not have in common, in the highest layer: "
        f"{listed(stated)} (different words: {others}). For a static vector it is 0.",
        f"Over these models, the occurrences of {listed([f'“{word}”' for word in words])} differ most.",
    ]


def _caption(frame: pd.DataFrame, inside: pd.DataFrame) -> str:
    words = f"{frame['word'].nunique()} frequent words"
    if "least" in frame:
        words += f" that occur at least {int(frame['least'].iloc[0])} times"
    if inside.empty:
        return f"{words}."
    each = int(inside.groupby(["model", "layer", "word"])["occurrence"].nunique().median())
    return f"{words}, {each} occurrences of each. Bands are 95% intervals over words; with several seeds, over seeds."
