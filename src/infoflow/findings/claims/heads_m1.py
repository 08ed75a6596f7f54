"""heads:M1. Self-attention heads of the translation encoder, each ablated alone."""

import numpy as np

from .._ablated_heads import MATTERS, HeadChanges
from .._condition import SHARE, Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import SIXTEEN_HEADS

READS: dict[str, Reading] = {"heads": HeadChanges(objective="translation", stack="encoder", kind="self")}
KEPT_ALONE = HeadChanges(objective="translation", stack="decoder", kind="cross", removed="others")


def test(curves: Curves) -> list[Condition]:
    matter = (np.abs(curves["heads"]) > MATTERS).mean(axis=1, keepdims=True)
    return [
        Condition(
            name=f"share of ablations that change the loss by more than {MATTERS} nats per token",
            values=matter,
            labels=["all heads"],
            threshold=0.5,
            unit="share of heads",
            bounds=SHARE,
            side="below",
        )
    ]


FINDING = Finding(
    id="heads:M1",
    claim="Most heads of a translation encoder can be removed, one at a time, without a change that matters.",
    source=SIXTEEN_HEADS,
    published="8 of 96 encoder heads change BLEU (36.05) significantly when removed, 4 of them upwards",
    statistic=(
        f"share of the encoder's self-attention heads whose own ablation changes the loss by more than {MATTERS} nats "
        "per predicted token (1 % of the perplexity), below half; significance of each head, corrected for their "
        "number, is in the table"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="all but one cross-attention head of a layer removed", reads={"heads": KEPT_ALONE}),),
    learned=("translation",),
    minimum_seeds=1,
)
