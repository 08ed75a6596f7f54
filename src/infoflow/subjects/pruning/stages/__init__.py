"""Stages of a study on pruning."""

from ._choose_heads import ChooseHeads as ChooseHeads
from ._prune import Prune as Prune
from ._prune_model import prune as prune

STAGES = (
    (20, Prune),
    (30, ChooseHeads),
)
