"""heads:V7. The rare-token head of the translation encoder's first layer."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._head_numbers import heads, one_head
from .._model_group import TRANSLATION
from .._sources import HEAVY_LIFTING
from .._table import Reading, untrained

MOST, CHANCE = 0.5, 0.0
READS: dict[str, Reading] = {
    "head": one_head(
        *(heads("head_rare_token", TRANSLATION, layer=0, rarest=rarest) for rarest in (2, 1)),
        less_baseline=(False, True),
        thresholds=(MOST, CHANCE),
    )
}


def test(curves: Curves) -> list[Condition]:
    """Both numbers are of one head."""
    return [
        exceeds(
            "share of queries at which one head of block 0 attends most to one of the two rarest tokens",
            curves["head"][:, :1],
            MOST,
            "share of queries",
            published=0.83,
        ),
        exceeds(
            "share of the same head for the rarest token, beyond its share with frequency ranks shuffled",
            curves["head"][:, 1:],
            CHANCE,
            "share of queries",
        ),
    ]


FINDING = Finding(
    id="heads:V7",
    claim="One head of a translation encoder's first layer points to the rarest tokens of a sentence.",
    source=HEAVY_LIFTING,
    published="OpenSubtitles: 66 % of the time to the rarest token, 83 % to one of the two rarest; WMT: over 50 % to "
    "one of the two rarest",
    statistic=(
        "some head of block 0 attends most to one of the two rarest tokens at over half of the queries, in sentences "
        "with a token outside the 500 most frequent, and the same head more often to the rarest than with shuffled "
        "frequency ranks"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
