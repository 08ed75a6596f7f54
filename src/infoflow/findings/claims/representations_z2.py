"""representations:Z-2. Layers are 0..L; BERT and GPT-2 are played by the study's masked and causal LM."""

import numpy as np

from .._condition import Condition, exceeds, stays_below
from .._curves import geometry
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED, NAMES
from .._shapes import depth_correlation
from .._sources import GEOMETRY
from .._table import Reading, untrained

LANGUAGE_MODELS = (MASKED, CAUSAL)


def _reads(measure: str) -> dict[str, Reading]:
    names = {"self": measure, "average": "average_similarity"}
    return {f"{o.name} {name}": geometry(o, each) for o in LANGUAGE_MODELS for name, each in names.items()}


READS = _reads("self_similarity")


def test(curves: Curves) -> list[Condition]:
    corrected = [(curves[f"{o.name} self"] - curves[f"{o.name} average"])[:, :-1] for o in LANGUAGE_MODELS]
    names = [NAMES[o] for o in LANGUAGE_MODELS]
    return [
        stays_below(
            "rank correlation of corrected self-similarity with depth, last layer aside",
            np.concatenate([depth_correlation(curve) for curve in corrected], axis=1),
            -0.8,
            "Spearman's rho",
            names,
            published=-0.923,
        ),
        exceeds(
            "fall of corrected self-similarity from layer 0 to the last layer but one",
            np.concatenate([curve[:, :1] - curve[:, -1:] for curve in corrected], axis=1),
            0.05,
            "cosine",
            names,
            published=0.177,
        ),
    ]


FINDING = Finding(
    id="representations:Z-2",
    claim="The occurrences of a word become less alike with depth, beyond what all words have in common.",
    source=GEOMETRY,
    published=(
        "self-similarity less average similarity, layers 0 and 11: BERT-base .849 and .164, GPT-2 .306 and .129; the "
        "study's masked and causal LM stand in for them"
    ),
    statistic=(
        "mean cosine within words less mean cosine of random occurrences: Spearman correlation with depth over layers "
        "0..L−1 below −.8, and a fall of over .05 (a quarter of the smaller published one), in both language models"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="shuffled words", reads=_reads("shuffled_self_similarity")),
        # Random attention mixes words too: not a null of this claim, but what training adds to is worth knowing.
        Control(name="untrained models", reads=untrained(READS), decisive=False),
    ),
    learned=LANGUAGE_MODELS,
    minimum_seeds=1,
)
