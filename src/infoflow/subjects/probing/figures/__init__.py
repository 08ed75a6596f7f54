"""Figures of probes."""

from ._cards import CARDS
from ._scores import PROBING, probing_section

SECTIONS = ((90, PROBING, probing_section),)
