"""Stages of a study on transplant."""

from ._choose_heads import ChooseHeads
from ._transplant import Transplant

STAGES = (
    (30, ChooseHeads),
    (40, Transplant),
)
