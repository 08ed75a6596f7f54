"""heads:V2. The pruned translation model against the same heads trained from scratch."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._pruned_models import RANDOM, pruned_less_scratch
from .._sources import HEAVY_LIFTING
from .._table import Reading

READS: dict[str, Reading] = {"gap": pruned_less_scratch()}
_UNITS = ("BLEU", "nats per token")


def test(curves: Curves) -> list[Condition]:
    column = int(np.isnan(curves["gap"][0, 0]))  # the loss where BLEU was not scored
    return [
        exceeds(
            "quality of the pruned model beyond that of the same heads trained from scratch",
            curves["gap"][:, column : column + 1],
            0.0,
            _UNITS[column],
        )
    ]


FINDING = Finding(
    id="heads:V2",
    claim="A pruned model is better than one that was trained from scratch with the same heads.",
    source=HEAVY_LIFTING,
    published=(
        "BLEU by encoder, decoder and cross-attention heads left, pruned against scratch: WMT 14/31/30 29.62 and "
        "29.47, 12/21/25 29.36 and 28.95, 8/13/15 29.06 and 28.56, 5/9/12 28.90 and 28.41; OpenSubtitles 27/31/46 "
        "32.24 and 32.23, 13/17/31 32.23 and 31.98, 6/9/13 32.27 and 31.84"
    ),
    statistic=(
        "mean over the points of the sweep of the BLEU (without it: the loss) of the pruned model less that of a "
        "model that had its heads from the start and as many updates, above 0"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="as many random heads of the converged model for the pruned one",
            reads={"gap": pruned_less_scratch(RANDOM)},
        ),
    ),
    learned=(TRANSLATION,),
)
