"""The stages of a study, with their results, models, dependencies and work."""

from infoflow._subjects import provided

from ._check import Check as Check
from ._check import MatchModel as MatchModel
from ._check import ShowExample as ShowExample
from ._check import matched_weights as matched_weights
from ._keep import Keep as Keep
from ._measure import LoadedOnce as LoadedOnce
from ._measure import MeasureExternal as MeasureExternal
from ._measure_model import Compare as Compare
from ._measure_model import MeasureModel as MeasureModel
from ._stage import AbstractStage as AbstractStage
from ._train import Retrain as Retrain
from ._train import Train as Train

_STAGES: tuple[tuple[int, type[AbstractStage]], ...] = (
    (0, Train),
    (10, Keep),
    (50, Retrain),
    (60, MeasureModel),
    (80, Compare),
    (120, MatchModel),
    (125, ShowExample),
)
"""The core's stages, with their places in the order of work."""


def stages() -> list[type[AbstractStage]]:
    """The kinds of stages of a study in order of dependency, except the last one, which checks the findings."""
    placed = [*_STAGES, *(one for own in provided("stages", "STAGES") for one in own)]
    return [stage for _, stage in sorted(placed, key=lambda one: one[0])]
