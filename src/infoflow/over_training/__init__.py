"""When in training a model becomes what it is: which updates to look at, and what a curve over them says."""

from ._clock import CLOCKS as CLOCKS
from ._clock import SUFFIX as SUFFIX
from ._clock import Clock as Clock
from ._clock import learning_rate_shares as learning_rate_shares
from ._clock import over_training as over_training
from ._convergence import Convergence as Convergence
from ._convergence import normalised_convergence as normalised_convergence
from ._crossings import Crossing as Crossing
from ._in_context import context_positions as context_positions
from ._in_context import in_context_gain as in_context_gain
from ._noise_scale import noise_scale as noise_scale
from ._phase import Phase as Phase
from ._phase import phase as phase
from ._role_events import RoleEvent as RoleEvent
from ._role_events import RoleEvents as RoleEvents
from ._role_events import expected_jaccard as expected_jaccard
from ._role_events import role_events as role_events
from ._schedule import DEFAULT_SCHEDULE as DEFAULT_SCHEDULE
from ._schedule import checkpoint_steps as checkpoint_steps
from ._schedule import select_steps as select_steps
from ._translation_order import Reordering as Reordering
from ._translation_order import fuzzy_reordering as fuzzy_reordering
from ._translation_order import source_share as source_share
from ._triangles import triangle_ratios as triangle_ratios
