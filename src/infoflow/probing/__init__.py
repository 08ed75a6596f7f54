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
