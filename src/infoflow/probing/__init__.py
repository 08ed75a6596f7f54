"""Probes: what can be read from each layer, and how hard it is to read."""

from ._batched import NOT_ASKED as NOT_ASKED
from ._batched import LabelledRows as LabelledRows
from ._batched import ProbeGrid as ProbeGrid
from ._batched import ProbeSettings as ProbeSettings
from ._batched import TrainedProbes as TrainedProbes
from ._batched import train_probes as train_probes
from ._examples import Examples as Examples
from ._examples import Part as Part
from ._examples import ProbeTask as ProbeTask
from ._examples import Unit as Unit
from ._features import WordFeatures as WordFeatures
from ._features import collect_features as collect_features
from ._minimal_pairs import MINIMAL_PAIRS as MINIMAL_PAIRS
from ._minimal_pairs import MinimalPairs as MinimalPairs
from ._task_corpus import load_task_corpus as load_task_corpus
from ._tasks import MOST_CLASSES as MOST_CLASSES
from ._tasks import TaskDescription as TaskDescription
from ._tasks import build_task as build_task
from ._tasks import tasks as tasks
