"""Figures of the objective map."""

from ._alignment import ALIGNMENT, alignment_section
from ._objective_map import ALIKE, alike_section

SECTIONS = ((20, ALIKE, alike_section), (120, ALIGNMENT, alignment_section))
