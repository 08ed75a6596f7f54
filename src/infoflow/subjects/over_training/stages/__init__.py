"""Stages that measure the checkpoints of a training."""

from ._measure_checkpoint import Course, MeasureCheckpoint, ProbeCheckpoint
from ._over_training import merge_over_training
from ._over_training import over_training as over_training
from ._series import is_shard

STAGES = ((130, MeasureCheckpoint), (140, ProbeCheckpoint), (150, Course))
MERGING = (is_shard, merge_over_training)
