"""Pruning results: how many heads a model needs, which go first, which functions stay, and the role of training."""

from dataclasses import replace

import pandas as pd

from infoflow.report._figure import Section
from infoflow.report._model_tables import ModelTables

from ..measures import PRUNED_HEADS, PRUNED_ROLES
from ..measures import PRUNING as PRUNING_TABLE
from ._gates import gates_figure
from ._kinds import kinds_figure
from ._quality import quality_figure
from ._retrained import recovered_figure, scratch_figure
from ._roles import roles_figure
from ._rows import LEARNED, SCRATCH, SUBSET, of_whole_models, scoped, with_counts

PRUNING = Section(
    id="pruning",
    title="Which heads can go?",
    lead="Each head gets a gate, and each open gate costs a little. The model decides which heads are worth their "
    "price; as the price rises, fewer stay.",
    names={
        "pruning-quality": "pruning/quality",
        "pruning-kinds": "pruning/kinds",
        "pruning-functions": "pruning/functions",
        "pruning-scratch": "pruning/from-scratch",
        "pruning-recovered": "pruning/trained-on",
        "pruning-gates": "pruning/gates",
    },
)


_TRAINED = (LEARNED, SUBSET, SCRATCH, "straight-through")
_RANKED = (
    "Heads are ranked, and the least of them removed. Nothing is trained on afterwards, so that a model that could do "
    "without them after some training loses more here."
)


def pruning_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run pruned nothing."""
    models = tables.models
    curves, heads, roles = (_table(tables, name) for name in ("pruning", PRUNED_HEADS.name, PRUNED_ROLES.name))
    curves = curves if curves is None else with_counts(curves)
    figures = [
        None if curves is None else quality_figure(curves, models),
        None if heads is None else kinds_figure(heads, models),
        None if roles is None else roles_figure(roles, models),
        None if curves is None else scratch_figure(curves, models),
        None if curves is None else recovered_figure(curves, of_whole_models(tables[PRUNING_TABLE.name]), models),
        None if curves is None else gates_figure(curves, models),
    ]
    if all(figure is None for figure in figures):
        return None
    trained = curves is not None and bool(curves["way"].isin(_TRAINED).any())
    return replace(
        PRUNING,
        lead=PRUNING.lead if trained else _RANKED,
        figures=[figure for figure in figures if figure is not None],
        keys=models.present(*(frame for frame in (curves, heads, roles) if frame is not None)),
    )


def _table(tables: ModelTables, name: str) -> pd.DataFrame | None:
    """Rows of trained models; None if there are none."""
    frame = scoped(tables[name]) if name in tables else pd.DataFrame()
    return None if frame.empty else frame
