"""Claims about context: E1, E2."""

import numpy as np

from .._finding import Condition, Control, Curves, Verdict, claim, exceeds
from .._model_group import TRANSLATION
from .._readings import DECODER, ENCODER, how_closed, lost_share, some_retrained, untrained_share
from .._sources import OURS
from .._table import Reading

LEAST = 0.10


_E1_READS: dict[str, Reading] = {"share": lost_share(ENCODER)}


def hinders(curves: dict[str, np.ndarray], verdict: Verdict) -> str | None:
    return some_retrained(curves["share"])


@claim(
    "context:E1",
    "The encoder of a translation model provides context that the task needs: closing its self-attention costs "
    f"at least {LEAST:.0%} of what the model has learned beyond frequencies (our threshold).",
    source=OURS,
    published="no published number; the threshold is ours",
    statistic="loss with the encoder's self-attention closed in all blocks minus the loss with it open, as a share of "
    f"the unigram loss minus the loss with it open: at least {LEAST}. Models trained further with it closed "
    "are compared with models trained as long with all open; without such models, it is closed at test time",
    reads=_E1_READS,
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
def e1(curves: Curves) -> list[Condition]:
    """The encoder of a translation model with its self-attention closed."""
    share = curves["share"]
    return [
        exceeds(
            f"share of what the model has learned that is lost with the encoder's self-attention {how_closed(share)}",
            share[:, :1],
            LEAST,
            "share of what is learned",
        )
    ]


_E2_READS: dict[str, Reading] = {"difference": lost_share(ENCODER, less=DECODER)}


def _e2_hinders(curves: dict[str, np.ndarray], verdict: Verdict) -> str | None:
    return some_retrained(curves["difference"])


@claim(
    "context:E2",
    "In a translation model, the encoder provides the context: more of what the model has learned depends on the "
    "encoder's self-attention than on the decoder's (our threshold: a difference above 0).",
    source=OURS,
    published="no published number; that any difference above 0 counts is our choice",
    statistic="share of what the model has learned beyond frequencies that is lost with the encoder's self-attention "
    "closed in all blocks, minus the share lost with the decoder's closed: above 0. Models trained further "
    "with it closed are compared with models trained as long with all open; without such models, it is "
    "closed at test time",
    reads=_E2_READS,
    controls=(
        Control(
            name="untrained model, closed at test time (as a share of what the trained one has learned)",
            reads={"difference": untrained_share(ENCODER, less=DECODER)},
        ),
    ),
    learned=(TRANSLATION,),
    hinders=_e2_hinders,
    minimum_seeds=1,
)
def e2(curves: Curves) -> list[Condition]:
    """Self-attention of a translation model's encoder compared with that of its decoder."""
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
