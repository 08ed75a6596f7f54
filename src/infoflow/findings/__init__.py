"""Published claims as executable checks: effect, interval, control and verdict from the tables of a run."""

from infoflow.heads import removable

from ._control import layers_in_any_order, seeds_alone
from ._curves import (
    TASK_DISTANCES,
    early_layer,
    falls,
    later_over_earlier,
    middle_layer,
    pair_names,
    seed_distance,
    spearman,
    step_names,
    task_distance,
)
from ._curves import depth_correlation as depth_correlation
from ._curves import total_fall as total_fall
from ._evaluate import evaluate as evaluate
from ._finding import CORRELATION as CORRELATION
from ._finding import SHARE as SHARE
from ._finding import Agreement, judge_all
from ._finding import Condition as Condition
from ._finding import Control as Control
from ._finding import Curves as Curves
from ._finding import Finding as Finding
from ._finding import exceeds as exceeds
from ._head_numbers import dominant_heads, positional_heads
from ._interval import largest_t, plan_rows, resampled_curves
from ._model_group import MASKED as MASKED
from ._model_group import Absent, model_groups
from ._no_verdict import MOST_SEEDS, seeds_to_decide
from ._registry import FINDINGS as FINDINGS
from ._registry import describe as describe
from ._registry import facts_of
from ._registry import load_claims as load_claims
from ._schema import FINDINGS_AT_SCALE as FINDINGS_AT_SCALE
from ._schema import FINDINGS_BY_RUN, FINDINGS_TABLE, OVER_SCALE, JudgedRun
from ._schema import FINDINGS_OVER_SCALE as FINDINGS_OVER_SCALE
from ._table import Reading as Reading
from ._table import SeedRows as SeedRows
from ._table import Table as Table
from ._table import baselines, gather
from ._table import untrained as untrained
