"""Runs a graph of stages: here, on joined machines, or on a cluster. It knows neither models nor tables.

Dask schedules supervisors, not work: a task of Dask is a thread that starts one process for its stage, passes on what
it tells and waits. So each stage can be asked to save and stop, its memory goes back when it ends, and what kills it
takes nothing else along.
"""

from ._engine import Engine as Engine
from ._engine import cluster_engine as cluster_engine
from ._engine import local_engine as local_engine
from ._failures import check_endings as check_endings
from ._in_turn import InTurn as InTurn
from ._joining import worker as worker
from ._stage import Checked as Checked
from ._stage import Ending as Ending
from ._stage import Event as Event
from ._stage import Stage as Stage
from ._stage import Usage as Usage
