"""Figures of retrieval and memorisation."""

from ._rows import CARDS
from ._section import RETRIEVAL, retrieval_section

SECTIONS = ((170, RETRIEVAL, retrieval_section),)
