"""Pruning results: how many heads a model needs, which go first, which functions stay, and the role of training."""

from dataclasses import replace

from infoflow.report._declared import drawn_from, names_of, tables_of
from infoflow.report._figure import Section
from infoflow.report._model_tables import ModelTables

from ..measures import PRUNING as PRUNING_TABLE
from ._gates import GATES
from ._kinds import PRUNED_KINDS
from ._quality import QUALITY
from ._retrained import FROM_SCRATCH, TRAINED_ON
from ._roles import FUNCTIONS
from ._rows import LEARNED, SCRATCH, SUBSET, scoped

_FIGURES = (QUALITY, PRUNED_KINDS, FUNCTIONS, FROM_SCRATCH, TRAINED_ON, GATES)
PRUNING = Section(
    id="pruning",
    title="Which heads can go?",
    lead="Each head gets a gate, and each open gate costs a little. The model decides which heads are worth their "
    "price; as the price rises, fewer stay.",
    names=names_of(_FIGURES),
)
_TRAINED = (LEARNED, SUBSET, SCRATCH, "straight-through")
_RANKED = (
    "Heads are ranked, and the least of them removed. Nothing is trained on afterwards, so that a model that could do "
    "without them after some training loses more here."
)


def pruning_section(tables: ModelTables) -> Section | None:
    """The section, or None if the run pruned nothing."""
    models, frames = tables.models, tables.some(tables_of(_FIGURES))
    pruned = {name: scoped(frame) for name, frame in frames.items()}
    trained = PRUNING_TABLE.name in pruned and bool(pruned[PRUNING_TABLE.name]["way"].isin(_TRAINED).any())
    section = PRUNING if trained else replace(PRUNING, lead=_RANKED)
    return section.told_by(drawn_from(frames, _FIGURES, models), models, pruned.values())
