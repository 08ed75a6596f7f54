"""Positional heads of one objective's models: how positional, where they look, how confident they are."""

from dataclasses import dataclass

import numpy as np
import pandas as pd

from infoflow.results import Spec

from ._model_group import Absent
from ._panel import Panel
from ._reading import Number, Objective, Tables, chosen, replicates_of, require_rows

POSITIONAL = 0.9  # share of tokens at one offset that makes a head positional

_POSITIONS, _CONFIDENCE = "head_positional", "head_confidence"


@dataclass(frozen=True, kw_only=True, slots=True)
class PositionalHeads:
    """Three numbers of each seed, over the encoder's self-attention heads: the largest share at offset −1 or +1, the
    largest share at any other measured offset (NaN where none was measured), and the mean confidence of the heads whose
    share reaches `POSITIONAL` at some offset (0 where there is no such head).

    Heads do not correspond between seeds, so they are selected seed by seed: by the estimate, and then followed
    through the replicates, since selecting again in each would favour lucky ones.
    """

    objective: Objective
    trained: bool = True
    number: Number = "value"

    @property
    def sources(self) -> tuple[str, ...]:
        return (_POSITIONS, _CONFIDENCE)

    def panel(self, tables: Tables) -> Panel:
        shares = self._heads(tables, _POSITIONS, ["offset"])
        confidences = self._heads(tables, _CONFIDENCE, [])
        seeds = sorted(set(shares["seed"]) & set(confidences["seed"]))
        if not seeds:
            raise Absent(f"{_POSITIONS} and {_CONFIDENCE} have no seed in common")
        numbers = [self._seed(shares[shares["seed"] == s], confidences[confidences["seed"] == s]) for s in seeds]
        common = min(len(rows) for rows in numbers)
        stacked = np.stack([rows[:common] for rows in numbers])
        units = tuple((int(seed),) for seed in seeds)
        return Panel(units=units, layers=(0,), values_UK=stacked[:, 0], replicates_URK=stacked[:, 1:])

    def _heads(self, tables: Tables, name: str, keys: list[str]) -> pd.DataFrame:
        columns = ["seed", "trained", "kind", "layer", "head", self.number, *keys]
        frame = tables.rows(name, Spec(self.objective), columns, trained=self.trained)
        frame = chosen(frame, {"kind": "self"})
        require_rows(frame, tables.table(name), name, self.objective, self.trained)
        return frame.dropna(subset=[self.number])

    def _seed(self, shares: pd.DataFrame, confidences: pd.DataFrame) -> np.ndarray:
        """The three numbers of one seed: (1 + R, 3), the estimate first."""
        share_NM, confidence_NM = (self._rows(frame) for frame in (shares, confidences))
        common = min(len(share_NM), len(confidence_NM))
        adjacent = shares["offset"].abs().to_numpy() == 1
        positional = shares[share_NM[0] >= POSITIONAL]
        selected = pd.MultiIndex.from_frame(positional[["layer", "head"]])
        confident = pd.MultiIndex.from_frame(confidences[["layer", "head"]]).isin(selected)
        parts = [
            _largest(share_NM[:, adjacent]),
            _largest(share_NM[:, ~adjacent]),
            confidence_NM[:, confident].mean(axis=1) if confident.any() else np.zeros(len(confidence_NM)),
        ]
        return np.stack([part[:common] for part in parts], axis=1)

    def _rows(self, frame: pd.DataFrame) -> np.ndarray:
        """Estimate and replicates (1 + R, rows)."""
        values = frame[self.number].to_numpy(dtype=float)[None]
        if self.number != "value":
            return values
        replicates = replicates_of(frame).T
        return np.concatenate([values, replicates])


def _largest(share_NM: np.ndarray) -> np.ndarray:
    """The column that is largest in the first row; NaN where there is no column."""
    if share_NM.shape[1] == 0:
        return np.full(len(share_NM), np.nan)
    return share_NM[:, share_NM[0].argmax()]
