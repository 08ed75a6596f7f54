"""representations:Z-4. Curves over layers 0..L of the encoders, before the map."""

import numpy as np

from .._alignment import controls, gain, pairs
from .._condition import Condition, exceeds
from .._finding import Curves, Finding
from .._model_group import MASKED, TRANSLATION
from .._sources import ENCODER_SPACES

METRICS = ("average similarity gap", "self-similarity gap")


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "how much alignment narrows the gap to the translation encoder",
            np.concatenate([-gain(curves, metric) for metric in METRICS], axis=1),
            0,
            "cosine",
            [metric.removesuffix(" gap") for metric in METRICS],
        )
    ]


FINDING = Finding(
    id="representations:Z-4",
    claim="An aligned masked LM resembles the translation encoder in how similar its words are, layer by layer.",
    source=ENCODER_SPACES,
    published="direction only: the curves of average and self-similarity approach the translation encoder's",
    statistic=(
        "mean over layers of the absolute difference to the translation encoder, of average similarity and of "
        "self-similarity: smaller for the aligned masked LM than for the unaligned one"
    ),
    reads=pairs(METRICS, "encoder"),
    test=test,
    controls=controls(METRICS, "encoder"),
    learned=(MASKED, TRANSLATION),
)
