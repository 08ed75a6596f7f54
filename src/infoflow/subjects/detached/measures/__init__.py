"""How well scores of a translation show that the translation ignores its source."""

from ._detached_translation import (
    DETACHED_TRANSLATION,
    KINDS,
    LOG_PROBABILITY,
    RANDOM,
    SOURCE_SHARE,
    SWAPPED,
    WORST,
    Detection,
    source_shares,
)
from ._detached_translation import DetachedTranslation as DetachedTranslation

MEASURES = (DetachedTranslation,)
