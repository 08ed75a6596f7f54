"""Stages of a study on retrieval."""

from ._examine_readers import CountQuestions, FollowArm, JoinArms, MeasureArm, RecordArm
from ._train_readers import SettleArm, TrainArm, WarmReader, WarmRetriever

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
