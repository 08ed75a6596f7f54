"""Kinds of feed-forward neurons."""

from infoflow.flow import AbstractMeasure

from ._counts import TokenCounts, other_occurrences, position_bin
from ._kinds import OSCILLATING, SHAPES, shapes, token_detectors
from ._kinds import position_information as position_information
from ._tables import NEURON_EXAMPLES, NEURONS_BY_LAYER
from ._tables import NeuronExamples as NeuronExamples
from ._tables import Neurons as Neurons


def course_measures(occurrences: int) -> list[AbstractMeasure]:
    """Measured by name, also at checkpoints: they read the whole corpus once more."""
    return [Neurons(), NeuronExamples()]
