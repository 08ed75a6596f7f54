"""Matched models for a study, and a training loop that is exactly reproducible, even after kills and resumes."""

from infoflow.architectures import Match, ModelConfig

from ._checkpoint import Checkpoints, load_weights
from ._checkpoint_schedule import (
    CHECKPOINTS,
    CLOCKS,
    DEFAULT_SCHEDULE,
    NOT_THE_SAME,
    SUFFIX,
    Clock,
    checkpoint_steps,
    learning_rate_shares,
    measured_over_training,
    of_whole_course,
    over_training,
    select_steps,
)
from ._config import TrainConfig as TrainConfig
from ._config import build_models, learning_rate
from ._config import count_training_flops as count_training_flops
from ._data import ExampleRows, LengthBucketSampler, PairRows, TokenRows, WindowRows, micro_batches
from ._data import TrainingData as TrainingData
from ._records import read_log, trained_objective
from ._snapshots import SNAPSHOTS, Snapshot, Snapshots
from ._snapshots import SnapshotPlan as SnapshotPlan
from ._train import TrainResult as TrainResult
from ._train import train as train
from ._update import (
    FrozenSlices,
    TrainingDiverged,
    TrainingInterrupted,
    Updater,
    evaluate,
    make_accelerator,
    usable_device,
)
from ._update import Step as Step
from ._update import TrainingHook as TrainingHook
from ._update import frozen_slices as frozen_slices
