"""objectives:O1. The same test as dynamics:V1; dynamics:V3 asks it of several corpora, which takes several studies."""

from .._finding import Finding
from .._model_group import OBJECTIVES
from .._sources import PARAMETER_CONTRIBUTIONS
from . import dynamics_v1

FINDING = Finding(
    id="objectives:O1",
    claim="Objectives train comparable Transformers in distinct ways: which layers and components lower the loss is "
    "more alike under two seeds of one objective than under two objectives.",
    source=PARAMETER_CONTRIBUTIONS,
    published="objectives give distinct optimisation dynamics on comparable Transformers (no number in the abstract)",
    statistic="as dynamics:V1; that it holds across corpora too is dynamics:V3, of several studies together",
    reads=dynamics_v1.READS,
    test=dynamics_v1.test,
    controls=dynamics_v1.FINDING.controls,
    learned=OBJECTIVES,
    reliable=dynamics_v1.FINDING.reliable,
)
