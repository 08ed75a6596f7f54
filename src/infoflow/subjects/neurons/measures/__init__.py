"""Kinds of feed-forward neurons."""

from ._counts import TokenCounts, other_occurrences, position_bin
from ._kinds import OSCILLATING, SHAPES, shapes, token_detectors
from ._kinds import position_information as position_information
from ._tables import NEURON_EXAMPLES, NEURONS_BY_LAYER
from ._tables import NeuronExamples as NeuronExamples
from ._tables import Neurons as Neurons

MEASURES = (Neurons, NeuronExamples)
