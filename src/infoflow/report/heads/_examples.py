"""Sentences on which the panel of a head draws its attention."""

import base64
import json
from dataclasses import dataclass
from typing import Any

import numpy as np
import pandas as pd

from .._binary import packed

_MOST = 1_500_000  # bytes of the numbers of all grids before they are packed


@dataclass(frozen=True, kw_only=True, slots=True)
class GridSentences:
    """The sentences of one grid of heads."""

    live: dict[str, Any]  # tokens, and of each head its sentences in order
    block: str  # weights, value norms and mixing of every head, packed


def examples_by_grid(frame: pd.DataFrame) -> dict[str, GridSentences]:
    """What to draw, by grid; of the trained models of the first seed only, since every head needs its own numbers.

    Many models have fewer sentences each, those in which their heads are most confident: a page stays small.
    """
    frame = frame.loc[frame["trained"]]
    frame = frame.loc[frame["seed"] == frame["seed"].min()]
    groups: Any = frame.groupby(["series", "stack", "kind"], sort=False)
    return {
        f"{series}/{stack}/{kind}": _examples(_within(own, _MOST // groups.ngroups))
        for (series, stack, kind), own in groups
    }


def _within(own: pd.DataFrame, most: int) -> pd.DataFrame:
    """The rows of the sentences in which heads are most confident, as many as that many bytes hold; one at least."""
    size = own["weights"].str.len().groupby(own["sentence"]).sum() * 3 // 4  # base64
    best = own.groupby("sentence")["confidence"].mean().sort_values(ascending=False, kind="stable").index
    room = size.loc[best].cumsum().to_numpy() <= most
    return own[own["sentence"].isin(best[: max(int(room.sum()), 1)])]


def _examples(own: pd.DataFrame) -> GridSentences:
    layers, heads = int(own["layer"].max()) + 1, int(own["head"].max()) + 1
    sentences, parts = [], []
    for sentence, rows in own.groupby("sentence", sort=True):
        first = rows.iloc[0]
        queries, keys = json.loads(first["queries"]), json.loads(first["keys"])
        mixed = bool(first["mixing"])
        sentences.append(
            {"id": int(str(sentence)), "text": first["text"], "queries": queries, "keys": keys, "mixing": mixed}
        )
        shape = (layers, heads, len(queries), len(keys))
        parts += _arrays(rows, shape, mixed)
    seed = int(own["seed"].iloc[0])
    return GridSentences(
        live={"seed": seed, "sentences": sentences, "order": _order(own, layers, heads)},
        block=packed(np.concatenate(parts)),
    )


def _arrays(rows: pd.DataFrame, shape: tuple[int, int, int, int], mixed: bool) -> list[np.ndarray]:
    """Bytes of one sentence: weights (L, H, T, S), value norms (L, H, S) over their largest, mixing (L, T, S)."""
    layers, heads, num_queries, num_keys = shape
    weights = np.zeros(shape, np.uint8)
    norms = np.zeros((layers, heads, num_keys), np.uint8)
    mixing = np.zeros((layers, num_queries, num_keys), np.uint8)
    for row in rows.itertuples():
        layer, head = int(row.layer), int(row.head)  # type: ignore[arg-type]
        weights[layer, head] = _bytes(row.weights).reshape(num_queries, num_keys)
        lengths = np.asarray(row.value_norms, dtype=float)
        norms[layer, head] = np.rint(255 * lengths / max(lengths.max(), 1e-12))
        if mixed:
            mixing[layer] = _bytes(row.mixing).reshape(num_queries, num_keys)
    return [weights.ravel(), norms.ravel(), *([mixing.ravel()] if mixed else [])]


def _bytes(text: Any) -> np.ndarray:
    return np.frombuffer(base64.b64decode(text), np.uint8)


def _order(own: pd.DataFrame, layers: int, heads: int) -> list[list[list[float]]]:
    """Of each head, by layer then head: [number of the sentence, confidence in it], the most telling first."""
    number = {sentence: index for index, sentence in enumerate(sorted(set(own["sentence"])))}
    order: list[list[list[float]]] = [[] for _ in range(layers * heads)]
    for row in own.sort_values("rank").itertuples():
        order[int(row.layer) * heads + int(row.head)].append([number[row.sentence], round(float(row.confidence), 2)])  # type: ignore[arg-type]
    return order
