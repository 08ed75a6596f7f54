"""What follows from a run's tables alone: the findings, and the map of its objectives."""

from infoflow.findings import FINDINGS_TABLE, MAP_TABLES, evaluate, objective_map
from infoflow.results import RunFolder


def write_derived(folder: RunFolder) -> None:
    """Judge every claim on the run's tables, and draw the map of objectives where there are enough of them."""
    folder.tables.write(evaluate(folder.tables), FINDINGS_TABLE)
    folder.tables.remove(schema.name for schema in MAP_TABLES)
    found = objective_map(folder.tables)
    for schema in MAP_TABLES:
        if schema.name in found:
            folder.tables.write(found[schema.name], schema)
