"""heads:V8. Self-attention heads of the translation encoder."""

import numpy as np

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._head_numbers import POSITIONAL, positional_heads
from .._model_group import TRANSLATION
from .._sources import HEAVY_LIFTING
from .._table import Reading, baselines, untrained

READS: dict[str, Reading] = {"heads": positional_heads()}


def test(curves: Curves) -> list[Condition]:
    adjacent, other, confidence = (curves["heads"][:, column : column + 1] for column in range(3))
    conditions = [
        exceeds("mean confidence of the positional heads", confidence, 0.8, "attention weight"),
        exceeds(
            "share of tokens at which the most positional head attends most to a neighbour (offset −1 or +1)",
            adjacent,
            POSITIONAL,
            "share of tokens",
        ),
    ]
    if np.isnan(other[0]).all():  # no other offset was measured
        return conditions
    elsewhere = stays_below(
        "the same at any other offset",
        other,
        POSITIONAL,
        "share of tokens",
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
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
