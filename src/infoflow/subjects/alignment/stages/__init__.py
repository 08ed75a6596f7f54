"""Stages of a study on alignment."""

from ._align import Align

STAGES = ((100, Align),)
