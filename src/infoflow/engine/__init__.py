"""Runs a graph of stages on this machine, on joined machines, or on a cluster, without knowledge of models or tables.

Dask schedules supervisors, not work: a Dask task is a thread that starts one process for its stage, relays its messages
and waits. So a stage can save and stop on request, its memory is freed when it ends, and a crash affects only that
stage.
"""

from ._engine import Engine
from ._engine import InTurn as InTurn
from ._engine import cluster_engine as cluster_engine
from ._engine import local_engine as local_engine
from ._joining import worker as worker
from ._stage import Ending, Event, Stage
from ._stage import check_endings as check_endings
