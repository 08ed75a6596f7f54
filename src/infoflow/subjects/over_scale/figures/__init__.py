"""Figures of claims over scale."""

from ._section import OVER_SCALE, over_scale_section
from ._warmups import WARMUPS, warmups_section

SECTIONS = ((0, OVER_SCALE, over_scale_section), (10, WARMUPS, warmups_section))
