"""heads:V8. Self-attention heads of the translation encoder."""

import numpy as np

from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._positional import POSITIONAL, PositionalHeads
from .._reading import Reading, baselines, untrained
from .._sources import HEAVY_LIFTING

READS: dict[str, Reading] = {"heads": PositionalHeads(objective="translation")}


def test(curves: Curves) -> list[Condition]:
    adjacent, other, confidence = (curves["heads"][:, column : column + 1] for column in range(3))
    conditions = [
        Condition(
            name="mean confidence of the positional heads",
            values=confidence,
            labels=["all layers"],
            threshold=0.8,
            unit="attention weight",
        ),
        Condition(
            name="share of tokens at which the most positional head attends most to a neighbour (offset −1 or +1)",
            values=adjacent,
            labels=["all layers"],
            threshold=POSITIONAL,
            unit="share of tokens",
        ),
    ]
    if np.isnan(other[0]).all():  # no other offset was measured
        return conditions
    elsewhere = Condition(
        name="the same at any other offset",
        values=other,
        labels=["all layers"],
        threshold=POSITIONAL,
        unit="share of tokens",
        side="below",
        alone=False,  # a model without positional heads has none at other offsets
    )
    return [*conditions, elsewhere]


FINDING = Finding(
    id="heads:V8",
    claim="A translation encoder has positional heads; they look at the previous or the next token, and are confident.",
    source=HEAVY_LIFTING,
    published=(
        "positional heads attend at least 90 % of the time to one offset, in practice −1 or +1, with a mean largest "
        "weight above .8"
    ),
    statistic=(
        "some head attends most to offset −1 or +1 at over 90 % of tokens, no head does so at another measured "
        "offset, and the mean confidence of these heads lies above .8"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model", reads=untrained(READS)),
        Control(name="a random admissible key, uniform attention", reads=baselines(READS)),
    ),
    learned=("translation",),
    minimum_seeds=1,
)
