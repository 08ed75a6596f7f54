"""Analysis of a model's whole training from the tables of its checkpoints."""

from collections.abc import Mapping

import pandas as pd

from infoflow.results import TableSchema

from ._convergence_measure import CONVERGENCE
from ._phase_curves import PHASE_CURVES, phase_curve_rows, phase_curves
from ._phase_table import PHASES, phases
from ._role_tables import HEAD_ROLE_EVENTS, ROLE_TURNOVER, role_tables
from ._settling import CONVERGENCE_OVER_TRAINING, CONVERGENCE_TIME, settled

COURSE_TABLES: tuple[TableSchema, ...] = (
    CONVERGENCE_OVER_TRAINING,
    CONVERGENCE_TIME,
    HEAD_ROLE_EVENTS,
    ROLE_TURNOVER,
    PHASES,
    PHASE_CURVES,
)
"""Tables of `course_tables`."""


def course_tables(tables: Mapping[str, pd.DataFrame], warmup: float = float("nan")) -> dict[str, pd.DataFrame]:
    """Convergence, roles and phases of one model over its checkpoints, depending on the available tables.

    Args:
        tables: By the name of the measure's table ("head_patterns"), the rows of all checkpoints, with `KEYS` (the
            number of updates in `update`) and `CLOCKS`.
        warmup: Last update of the warm-up, if known.
    """
    found = role_tables(tables)
    if CONVERGENCE.name in tables and len(tables[CONVERGENCE.name]):
        rows, times = settled(tables[CONVERGENCE.name])
        found |= {CONVERGENCE_OVER_TRAINING.name: rows, CONVERGENCE_TIME.name: times}
    curves = list(phase_curves(tables))
    found |= {PHASES.name: phases(curves, warmup), PHASE_CURVES.name: phase_curve_rows(curves)}
    return {name: frame for name, frame in found.items() if len(frame)}
