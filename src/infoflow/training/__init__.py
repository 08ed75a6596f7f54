"""Matched models for a study, and their training loop: exactly reproducible across kills and resumes."""

from infoflow.architectures import Match
from infoflow.architectures import ModelConfig as ModelConfig

from ._accelerator import make_accelerator, usable_device
from ._checkpoint import Checkpoints, load_weights, save_model
from ._checkpoint_schedule import DEFAULT_SCHEDULE, checkpoint_steps, select_steps
from ._checkpoint_table import CHECKPOINTS
from ._clock import CLOCKS, NOT_THE_SAME, SUFFIX, Clock, learning_rate_shares, measured_over_training, of_whole_course
from ._clock import over_training as over_training
from ._config import TrainConfig as TrainConfig
from ._data import ExampleRows
from ._data import TokenRows as TokenRows
from ._data import TrainingData as TrainingData
from ._diverged import TrainingDiverged
from ._evaluate import evaluate
from ._flops import TrainingFlops
from ._flops import count_training_flops as count_training_flops
from ._frozen import FrozenSlices as FrozenSlices
from ._frozen import frozen_slices as frozen_slices
from ._hooks import Step as Step
from ._hooks import TrainingHook as TrainingHook
from ._key import trained_objective
from ._log import read_log
from ._models import build_models
from ._sampler import LengthBucketSampler, micro_batches
from ._schedule import learning_rate
from ._signals import TrainingInterrupted
from ._snapshot_writer import SnapshotPlan as SnapshotPlan
from ._snapshots import SNAPSHOTS, Snapshot, Snapshots
from ._text_rows import PairRows, WindowRows
from ._train import TrainResult as TrainResult
from ._train import train as train
from ._update import Updater
