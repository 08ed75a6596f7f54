"""Published claims as executable checks: effect, interval, control and verdict, from the tables of a run."""

from ._condition import CORRELATION as CORRELATION
from ._condition import SHARE as SHARE
from ._condition import Condition as Condition
from ._condition import Verdict as Verdict
from ._condition import exceeds as exceeds
from ._condition import stays_below as stays_below
from ._evaluate import evaluate as evaluate
from ._finding import Control as Control
from ._finding import Finding as Finding
from ._finding import Untested as Untested
from ._registry import FINDINGS as FINDINGS
from ._registry import describe as describe
from ._schema import FINDINGS_TABLE as FINDINGS_TABLE
from ._shapes import depth_correlation as depth_correlation
from ._shapes import total_fall as total_fall
from ._table import Reading as Reading
from ._table import SeedRows as SeedRows
from ._table import Table as Table
