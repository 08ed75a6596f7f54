"""The divergence between the predictions of two seeds at the same update."""

from collections.abc import Sequence
from dataclasses import replace
from typing import ClassVar

import pandas as pd

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.models import Model
from infoflow.results import TableSchema, estimate_columns

from ._convergence_measure import References
from ._prediction_divergence import PREDICTION_DIVERGENCE, prediction_divergence

SEED_DIVERGENCE = replace(
    PREDICTION_DIVERGENCE,
    name="seed_divergence",
    description="Divergence of a checkpoint's predictions from those of another seed at the same update, on the same "
    "tokens.",
    light=False,
    made_by="a plan of two seeds or more with seed_divergence in the light or heavy of its [checkpoints] makes it",
    columns=(
        PREDICTION_DIVERGENCE.columns[0],
        *estimate_columns(
            "nats per token",
            "KL(other seed || this one), mean over predicted tokens",
            "KL(other seed || every token with the same probability)",
            "predicted tokens",
        ),
    ),
)


class SeedDivergence(Intervention):
    r"""\(\mathrm{KL}(p'_t \,\|\, p_t)\) of predictions of two trainings at one update t: see `prediction_divergence`.

    Args:
        references: Loads the other seed's checkpoint, as "seed".
        key: Identifies it, in words or hashes, in the keys of results.
    """

    table: ClassVar[TableSchema] = SEED_DIVERGENCE

    def __init__(self, references: References, key: Sequence[str]) -> None:
        self._references, self.key = references, tuple(key)

    def refusal(self, model: Model) -> str | None:
        return "it predicts no token" if model.task == "encoder" else None

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        found = prediction_divergence(reader.model, self._references()["seed"], reader.corpus, options=options)
        return SEED_DIVERGENCE.conform(found)
