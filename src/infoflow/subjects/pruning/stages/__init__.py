"""Stages of a study on pruning."""

from ._choose_heads import ChooseHeads
from ._prune import Prune
from ._prune_model import prune as prune

STAGES = (
    (20, Prune),
    (30, ChooseHeads),
)
