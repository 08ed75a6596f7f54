"""Further pretraining and fine-tuning, and their effects on layers and heads."""

from ._allocation_hooks import AllocationHooks, TuningAllocation, tuning_allocation
from ._choice_and_tagging import Choice, Tagging
from ._generation import Generation
from ._generation import as_text as as_text
from ._inside_view import INSIDE, INSIDE_TABLES, InsideSizes, inside_view
from ._label_by_layer import probes_after_tuning
from ._labelled_examples import BUILT_IN_TASKS, built_in_task, leakage, training_part
from ._layers_after_tuning import layer_swaps, tuning_weights
from ._load_task import load_task
from ._make_task import Classification, Regression, make_task, reads_both_sides
from ._methods import DEFAULT_RATES, Method, Rates, Seeds, TuneSettings
from ._methods import TuneConfig as TuneConfig
from ._parent import ExtendedVocabulary, Parent, add_tokens, check_fits, extend_vocabulary, load_parent
from ._span_extraction import SpanExtraction
from ._span_rows import askable_spans
from ._states import mean_estimate
from ._tables import (
    DOMAIN_LOSS,
    FROZEN_METHODS,
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
from ._task import SHAPES, Predictions, Score, Shape
from ._task import AbstractTask as AbstractTask
from ._task import TaskData as TaskData
from ._task_model import task_model
from ._task_pruning import HEAD_OVERLAP, head_overlap, task_pruning
from ._tune import tune
from ._tuned import Tuned as Tuned
from ._tuned import TunedModel, load_tuned
from ._tuning_heads import tuning_heads
