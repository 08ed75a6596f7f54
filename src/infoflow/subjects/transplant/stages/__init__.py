"""Stages of a study on transplant."""

from ._transplant import ChooseHeads, Transplant

STAGES = (
    (30, ChooseHeads),
    (40, Transplant),
)
