"""Stages of a study on pruning."""

from ._prune import Prune
from ._prune import prune as prune

STAGES = ((20, Prune),)
