"""Loss change allocation: which parameters, heads, components and layers lowered the loss in training, and when."""

from ._adaptive import AdaptiveAllocation as AdaptiveAllocation
from ._adaptive import adaptive_allocation as adaptive_allocation
from ._allocation import loss_change_allocation as loss_change_allocation
from ._batch_set import batch_set as batch_set
from ._cells import Cell as Cell
from ._cells import Cells as Cells
from ._cells import find_cells as find_cells
from ._config import RecordConfig as RecordConfig
from ._corpora import ALLOCATION_CORPORA as ALLOCATION_CORPORA
from ._corpora import compare_corpora as compare_corpora
from ._evaluation_set import EvaluationSet as EvaluationSet
from ._evaluation_set import evaluation_set as evaluation_set
from ._normalise import normalised as normalised
from ._recorder import LossChangeRecorder as LossChangeRecorder
from ._recording import Recording as Recording
from ._rules import RULES as RULES
from ._rules import Quadrature as Quadrature
from ._rules import Rule as Rule
from ._rules import quadrature as quadrature
from ._similarity import ALLOCATION_SIMILARITY as ALLOCATION_SIMILARITY
from ._similarity import compare_trainings as compare_trainings
from ._similarity import objective_permutation_test as objective_permutation_test
from ._similarity import similarity as similarity
from ._tables import TABLES as TABLES
