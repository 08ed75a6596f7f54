"""Stages of a study on alignment."""

from ._align import Align as Align

STAGES = ((100, Align),)
