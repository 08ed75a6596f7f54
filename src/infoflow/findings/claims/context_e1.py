"""context:E1. The encoder of a translation model with its self-attention closed."""

import numpy as np

from .._condition import Condition, Verdict, exceeds
from .._context import ENCODER, how_closed, lost_share, some_retrained, untrained_share
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._sources import OURS
from .._table import Reading

LEAST = 0.10  # of what the model has learned; ours

READS: dict[str, Reading] = {"share": lost_share(ENCODER)}


def test(curves: Curves) -> list[Condition]:
    share = curves["share"]
    return [
        exceeds(
            f"share of what the model has learned that is lost with the encoder's self-attention {how_closed(share)}",
            share[:, :1],
            LEAST,
            "share of what is learned",
        )
    ]


def hinders(curves: dict[str, np.ndarray], verdict: Verdict) -> str | None:
    return some_retrained(curves["share"])


FINDING = Finding(
    id="context:E1",
    claim="The encoder of a translation model does context that its task needs: closing its self-attention costs at "
    f"least {LEAST:.0%} of what the model has learned beyond frequencies (our threshold).",
    source=OURS,
    published="no published number; the threshold is ours",
    statistic=(
        "loss with the encoder's self-attention closed at all blocks less the loss open, as a share of the unigram "
        f"loss less the loss open, at least {LEAST}: of models trained on that way beside models trained on as long "
        "with all open, or, where none was, closed at test time"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="untrained model, closed at test time (as a share of what the trained one has learned)",
            reads={"share": untrained_share(ENCODER)},
        ),
    ),
    learned=(TRANSLATION,),
    hinders=hinders,
    minimum_seeds=1,
)
