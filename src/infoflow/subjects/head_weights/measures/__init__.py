"""Copying, preferred offsets and composition of heads, by their weights alone."""

from infoflow.flow import AbstractMeasure

from ._composition import HEAD_COMPOSITION
from ._composition import HeadComposition as HeadComposition
from ._head_weights import HEAD_WEIGHTS
from ._head_weights import HeadWeights as HeadWeights


def course_measures(occurrences: int) -> list[AbstractMeasure]:
    """Measured by name: at checkpoints, in a plan's `[analysis] tables`, and by `infoflow analyze --only`."""
    return [HeadWeights(), HeadComposition()]
