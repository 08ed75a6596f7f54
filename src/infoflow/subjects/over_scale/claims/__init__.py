"""Claims over scale: effects and trends of several studies, and how their tables are read."""

from ._over_scale import ScaleRun, scale_runs
from ._over_scale import findings_over_scale as findings_over_scale
from ._scale_slope import FLAT, ScaleSlope, course_slope, scale_groups
from ._scale_slope import ScalePoint as ScalePoint
from ._scale_slope import scale_slope as scale_slope
from ._scale_slope import scale_trend as scale_trend
from ._scale_trends import TRENDS as TRENDS
from ._scale_trends import reported_claims
