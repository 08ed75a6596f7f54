"""The stages of a study: their results, models, dependencies and work."""

from ._check import Check as Check
from ._keep import Keep as Keep
from ._match import MatchModel as MatchModel
from ._match import matched_weights as matched_weights
from ._measure import LoadedOnce as LoadedOnce
from ._measure_given import MeasureGiven as MeasureGiven
from ._measure_model import Compare as Compare
from ._measure_model import MeasureModel as MeasureModel
from ._measure_model import ProbeModel as ProbeModel
from ._retrain import Retrain as Retrain
from ._stage import AbstractStage as AbstractStage
from ._train import Train as Train

STAGES: tuple[type[AbstractStage], ...] = (
    Train,
    Keep,
    Prune,
    ChooseHeads,
    Transplant,
    Retrain,
    MeasureModel,
    ProbeModel,
    Compare,
    Record,
    Align,
    CompareRecordings,
    MatchModel,
    MeasureCheckpoint,
    ProbeCheckpoint,
    Course,
    Specialise,
    MeasureDomain,
    CountLeakage,
    Tune,
    InsideTuned,
    CountQuestions,
    WarmReader,
    WarmRetriever,
    TrainArm,
    SettleArm,
    RecordArm,
    FollowArm,
    JoinArms,
    MeasureArm,
)
"""The stages of a study in order of dependency, without the last one, which checks the findings on all tables."""
