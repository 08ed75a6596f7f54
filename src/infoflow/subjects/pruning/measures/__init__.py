"""Learn which heads a model needs, then remove the others."""

from infoflow.heads import load_pruned as load_pruned
from infoflow.heads import prune as prune
from infoflow.models import save_pruned as save_pruned

from ._curve import (
    ALL_HEADS,
    KINDS,
    PRUNED_HEADS,
    PRUNED_ROLES,
    PRUNING,
    compare_speed,
    point_tables,
    role_measures,
    roles_left,
)
from ._curve import quality as quality
from ._greedy import GREEDY, greedy_pruning, greedy_removals, rank_heads
from ._head_gates import HardConcrete as HardConcrete
from ._head_gates import HardConcreteGates, attached, cooling, straight_through_gates, subset_mask
from ._head_gates import subset_gates as subset_gates
from ._learn import GatedObjective, GatedPoint, learn_subset
from ._learn import learn_gates as learn_gates
from ._learn import recover as recover
from ._prune_to import Pruned as Pruned
from ._prune_to import Recovery, prune_to
from ._prune_to_each import PrunedToEach, prune_to_each
