"""How well scores of a translation show that the translation ignores its source."""

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

MEASURES = (DetachedTranslation,)
