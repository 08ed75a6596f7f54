"""Stages of a study on over training."""

from ._measure_checkpoint import COMPARED_WITH, Course, MeasureCheckpoint, ProbeCheckpoint
from ._over_training import merge_over_training
from ._over_training import over_training as over_training
from ._series import MeasureSuiteCheckpoint, WeighCheckpoint, is_shard
from ._series_stages import series_stage_of

STAGES = (
    (130, MeasureCheckpoint),
    (140, ProbeCheckpoint),
    (150, Course),
)
MERGING = (is_shard, merge_over_training)
