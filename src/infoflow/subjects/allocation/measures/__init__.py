"""Loss change allocation: which parameters, heads, components and layers lowered the loss in training, and when."""

from ._adaptive import adaptive_allocation
from ._adaptive import loss_change_allocation as loss_change_allocation
from ._cells import Cell, Cells, find_cells
from ._config import RecordConfig, RecordSettings
from ._corpora import ALLOCATION_CORPORA, compare_corpora
from ._evaluation_set import evaluation_set
from ._gradient import FlatParameters, pass_gradients, undisturbed
from ._histogram import NUM_BINS, Histogram, bin_edges, bins_of
from ._normalise import normalised
from ._recorder import LossChangeRecorder
from ._recording import Recording
from ._rules import RULES, Rule, quadrature
from ._similarity import ALLOCATION_SIMILARITY, compare_trainings, objective_permutation_test, similarity
from ._tables import (
    ALLOCATION_GROUPS,
    ALLOCATION_HEADS,
    ALLOCATION_HISTOGRAM,
    ALLOCATION_HURTING,
    ALLOCATION_RELIABILITY,
    ALLOCATION_STEPS,
    ALLOCATION_WINDOWS,
    TABLES,
)
from ._targets import batch_set
