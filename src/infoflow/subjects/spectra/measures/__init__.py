"""Measures of layers that need no labels."""

from infoflow.flow import AbstractMeasure

from ._layer_spectrum import DIME, LAYER_SPECTRUM, MEASURES
from ._layer_spectrum import LayerSpectrum as LayerSpectrum
from ._spectra import curvature, dime, directions, info_nce, lidar, weighed_entropy
from ._spectra import matrix_entropy as matrix_entropy


def course_measures(occurrences: int) -> list[AbstractMeasure]:
    """Measured by name, and at checkpoints."""
    return [LayerSpectrum()]
