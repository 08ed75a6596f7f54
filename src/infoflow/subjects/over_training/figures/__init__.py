"""Figures of how models developed in training, all by number of updates."""

from ._section import OVER_TRAINING, over_training_section

SECTIONS = ((200, OVER_TRAINING, over_training_section),)
