"""Claims about representations: Z3, Z4, Z5, Z6."""

import numpy as np

from infoflow.subjects.alignment.claims._alignment import controls, gain, pairs

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._curves import geometry
from .._finding import Control, Curves, claim
from .._model_group import MASKED, TRANSLATION
from .._shapes import step_names
from .._sources import ENCODER_SPACES
from .._table import baselines, untrained

UNITS = {
    "retrieval forward": "share of words",
    "retrieval backward": "share of words",
    "rsa": "rank correlation",
    "pwcca": "PWCCA",
}


METRICS = ("mse", *UNITS)


@claim(
    "representations:Z-3",
    "Alignment brings a masked LM's space nearer to a translation encoder's than any linear map of it.",
    source=ENCODER_SPACES,
    published="directions only: error falls; retrieval, RSA and PWCCA rise",
    statistic="aligned encoder against the unaligned one under its best linear map, on held-out words: squared error "
    "lower; retrieval both ways, RSA and PWCCA to the translation encoder higher",
    reads=pairs(METRICS, "mapped"),
    controls=controls(METRICS, "mapped"),
    learned=(MASKED, TRANSLATION),
)
def z3(curves: Curves) -> list[Condition]:
    """Held-out words, states after the map."""
    falls = exceeds("fall of the squared error", -gain(curves, "mse"), 0, "squared units")
    rises = [exceeds(f"rise of {metric}", gain(curves, metric), 0, unit) for metric, unit in UNITS.items()]
    return [falls, *rises]


_Z4_METRICS = ("average similarity gap", "self-similarity gap")


@claim(
    "representations:Z-4",
    "An aligned masked LM resembles the translation encoder in how similar its words are, layer by layer.",
    source=ENCODER_SPACES,
    published="direction only: the curves of average and self-similarity approach the translation encoder's",
    statistic="mean over layers of the absolute difference to the translation encoder, of average similarity and of "
    "self-similarity: smaller for the aligned masked LM than for the unaligned one",
    reads=pairs(_Z4_METRICS, "encoder"),
    controls=controls(_Z4_METRICS, "encoder"),
    learned=(MASKED, TRANSLATION),
)
def z4(curves: Curves) -> list[Condition]:
    """Curves over layers 0..L of the encoders, before the map."""
    return [
        exceeds(
            "how much alignment narrows the gap to the translation encoder",
            np.concatenate([-gain(curves, metric) for metric in _Z4_METRICS], axis=1),
            0,
            "cosine",
            [metric.removesuffix(" gap") for metric in _Z4_METRICS],
        )
    ]


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
