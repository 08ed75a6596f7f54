"""Measures that compare a checkpoint with others of the same training."""

from collections.abc import Sequence
from typing import ClassVar

import numpy as np
import pandas as pd

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.models import Model
from infoflow.results import TableSchema

from ._convergence_measure import References
from ._embedding_change import EMBEDDING_CHANGE, embedding_change
from ._prediction_divergence import PREDICTION_DIVERGENCE, prediction_divergence
from ._weight_change import WEIGHT_CHANGE, weight_change


class WeightChange(Intervention):
    """`weight_change` against other checkpoints of the same training.

    Args:
        references: Loads "initial", "previous" and "final", if they exist.
        key: Identifies them, in words or hashes, in the keys of results.
    """

    table: ClassVar[TableSchema] = WEIGHT_CHANGE

    def __init__(self, references: References, key: Sequence[str]) -> None:
        self._references, self.key = references, tuple(key)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        others = self._references()
        return weight_change(reader.model, others.get("initial"), others.get("previous"), others.get("final"))


class PredictionDivergence(Intervention):
    """`prediction_divergence` from the last checkpoint of the same training.

    Args:
        references: Loads it, as "final".
        key: Identifies it, in words or hashes, in the keys of results.
    """

    table: ClassVar[TableSchema] = PREDICTION_DIVERGENCE

    def __init__(self, references: References, key: Sequence[str]) -> None:
        self._references, self.key = references, tuple(key)

    def refusal(self, model: Model) -> str | None:
        return "it predicts no token" if model.task == "encoder" else None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        return prediction_divergence(reader.model, self._references()["final"], reader.corpus, options=options)


class EmbeddingChange(Intervention):
    """`embedding_change` from the last checkpoint of the same training, by frequency in its training text.

    Args:
        references: Loads it, as "final".
        key: Identifies it, in words or hashes, in the keys of results.
    """

    table: ClassVar[TableSchema] = EMBEDDING_CHANGE
    static: ClassVar[bool] = True

    def __init__(self, references: References, key: Sequence[str]) -> None:
        self._references, self.key = references, tuple(key)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        read = reader.counted_rows(reader.source_stack)
        ordinary = np.asarray(read.flat_ids)[~np.asarray(read.flat_special)]
        return embedding_change(reader.model, self._references()["final"], np.bincount(ordinary))
