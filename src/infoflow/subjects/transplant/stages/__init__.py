"""Stages of a study on transplant."""

from ._transplant import Transplant

STAGES = ((40, Transplant),)
