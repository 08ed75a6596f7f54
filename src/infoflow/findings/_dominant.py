"""The most relevant head of each encoder layer, and whether relevant heads are confident ones."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from infoflow.results import Spec

from ._model_group import Absent
from ._panel import Panel
from ._reading import Number, Objective, Tables, chosen, replicates_of, require_rows

_RELEVANCE, _CONFIDENCE, _RARE = "head_relevance", "head_confidence", "head_rare_token"
_KEYS = ["layer", "head"]


@dataclass(frozen=True, kw_only=True, slots=True)
class DominantHeads:
    """Numbers of each seed, over the encoder's self-attention heads: for each layer the share of its most relevant head
    times the number of heads; Spearman's correlation of relevance and confidence over all heads, without the rare-token
    head of the first layer where rare-token scores were measured; and that head's relevance times the number of heads
    (NaN where they were not).

    Heads are selected by the estimate, seed by seed, and followed through the replicates.
    """

    objective: Objective
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (_RELEVANCE, _CONFIDENCE, _RARE)

    def panel(self, tables: Tables) -> Panel:
        relevance, confidence = self._heads(tables, _RELEVANCE), self._heads(tables, _CONFIDENCE)
        try:
            rare = self._heads(tables, _RARE)
        except Absent:
            rare = None
        seeds = sorted(set(relevance["seed"]) & set(confidence["seed"]))
        if not seeds:
            raise Absent(f"{_RELEVANCE} and {_CONFIDENCE} have no seed in common")
        parts = [self._seed(*(_of(frame, seed) for frame in (relevance, confidence, rare))) for seed in seeds]
        if len({rows.shape[1] for rows in parts}) > 1:
            raise Absent(f"{_RELEVANCE} and {_CONFIDENCE} share other layers for different seeds")
        common = min(len(rows) for rows in parts)
        stacked = np.stack([rows[:common] for rows in parts])
        units = tuple((int(seed),) for seed in seeds)
        return Panel(units=units, layers=(0,), values_UK=stacked[:, 0], replicates_URK=stacked[:, 1:])

    def _heads(self, tables: Tables, name: str) -> pd.DataFrame:
        columns = ["seed", "trained", "kind", *_KEYS, self.number]
        frame = tables.rows(name, Spec(self.objective), columns, trained=self.trained)
        where = {"kind": "self"} | ({"rarest": 1} if name == _RARE and "rarest" in frame.columns else {})
        frame = chosen(frame, where)
        require_rows(frame, tables.table(name), name, self.objective, self.trained)
        return frame.dropna(subset=[self.number])

    def _seed(self, relevance: pd.DataFrame, confidence: pd.DataFrame, rare: pd.DataFrame | None) -> np.ndarray:
        """The numbers of one seed: (1 + R, layers + 2), the estimate first."""
        both = relevance.merge(confidence, on=_KEYS, suffixes=("", "_of_confidence"))
        if both.empty:
            raise Absent(f"{_RELEVANCE} and {_CONFIDENCE} hold no head in common")
        relevance_NM, confidence_NM = _rows(both, self.number, ""), _rows(both, self.number, "_of_confidence")
        common = min(len(relevance_NM), len(confidence_NM))
        relevance_NM, confidence_NM = relevance_NM[:common], confidence_NM[:common]
        layers = both["layer"].to_numpy()
        times_heads = relevance_NM * both.groupby("layer")["head"].transform("size").to_numpy()
        top = [times_heads[:, layers == one] for one in sorted(set(layers))]
        pointer = _rare_head(both, rare, self.number)
        others = np.arange(len(both)) != pointer
        parts = [
            *(one[:, one[0].argmax()] for one in top),
            _spearman(relevance_NM[:, others], confidence_NM[:, others]),
            np.full(common, np.nan) if pointer is None else times_heads[:, pointer],
        ]
        return np.stack(parts, axis=1)


def _of(frame: pd.DataFrame | None, seed: int) -> pd.DataFrame | None:
    return None if frame is None else frame[frame["seed"] == seed]


def _rare_head(heads: pd.DataFrame, rare: pd.DataFrame | None, number: str) -> int | None:
    """Row of the first layer's head that points most often to rare tokens."""
    if rare is None or rare.empty:
        return None
    first = rare[rare["layer"] == rare["layer"].min()]
    best = first.loc[first[number].idxmax()]
    places = np.flatnonzero((heads["layer"] == best["layer"]) & (heads["head"] == best["head"]))
    return int(places[0]) if len(places) else None


def _rows(frame: pd.DataFrame, number: Number, suffix: str) -> np.ndarray:
    """Estimate and replicates (1 + R, rows)."""
    values = frame[f"{number}{suffix}"].to_numpy(dtype=float)[None]
    if number != "value":
        return values
    replicates = replicates_of(frame[[f"replicates{suffix}"]].rename(columns={f"replicates{suffix}": "replicates"}))
    return np.concatenate([values, replicates.T])


def _spearman(first_NM: np.ndarray, second_NM: np.ndarray) -> np.ndarray:
    """Rank correlation of each row; NaN where all are equal."""
    ranks = [pd.DataFrame(rows).rank(axis=1).to_numpy() for rows in (first_NM, second_NM)]
    centred = [rows - rows.mean(axis=1, keepdims=True) for rows in ranks]
    norms = [np.sqrt((rows**2).sum(axis=1)) for rows in centred]
    with np.errstate(invalid="ignore", divide="ignore"):
        return (centred[0] * centred[1]).sum(axis=1) / (norms[0] * norms[1])
