"""Further pretraining and fine-tuning, and their effects on layers and heads."""

from ._allocation_hooks import AllocationHooks, TuningAllocation, tuning_allocation
from ._answer_places import askable_spans
from ._as_text import as_text as as_text
from ._built_in_tasks import BUILT_IN_TASKS, built_in_task
from ._choice import Choice
from ._extended_vocabulary import ExtendedVocabulary, add_tokens, extend_vocabulary
from ._generation import Generation
from ._head_overlap import HEAD_OVERLAP, head_overlap
from ._inside_sizes import InsideSizes
from ._inside_view import INSIDE, INSIDE_TABLES, inside_view
from ._label_by_layer import label_by_layer
from ._layer_swaps import layer_swaps
from ._load_task import load_task
from ._make_task import Classification, Regression, make_task, reads_both_sides
from ._parent import Parent, check_fits, load_parent
from ._probes_after_tuning import probes_after_tuning
from ._readable import first_readable, label_readable
from ._span_extraction import SpanExtraction
from ._tables import (
    DOMAIN_LOSS,
    LABEL_BY_LAYER,
    LAYER_SWAPS,
    METHODS,
    PROBES_AFTER_TUNING,
    TASK_ANSWERS,
    TASK_LEAKAGE,
    TASK_PRUNING,
    TASK_SCORES,
    TUNED,
    TUNING_ALLOCATION,
    TUNING_CHANGE,
    TUNING_HEADS,
    TUNING_WEIGHTS,
)
from ._tagging import Tagging
from ._task import SHAPES, Predictions, Score, Shape
from ._task import AbstractTask as AbstractTask
from ._task import TaskData as TaskData
from ._task_leakage import leakage
from ._task_model import task_model
from ._task_pruning import task_pruning
from ._training_part import training_part
from ._tune import tune as tune
from ._tune_config import DEFAULT_RATES, Rates, Seeds, TuneSettings
from ._tune_config import TuneConfig as TuneConfig
from ._tuned import Tuned as Tuned
from ._tuned import TunedModel, load_tuned
from ._tuning_change import tuning_change
from ._tuning_heads import tuning_heads
from ._tuning_weights import tuning_weights
