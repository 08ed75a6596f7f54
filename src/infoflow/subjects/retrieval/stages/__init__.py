"""Stages of a study on retrieval."""

from ._examine_readers import CountQuestions as CountQuestions
from ._examine_readers import FollowArm as FollowArm
from ._examine_readers import JoinArms as JoinArms
from ._examine_readers import MeasureArm as MeasureArm
from ._examine_readers import RecordArm as RecordArm
from ._train_readers import SettleArm as SettleArm
from ._train_readers import TrainArm as TrainArm
from ._train_readers import WarmReader as WarmReader
from ._train_readers import WarmRetriever as WarmRetriever

STAGES = (
    (210, CountQuestions),
    (220, WarmReader),
    (230, WarmRetriever),
    (240, TrainArm),
    (250, SettleArm),
    (260, RecordArm),
    (270, FollowArm),
    (280, JoinArms),
    (290, MeasureArm),
)
