"""Figures of tuned models: how well they do, and what tuning changed inside them."""

from ._section import ADAPTATION, adaptation_section

SECTIONS = ((160, ADAPTATION, adaptation_section),)
