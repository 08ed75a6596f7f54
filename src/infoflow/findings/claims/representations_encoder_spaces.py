"""Claims about representations: Z-5, Z-6."""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._curves import geometry
from .._finding import Control, Curves, claim
from .._model_group import MASKED, TRANSLATION
from .._shapes import step_names
from .._sources import ENCODER_SPACES
from .._table import baselines, untrained

_Z5_READS = {o.name: geometry(o, "average_similarity") for o in (TRANSLATION, MASKED)}


@claim(
    "representations:Z-5",
    "The embeddings of a translation encoder are more alike than those of a masked LM.",
    source=ENCODER_SPACES,
    published="no number: the figure that shows it is not readable. There a pretrained BERT is compared with a "
    "translation encoder of other data; here both models share data, tokens and initialisation",
    statistic="mean cosine of random word occurrences at layer 0: translation encoder over masked LM by more than .05",
    reads=_Z5_READS,
    controls=(
        seeds_alone(_Z5_READS, "translation", "masked-lm"),
        Control(name="isotropic Gaussian", reads=baselines(_Z5_READS)),
        Control(name="untrained models", reads=untrained(_Z5_READS)),
    ),
    learned=(TRANSLATION, MASKED),
)
def z5(curves: Curves) -> list[Condition]:
    """Layer 0."""
    return [
        exceeds(
            "average similarity of the translation encoder's embeddings over the masked LM's",
            curves["translation"][:, :1] - curves["masked-lm"][:, :1],
            0.05,
            "cosine",
        )
    ]


_Z6_READS = {"translation": geometry(TRANSLATION, "average_similarity")}


_RATIO = 1.5


@claim(
    "representations:Z-6",
    "In a translation encoder the states of random words become alike by a jump at the last layer; in a masked LM "
    "they do so gradually.",
    source=ENCODER_SPACES,
    published="no number: the figure that shows it is not readable",
    statistic="mean cosine of random word occurrences, translation encoder: it rises at the last layer, by over 1.5 "
    "times its largest rise at an earlier one; the masked LM does not meet this",
    reads=_Z6_READS,
    controls=(
        Control(name="masked LM", reads={"translation": geometry(MASKED, "average_similarity")}),
        Control(name="untrained model", reads=untrained(_Z6_READS)),
    ),
    learned=(TRANSLATION, MASKED),
)
def z6(curves: Curves) -> list[Condition]:
    """Layers are 0..L.

    The statistic is a difference, not a ratio: an earlier step may be zero or a fall, which the last must exceed too.
    """
    steps = np.diff(curves["translation"], axis=1)
    earlier, last = steps[:, :-1], steps[:, -1:]
    return [
        exceeds(
            f"rise at the last layer, by itself and less {_RATIO} times each earlier one",
            np.concatenate([last, last - _RATIO * earlier], axis=1),
            0.0,
            "cosine",
            ["by itself", *step_names(earlier.shape[1], 0)],
        ),
    ]
