"""Figures of head pruning."""

from ._pruning import SECTION, pruning_section

SECTIONS = ((140, SECTION, pruning_section),)
