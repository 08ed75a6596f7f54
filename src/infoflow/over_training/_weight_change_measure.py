"""Weight change as a measure of one checkpoint among others."""

from collections.abc import Callable, Mapping, Sequence
from typing import ClassVar

import pandas as pd

from infoflow.flow import Intervention, PassOptions, Reader
from infoflow.models import Model
from infoflow.results import TableSchema

from ._weight_change import WEIGHT_CHANGE, weight_change


class WeightChange(Intervention):
    """`weight_change` against other checkpoints of the same training.

    Args:
        references: Loads them: "initial", "previous", "final", as far as they exist.
        key: What they are, in words or hashes: results are keyed by it.
    """

    table: ClassVar[TableSchema] = WEIGHT_CHANGE

    def __init__(self, references: Callable[[], Mapping[str, Model]], key: Sequence[str]) -> None:
        self._references = references
        self.key = tuple(key)

    def run(self, reader: Reader, options: PassOptions) -> pd.DataFrame:
        others = self._references()
        return weight_change(reader.model, others.get("initial"), others.get("previous"), others.get("final"))
