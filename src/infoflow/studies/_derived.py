"""What follows from a run's tables alone: the findings, also over training, and the map of its objectives."""

from collections.abc import Mapping, Sequence

import pandas as pd

from infoflow.findings import (
    FINDINGS,
    FINDINGS_OVER_TRAINING,
    FINDINGS_SINCE,
    FINDINGS_TABLE,
    MAP_TABLES,
    Finding,
    Untested,
    evaluate,
    findings_over_training,
    objective_map,
)
from infoflow.over_training import (
    PHASES_OVER_SEEDS,
    PRUNABLE_BY_UPDATE,
    measured_over_training,
    phases_over_seeds,
    prunable_by_update,
)
from infoflow.results import RunFolder, TableSchema


def write_derived(folder: RunFolder, own: Sequence[Finding | Untested] = ()) -> None:
    """Judge every claim and one's `own` on the run's tables; draw the map of objectives where there are enough."""
    prunable = prunable_by_update(measured_over_training(folder.tables))
    _replace(folder, [PRUNABLE_BY_UPDATE], {PRUNABLE_BY_UPDATE.name: prunable} if len(prunable) else {})
    phases = phases_over_seeds(folder.tables["phases"]) if "phases" in folder.tables else None
    _replace(folder, [PHASES_OVER_SEEDS], {} if phases is None else {PHASES_OVER_SEEDS.name: phases})
    folder.tables.write(evaluate(folder.tables, [*FINDINGS.values(), *own]), FINDINGS_TABLE)
    _replace(folder, MAP_TABLES, objective_map(folder.tables))
    _replace(folder, (FINDINGS_OVER_TRAINING, FINDINGS_SINCE), findings_over_training(folder.tables))


def _replace(folder: RunFolder, schemas: Sequence[TableSchema], found: Mapping[str, pd.DataFrame]) -> None:
    """Write these tables; those of them that were not found this time go."""
    folder.tables.remove(schema.name for schema in schemas)
    for schema in schemas:
        if schema.name in found:
            folder.tables.write(found[schema.name], schema)
