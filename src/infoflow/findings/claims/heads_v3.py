"""heads:V3. Which kinds of attention lose their heads first when learned gates choose among all of them."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._pruned_models import RANDOM, alive_by_kind
from .._sources import HEAVY_LIFTING
from .._table import Reading

READS: dict[str, Reading] = {"alive": alive_by_kind()}


def test(curves: Curves) -> list[Condition]:
    encoder, decoder, cross, low, high = curves["alive"].T
    conditions = [
        exceeds(
            "alive share of heads, mean over the sweep: difference of two kinds of attention",
            np.stack([decoder - encoder, cross - encoder, cross - decoder], axis=1),
            0.0,
            "share of heads",
            [
                "decoder self-attention less encoder",
                "cross-attention less encoder",
                "cross-attention less decoder self-attention",
            ],
        )
    ]
    if np.isnan([low[0], high[0]]).any():  # one layer has no halves
        return conditions
    halves = exceeds(
        "alive share of the half of the layers that keeps its heads, less the other half's",
        np.stack([low, high], axis=1),
        0.0,
        "share of heads",
        ["decoder self-attention, lower layers", "cross-attention, upper layers"],
    )
    return [*conditions, halves]


FINDING = Finding(
    id="heads:V3",
    claim="The encoder's self-attention loses its heads first and cross-attention last; the decoder's self-attention "
    "keeps those of its lower layers, cross-attention those of its upper ones.",
    source=HEAVY_LIFTING,
    published=(
        "encoder, decoder and cross-attention heads left of 48 each: WMT 14/31/30, 12/21/25, 8/13/15, 5/9/12; "
        "OpenSubtitles 27/31/46, 13/17/31, 6/9/13; by layer in a figure without numbers"
    ),
    statistic=(
        "alive share of each kind's heads, mean over the points of a sweep with gates on all heads: cross-attention "
        "above the decoder's self-attention above the encoder's; lower above upper half of the decoder's layers in "
        "self-attention, and the reverse in cross-attention"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="random orders of all heads",
            reads={"alive": alive_by_kind(RANDOM)},
        ),
        # No difference, by construction.
        Control(
            name="the same share removed of every kind and layer",
            reads={"alive": alive_by_kind(uniform=True)},
            decisive=False,
        ),
    ),
    learned=(TRANSLATION,),
)
