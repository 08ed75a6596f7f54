"""Patching on pairs: exact and first-order effects of single parts."""

from ._pairs import PatchPair as PatchPair
from ._pairs import read_pairs as read_pairs
from ._tables import PATCHING_AGREEMENT, PATCHING_EFFECT, PATCHING_EXAMPLE, PATCHING_FAITHFULNESS
from ._tables import patch_effects as patch_effects
