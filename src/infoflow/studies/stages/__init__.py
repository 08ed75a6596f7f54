"""The stages of a study: their results, models, dependencies and work."""

from ._align import Align as Align
from ._check import Check as Check
from ._choose_heads import ChooseHeads as ChooseHeads
from ._examine_readers import CountQuestions as CountQuestions
from ._examine_readers import FollowArm as FollowArm
from ._examine_readers import JoinArms as JoinArms
from ._examine_readers import MeasureArm as MeasureArm
from ._examine_readers import RecordArm as RecordArm
from ._keep import Keep as Keep
from ._match import MatchModel as MatchModel
from ._match import matched_weights as matched_weights
from ._measure import LoadedOnce as LoadedOnce
from ._measure_checkpoint import COMPARED_WITH as COMPARED_WITH
from ._measure_checkpoint import Course as Course
from ._measure_checkpoint import MeasureCheckpoint as MeasureCheckpoint
from ._measure_checkpoint import ProbeCheckpoint as ProbeCheckpoint
from ._measure_given import MeasureGiven as MeasureGiven
from ._measure_model import Compare as Compare
from ._measure_model import MeasureModel as MeasureModel
from ._measure_model import ProbeModel as ProbeModel
from ._prune import Prune as Prune
from ._record import CompareRecordings as CompareRecordings
from ._record import Record as Record
from ._retrain import Retrain as Retrain
from ._series import MeasureSuiteCheckpoint as MeasureSuiteCheckpoint
from ._series import WeighCheckpoint as WeighCheckpoint
from ._specialise import CountLeakage as CountLeakage
from ._specialise import MeasureDomain as MeasureDomain
from ._specialise import Specialise as Specialise
from ._stage import AbstractStage as AbstractStage
from ._train import Train as Train
from ._train_readers import SettleArm as SettleArm
from ._train_readers import TrainArm as TrainArm
from ._train_readers import WarmReader as WarmReader
from ._train_readers import WarmRetriever as WarmRetriever
from ._transplant import Transplant as Transplant
from ._tune import InsideTuned as InsideTuned
from ._tune import Tune as Tune

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
