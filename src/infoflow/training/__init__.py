"""Matched models for a study, and the loop that trains them: exact to the bit across kills and resumes."""

from infoflow.architectures import Match as Match
from infoflow.architectures import ModelConfig as ModelConfig

from ._accelerator import make_accelerator as make_accelerator
from ._accelerator import usable_device as usable_device
from ._checkpoint import Checkpoints as Checkpoints
from ._checkpoint import load_weights as load_weights
from ._checkpoint import save_model as save_model
from ._config import TrainConfig as TrainConfig
from ._data import ExampleRows as ExampleRows
from ._data import TokenRows as TokenRows
from ._data import TrainingData as TrainingData
from ._evaluate import Evaluation as Evaluation
from ._evaluate import evaluate as evaluate
from ._flops import TrainingFlops as TrainingFlops
from ._flops import count_training_flops as count_training_flops
from ._frozen import FrozenSlices as FrozenSlices
from ._frozen import frozen_slices as frozen_slices
from ._hooks import Step as Step
from ._hooks import TrainingHook as TrainingHook
from ._key import trained_objective as trained_objective
from ._log import read_log as read_log
from ._models import build_models as build_models
from ._sampler import LengthBucketSampler as LengthBucketSampler
from ._sampler import micro_batches as micro_batches
from ._schedule import learning_rate as learning_rate
from ._signals import TrainingInterrupted as TrainingInterrupted
from ._snapshot_writer import SnapshotPlan as SnapshotPlan
from ._snapshots import SNAPSHOTS as SNAPSHOTS
from ._snapshots import Snapshot as Snapshot
from ._snapshots import Snapshots as Snapshots
from ._text_rows import PairRows as PairRows
from ._text_rows import WindowRows as WindowRows
from ._train import TrainResult as TrainResult
from ._train import train as train
from ._update import Updater as Updater
