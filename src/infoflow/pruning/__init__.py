"""Let a model decide which heads it needs, then really remove the others."""

from infoflow.models import save_pruned as save_pruned

from ._curve import ALL_HEADS as ALL_HEADS
from ._curve import KINDS as KINDS
from ._curve import PRUNED_HEADS as PRUNED_HEADS
from ._curve import PRUNING as PRUNING
from ._curve import point_tables as point_tables
from ._curve import quality as quality
from ._gated_objective import GatedObjective as GatedObjective
from ._greedy import GREEDY as GREEDY
from ._greedy import greedy_pruning as greedy_pruning
from ._greedy import greedy_removals as greedy_removals
from ._greedy import rank_heads as rank_heads
from ._hard_concrete import HardConcrete as HardConcrete
from ._head_gates import AbstractHeadGates as AbstractHeadGates
from ._head_gates import HardConcreteGates as HardConcreteGates
from ._head_gates import SubsetHeadGates as SubsetHeadGates
from ._head_gates import attached as attached
from ._head_gates import fold as fold
from ._learn import GatedPoint as GatedPoint
from ._learn import learn_gates as learn_gates
from ._learn import learn_subset as learn_subset
from ._learned_curve import learned_curve as learned_curve
from ._masked import save_masked as save_masked
from ._prune import load_pruned as load_pruned
from ._prune import prune as prune
from ._prune_to import Pruned as Pruned
from ._prune_to import prune_to as prune_to
from ._roles_left import PRUNED_ROLES as PRUNED_ROLES
from ._roles_left import role_measures as role_measures
from ._roles_left import roles_left as roles_left
from ._speed import compare_speed as compare_speed
from ._subset import cooling as cooling
from ._subset import straight_through_gates as straight_through_gates
from ._subset import subset_gates as subset_gates
from ._subset import subset_mask as subset_mask
