"""Copying, preferred offsets and composition of heads, by their weights alone."""

from ._composition import HEAD_COMPOSITION
from ._composition import HeadComposition as HeadComposition
from ._head_weights import HEAD_WEIGHTS
from ._head_weights import HeadWeights as HeadWeights

MEASURES = (HeadWeights, HeadComposition)
