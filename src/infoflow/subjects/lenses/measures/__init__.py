"""How close the prediction read from each layer is to the final one."""

from ._lens_measure import LENS
from ._lens_measure import Lens as Lens

MEASURES = (Lens,)
