"""Words with their neighbours, alone and in sentences, as the page's script and its still picture need them."""

from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._series import Series

SHOWN_WORDS, SHOWN_NEIGHBOURS, SHOWN_LAYERS = 16, 3, 5


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class WordPayload:
    """What one model, or several, have near some words."""

    live: dict[str, Any]  # texts, words, lines; neighbours by line, layer and word
    still: dict[str, Any]  # the first word of the first line that has layers, in its highest
    rows: pd.DataFrame  # the rows that are shown


def words_payload(models: list[tuple[Series, pd.DataFrame]]) -> WordPayload:
    """The words whose occurrences disagree most in the highest layers, over models.

    Args:
        models: Each line with its rows of `word_neighbours`, of one model.
    """
    words = told_apart(pd.concat([rows for _, rows in models]))[:SHOWN_WORDS]
    kept = [(series, _shown(rows, words)) for series, rows in models]
    texts = _Texts()
    lines, static, context = [], [], []
    for series, rows in kept:
        layers = sorted(int(layer) for layer in rows["layer"].unique() if layer > 0)
        lines.append({"label": series.label, "slot": series.slot, "layers": layers})
        alone, inside = rows[rows["layer"] == 0], rows[rows["layer"] > 0]
        static.append([_pairs(alone[alone["word"] == word]) for word in words])
        context.append([[_in_context(inside, layer, word, texts) for word in words] for layer in layers])
    live = {"texts": texts.listed, "words": words, "lines": lines, "static": static, "context": context}
    first = next((index for index, line in enumerate(lines) if line["layers"]), None)
    return WordPayload(
        live={**live, "first": first},
        still=_still(live, first),
        rows=pd.concat([rows.assign(series=series.label) for series, rows in kept], ignore_index=True),
    )


def told_apart(rows: pd.DataFrame) -> list[str]:
    """Words by the disagreement of their occurrences in the highest layers, the largest first; of static vectors alone,
    as they come."""
    inside = rows[rows["layer"] > 0]
    if inside.empty:
        return list(dict.fromkeys(rows["word"].astype(str)))
    top = inside[inside["layer"] == inside.groupby("model")["layer"].transform("max")]
    mean = top.drop_duplicates(["model", "word"]).groupby("word", sort=True)["disagreement"].mean()
    return [str(word) for word in mean.sort_values(ascending=False, kind="stable").index]


def _shown(rows: pd.DataFrame, words: list[str]) -> pd.DataFrame:
    """Rows of these words, of a few layers (the highest among them), and of the nearest neighbours."""
    layers = sorted(int(layer) for layer in rows["layer"].unique() if layer > 0)
    places = np.linspace(0, len(layers) - 1, min(len(layers), SHOWN_LAYERS)).round().astype(int)
    few = [layers[at] for at in np.unique(places)]
    near = (rows["rank"] < SHOWN_NEIGHBOURS) | (rows["layer"] == 0)
    return rows[rows["word"].isin(words) & rows["layer"].isin([0, *few]) & near]


class _Texts:
    """Each sentence once."""

    def __init__(self) -> None:
        self.listed: list[str] = []
        self._places: dict[str, int] = {}

    def place(self, text: str) -> int:
        if text not in self._places:
            self._places[text] = len(self.listed)
            self.listed.append(text)
        return self._places[text]


def _pairs(rows: pd.DataFrame) -> list[list[Any]]:
    ordered = rows.sort_values("rank")
    return [[str(word), round(float(cosine), 2)] for word, cosine in ordered[["neighbour", "cosine"]].values]


def _in_context(inside: pd.DataFrame, layer: int, word: str, texts: _Texts) -> dict[str, Any] | None:
    rows = inside[(inside["layer"] == layer) & (inside["word"] == word)]
    if rows.empty:
        return None
    first = rows.iloc[0]
    return {
        "apart": round(float(first["disagreement"]), 2),
        "others": round(float(first["baseline"]), 2),
        "occurrences": [_occurrence(own.sort_values("rank"), texts) for _, own in rows.groupby("occurrence")],
    }


def _occurrence(rows: pd.DataFrame, texts: _Texts) -> dict[str, Any]:
    first = rows.iloc[0]
    places = rows[["neighbour_text", "neighbour_begin", "neighbour_end"]].values.tolist()
    near = [
        [str(word), round(float(cosine), 2), *_place(texts, *place)]
        for word, cosine, place in zip(rows["neighbour"], rows["cosine"], places, strict=True)
    ]
    at = _place(texts, first["text"], first["begin"], first["end"])
    return {"group": int(first["group"]), "at": at, "near": near}


def _place(texts: _Texts, text: Any, begin: Any, end: Any) -> list[int]:
    return [texts.place(str(text)), int(begin), int(end)]


def _still(live: dict[str, Any], first: int | None) -> dict[str, Any]:
    """What a printer, or a browser without scripts, shows: sentences in three parts, the word between the others."""
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
