"""Stages of a study on pruning."""

from ._prune import Prune, prune

STAGES = ((20, Prune),)
