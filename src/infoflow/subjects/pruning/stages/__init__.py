"""Stages of a study on pruning."""

from ._prune import Prune
from ._prune_model import prune as prune

STAGES = ((20, Prune),)
