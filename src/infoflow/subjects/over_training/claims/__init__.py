"""Claims about models over training, and how their tables are read."""

from collections.abc import Mapping

import pandas as pd

from infoflow.findings._registry import Derived
from infoflow.training import measured_over_training

from ..measures import PHASES, PHASES_OVER_SEEDS, PRUNABLE_BY_UPDATE, phases_over_seeds, prunable_by_update
from ._over_training import FINDINGS_OVER_TRAINING, FINDINGS_SINCE, findings_over_training


def _prunable(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    rows = prunable_by_update(measured_over_training(tables))
    return {PRUNABLE_BY_UPDATE.name: rows} if len(rows) else {}


def _phases(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    return {PHASES_OVER_SEEDS.name: phases_over_seeds(tables[PHASES.name])} if PHASES.name in tables else {}


DERIVED = (
    Derived(schemas=(PRUNABLE_BY_UPDATE,), make=_prunable, judged=True),
    Derived(schemas=(PHASES_OVER_SEEDS,), make=_phases, judged=True),
    Derived(schemas=(FINDINGS_OVER_TRAINING, FINDINGS_SINCE), make=findings_over_training),
)
