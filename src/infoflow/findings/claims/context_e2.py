"""context:E2. The self-attention of a translation model's encoder against that of its decoder."""

import numpy as np

from .._condition import Condition, Verdict, exceeds
from .._context import DECODER, ENCODER, how_closed, lost_share, some_retrained, untrained_share
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._sources import OURS
from .._table import Reading

READS: dict[str, Reading] = {"difference": lost_share(ENCODER, less=DECODER)}


def test(curves: Curves) -> list[Condition]:
    difference = curves["difference"]
    return [
        exceeds(
            "share of what the model has learned that hangs on the encoder's self-attention, less on the decoder's, "
            f"each {how_closed(difference)}",
            difference[:, :1],
            0.0,
            "share of what is learned",
        )
    ]


def hinders(curves: dict[str, np.ndarray], verdict: Verdict) -> str | None:
    return some_retrained(curves["difference"])


FINDING = Finding(
    id="context:E2",
    claim="Of a translation model the encoder does the context: more of what it has learned hangs on the encoder's "
    "self-attention than on the decoder's (our threshold: a difference above 0).",
    source=OURS,
    published="no published number; that any difference above 0 counts is our choice",
    statistic=(
        "share of what the model has learned beyond frequencies that is lost with the encoder's self-attention closed "
        "at all blocks less the share with the decoder's closed, above 0: of models trained on that way beside models "
        "trained on as long with all open, or, where none was, closed at test time"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="untrained model, closed at test time (as a share of what the trained one has learned)",
            reads={"difference": untrained_share(ENCODER, less=DECODER)},
        ),
    ),
    learned=(TRANSLATION,),
    hinders=hinders,
    minimum_seeds=1,
)
