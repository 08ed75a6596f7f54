"""Loss change allocation: which parameters, heads, components and layers lowered the loss in training, and when."""

from ._cells import NUM_BINS, Cell, Cells, Histogram, bin_edges, bins_of, find_cells
from ._gradient import FlatParameters, evaluation_set, pass_gradients, undisturbed
from ._recorder import LossChangeRecorder
from ._recording import Recording
from ._rules import RULES, Rule, quadrature
from ._rules import loss_change_allocation as loss_change_allocation
from ._similarity import ALLOCATION_CORPORA, ALLOCATION_SIMILARITY, compare_corpora, compare_trainings, similarity
from ._tables import (
    ALLOCATION_GROUPS,
    ALLOCATION_HEADS,
    ALLOCATION_HISTOGRAM,
    ALLOCATION_HURTING,
    ALLOCATION_RELIABILITY,
    ALLOCATION_STEPS,
    ALLOCATION_WINDOWS,
    HURTING_COMPONENTS,
    TABLES,
    RecordConfig,
    RecordSettings,
    hurting_counts,
    hurting_table,
)
