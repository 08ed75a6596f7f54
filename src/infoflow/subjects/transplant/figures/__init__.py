"""Figures of fresh models with heads of a trained one."""

from ._transplant import TRANSPLANT, transplant_section

SECTIONS = ((150, TRANSPLANT, transplant_section),)
