"""Figures of allocation."""

from ._dynamics import DYNAMICS, dynamics_section

SECTIONS = ((190, DYNAMICS, dynamics_section),)
