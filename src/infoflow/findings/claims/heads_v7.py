"""heads:V7. The rare-token head of the translation encoder's first layer."""

from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._heads import OneHead
from .._reading import Reading, untrained
from .._sources import HEAVY_LIFTING

_FIRST = {"layer": 0}
MOST, CHANCE = 0.5, 0.0
READS: dict[str, Reading] = {
    "head": OneHead(
        table="head_rare_token",
        objective="translation",
        columns=({**_FIRST, "rarest": 2}, {**_FIRST, "rarest": 1}),
        less_baseline=(False, True),
        thresholds=(MOST, CHANCE),
    )
}


def test(curves: Curves) -> list[Condition]:
    """Both numbers are of one head."""
    return [
        Condition(
            name="share of queries at which one head of block 0 attends most to one of the two rarest tokens",
            values=curves["head"][:, :1],
            labels=["block 0"],
            threshold=MOST,
            unit="share of queries",
        ),
        Condition(
            name="share of the same head for the rarest token, beyond its share with frequency ranks shuffled",
            values=curves["head"][:, 1:],
            labels=["block 0"],
            threshold=CHANCE,
            unit="share of queries",
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
    learned=("translation",),
    minimum_seeds=1,
)
