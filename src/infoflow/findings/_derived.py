"""Tables that are made of a run's other tables."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import pandas as pd

from infoflow.results import TableSchema


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class Derived:
    """Tables that a subject makes of a run's tables, whenever its claims are judged."""

    schemas: Sequence[TableSchema]
    make: Callable[[Mapping[str, pd.DataFrame]], Mapping[str, pd.DataFrame]]
    """These tables by name; without those that the run has nothing for."""
    judged: bool = False  # whether claims read them; the others are made after the verdicts
