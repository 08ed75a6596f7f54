"""Published claims as executable checks: effect, interval, control and verdict from the tables of a run."""

from infoflow.heads import removable

from ._chance import layers_in_any_order, seeds_alone
from ._condition import CORRELATION as CORRELATION
from ._condition import SHARE as SHARE
from ._condition import Condition as Condition
from ._condition import exceeds as exceeds
from ._condition import judge_all
from ._curves import TASK_DISTANCES, seed_distance, task_distance
from ._evaluate import evaluate as evaluate
from ._finding import Agreement as Agreement
from ._finding import Control as Control
from ._finding import Curves as Curves
from ._finding import Finding as Finding
from ._head_numbers import dominant_heads, positional_heads
from ._interval import largest_t
from ._judged_run import OVER_SCALE
from ._judged_run import JudgedRun as JudgedRun
from ._model_group import MASKED as MASKED
from ._model_group import Absent, model_groups
from ._more_seeds import MOST_SEEDS
from ._more_seeds import seeds_to_decide as seeds_to_decide
from ._own_claims import load_claims as load_claims
from ._registry import FINDINGS as FINDINGS
from ._registry import describe as describe
from ._resampled import plan_rows, resampled_curves
from ._scale_schema import FINDINGS_AT_SCALE as FINDINGS_AT_SCALE
from ._scale_schema import FINDINGS_BY_RUN
from ._scale_schema import FINDINGS_OVER_SCALE as FINDINGS_OVER_SCALE
from ._schema import FINDINGS_TABLE
from ._shapes import depth_correlation as depth_correlation
from ._shapes import early_layer, falls, later_over_earlier, middle_layer, pair_names, spearman, step_names
from ._shapes import total_fall as total_fall
from ._table import Reading as Reading
from ._table import SeedRows as SeedRows
from ._table import Table as Table
from ._table import baselines as baselines
from ._table import gather
from ._table import untrained as untrained
