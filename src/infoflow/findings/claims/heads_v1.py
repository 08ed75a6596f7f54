"""heads:V1. Encoder heads that learned gates remove from the converged translation model."""

from .._condition import SHARE, Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._pruned_models import CHEAP, RANDOM, removable_share
from .._sources import HEAVY_LIFTING
from .._table import Reading

READS: dict[str, Reading] = {"removable": removable_share()}


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "largest share of the encoder's heads that goes at almost no cost",
            curves["removable"],
            0.5,
            "share of heads",
            bounds=SHARE,
            published=38 / 48,
        )
    ]


FINDING = Finding(
    id="heads:V1",
    claim="Most of a translation encoder's heads can be removed at almost no cost.",
    source=HEAVY_LIFTING,
    published=(
        "38 of 48 heads go at .15 BLEU (WMT English-Russian, 29.6), 44 of 48 at .25 (OpenSubtitles, 32.4); then the "
        "curve falls: 5 heads 29.0 and 2 heads 28.25, 1 head 31.7"
    ),
    statistic=(
        "along a sweep of penalties on learned gates, decoder frozen, over half of the encoder's heads go before the "
        f"quality is worse by {CHEAP['bleu']} BLEU (without BLEU: {CHEAP['loss']} nats per token)"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="random heads, as many, without further training",
            reads={"removable": removable_share(RANDOM)},
        ),
    ),
    learned=(TRANSLATION,),
)
