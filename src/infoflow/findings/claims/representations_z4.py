"""representations:Z-4. Curves over layers 0..L of the encoders, before the map."""

import numpy as np

from .._alignment import gain, in_place_of_aligned, pair
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import ENCODER_SPACES

METRICS = ("average similarity gap", "self-similarity gap")
READS: dict[str, Reading] = {name: one for metric in METRICS for name, one in pair(metric, "encoder").items()}


def test(curves: Curves) -> list[Condition]:
    return [
        Condition(
            name="how much alignment narrows the gap to the translation encoder",
            values=np.concatenate([-gain(curves, metric) for metric in METRICS], axis=1),
            labels=[metric.removesuffix(" gap") for metric in METRICS],
            threshold=0,
            unit="cosine",
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
    reads=READS,
    test=test,
    controls=(
        Control(name="trained on shuffled links", reads=in_place_of_aligned(READS, "shuffled")),
        Control(name="trained on the regulariser only", reads=in_place_of_aligned(READS, "regulariser only")),
    ),
    learned=("masked-lm", "translation"),
)
