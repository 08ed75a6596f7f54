"""How well scores of a translation show that it ignores its source."""

from infoflow.flow import AbstractMeasure

from ._detached_translation import (
    DETACHED_TRANSLATION,
    KINDS,
    LOG_PROBABILITY,
    NO_LAYER,
    RANDOM,
    SOURCE_SHARE,
    SWAPPED,
    WORST,
)
from ._detached_translation import DetachedTranslation as DetachedTranslation
from ._detection import Detection, source_shares


def course_measures(occurrences: int) -> list[AbstractMeasure]:
    """Measured by name, and at checkpoints."""
    return [DetachedTranslation()]
