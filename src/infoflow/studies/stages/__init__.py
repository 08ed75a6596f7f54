"""The stages of a study, a file each: what each depends on, whether it is done, what it does, which tables it gives."""

from ._align import Align as Align
from ._check import Check as Check
from ._choose_heads import ChooseHeads as ChooseHeads
from ._compare import Compare as Compare
from ._count_leakage import CountLeakage as CountLeakage
from ._count_questions import CountQuestions as CountQuestions
from ._course import Course as Course
from ._domain_loss import MeasureDomain as MeasureDomain
from ._follow_arm import FollowArm as FollowArm
from ._follow_arm import JoinArms as JoinArms
from ._inside_tuned import InsideTuned as InsideTuned
from ._keep import Keep as Keep
from ._loaded_once import LoadedOnce as LoadedOnce
from ._match import MATCH as MATCH
from ._match import MatchModel as MatchModel
from ._match import matched_weights as matched_weights
from ._measure import AbstractMeasureStage as AbstractMeasureStage
from ._measure import MeasureModel as MeasureModel
from ._measure_arm import MeasureArm as MeasureArm
from ._measure_checkpoint import COMPARED_WITH as COMPARED_WITH
from ._measure_checkpoint import MeasureCheckpoint as MeasureCheckpoint
from ._measure_given import MeasureGiven as MeasureGiven
from ._measure_suite import MeasureSuiteCheckpoint as MeasureSuiteCheckpoint
from ._probe import ProbeModel as ProbeModel
from ._probe_checkpoint import ProbeCheckpoint as ProbeCheckpoint
from ._prune import Prune as Prune
from ._record import CompareRecordings as CompareRecordings
from ._record import Record as Record
from ._record_arm import RecordArm as RecordArm
from ._retrain import Retrain as Retrain
from ._specialise import Specialise as Specialise
from ._stage import AbstractStage as AbstractStage
from ._train import Train as Train
from ._train_arm import RETRIEVAL_RUNS as RETRIEVAL_RUNS
from ._train_arm import SettleArm as SettleArm
from ._train_arm import TrainArm as TrainArm
from ._transplant import Transplant as Transplant
from ._tune import Tune as Tune
from ._warm_reader import WarmReader as WarmReader
from ._warm_retriever import WarmRetriever as WarmRetriever
from ._weigh import WeighCheckpoint as WeighCheckpoint

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
"""Those of a study, each behind what it needs; before the last one, which checks the findings on all their tables."""
