"""objectives:O13. The same test as representations:V-12: the outlier with and without token dropout."""

from .._finding import Finding
from .._model_group import TOKEN_DROPOUT, TRANSLATION
from .._sources import BOTTOM_UP
from . import representations_v12

FINDING = Finding(
    id="objectives:O13",
    claim="Training on partly replaced input tokens removes the outlier of rare tokens' influence, so that it is the "
    "clean input, and not the objective, which makes it.",
    source=BOTTOM_UP,
    published=representations_v12.FINDING.published,
    statistic=f"as representations:V-12: {representations_v12.FINDING.statistic}",
    reads=representations_v12.READS,
    test=representations_v12.test,
    controls=representations_v12.FINDING.controls,
    learned=(TRANSLATION, TOKEN_DROPOUT),
    hinders=representations_v12.hinders,
)
