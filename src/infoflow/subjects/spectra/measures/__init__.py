"""Measures of layers that need no labels."""

from ._layer_spectrum import DIME, LAYER_SPECTRUM, QUANTITIES
from ._layer_spectrum import LayerSpectrum as LayerSpectrum
from ._spectra import curvature, dime, directions, info_nce, lidar, weighed_entropy
from ._spectra import matrix_entropy as matrix_entropy

MEASURES = (LayerSpectrum,)
