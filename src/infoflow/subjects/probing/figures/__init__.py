"""Figures of probes."""

from ._scores import CARDS, PROBING, probing_section

SECTIONS = ((90, PROBING, probing_section),)
