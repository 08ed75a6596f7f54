"""Figures of head pruning."""

from ._pruning import PRUNING, pruning_section

SECTIONS = ((140, PRUNING, pruning_section),)
