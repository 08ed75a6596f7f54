"""Further pretraining and fine-tuning, and what they do to layers and heads."""

from ._tables import DOMAIN_LOSS as DOMAIN_LOSS
from ._tables import LABEL_BY_LAYER as LABEL_BY_LAYER
from ._tables import LAYER_SWAPS as LAYER_SWAPS
from ._tables import METHODS as METHODS
from ._tables import PROBES_AFTER_TUNING as PROBES_AFTER_TUNING
from ._tables import STRATEGIES as STRATEGIES
from ._tables import TASK_ANSWERS as TASK_ANSWERS
from ._tables import TASK_LEAKAGE as TASK_LEAKAGE
from ._tables import TASK_PRUNING as TASK_PRUNING
from ._tables import TASK_SCORES as TASK_SCORES
from ._tables import TUNED as TUNED
from ._tables import TUNING_ALLOCATION as TUNING_ALLOCATION
from ._tables import TUNING_CHANGE as TUNING_CHANGE
from ._tables import TUNING_HEADS as TUNING_HEADS
from ._tables import TUNING_SEED as TUNING_SEED
from ._tables import TUNING_WEIGHTS as TUNING_WEIGHTS
from ._task import SHAPES as SHAPES
from ._task import AbstractTask as AbstractTask
from ._task import Predictions as Predictions
from ._task import Score as Score
from ._task import Shape as Shape
from ._task import TaskData as TaskData
