"""Probes: what can be read from each layer, and how hard it is to read."""

from ._examples import Examples as Examples
from ._examples import Part as Part
from ._examples import ProbeTask as ProbeTask
from ._examples import Unit as Unit
from ._minimal_pairs import MINIMAL_PAIRS as MINIMAL_PAIRS
from ._minimal_pairs import MinimalPairs as MinimalPairs
from ._task_corpus import load_task_corpus as load_task_corpus
from ._tasks import MOST_CLASSES as MOST_CLASSES
from ._tasks import TaskDescription as TaskDescription
from ._tasks import build_task as build_task
from ._tasks import tasks as tasks
