"""Figures of retrieval and memorisation."""

from ._cards import CARDS
from ._section import RETRIEVAL, retrieval_section

SECTIONS = ((170, RETRIEVAL, retrieval_section),)
