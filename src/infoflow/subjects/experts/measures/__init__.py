"""The routing of tokens to experts."""

from infoflow.flow import AbstractMeasure

from ._routing import EXPERT_ROUTING
from ._routing import ExpertRouting as ExpertRouting


def course_measures(occurrences: int) -> list[AbstractMeasure]:
    """Measured by name: few models have experts."""
    return [ExpertRouting()]
