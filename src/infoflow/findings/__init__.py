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
from ._objective_map import MAP_TABLES, OBJECTIVE_DISTANCES, OBJECTIVE_FAMILIES, OBJECTIVE_MAP, objective_map
from ._over_scale import findings_over_scale as findings_over_scale
from ._over_training import FINDINGS_OVER_TRAINING, FINDINGS_SINCE, findings_over_training, movement, verdict_runs
from ._own_claims import load_claims as load_claims
from ._pruned_models import alive_by_kind
from ._recovered_models import recovered_gaps
from ._registry import FINDINGS as FINDINGS
from ._registry import describe as describe
from ._resampled import plan_rows, resampled_curves
from ._scale_run import ScaleRun as ScaleRun
from ._scale_run import scale_runs
from ._scale_schema import FINDINGS_AT_SCALE as FINDINGS_AT_SCALE
from ._scale_schema import FINDINGS_BY_RUN
from ._scale_schema import FINDINGS_OVER_SCALE as FINDINGS_OVER_SCALE
from ._scale_slope import ScalePoint as ScalePoint
from ._scale_slope import ScaleSlope, course_slope, scale_groups
from ._scale_slope import scale_slope as scale_slope
from ._scale_trend import FLAT, ScaleTrend
from ._scale_trend import scale_trend as scale_trend
from ._scale_trends import TRENDS as TRENDS
from ._scale_trends import told_of_claims
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
