"""representations:Z-2. Layers are 0..L; BERT and GPT-2 are played by the study's masked and causal LM."""

import numpy as np

from .._condition import Condition
from .._curves import geometry
from .._finding import Control, Curves, Finding
from .._reading import OBJECTIVE_NAMES, Objective, Reading, untrained
from .._shapes import depth_correlation
from .._sources import GEOMETRY

OBJECTIVES: tuple[Objective, ...] = ("masked-lm", "causal-lm")


def _reads(measure: str) -> dict[str, Reading]:
    names = {"self": measure, "average": "average_similarity"}
    return {f"{o} {name}": geometry(o, each) for o in OBJECTIVES for name, each in names.items()}


READS = _reads("self_similarity")


def test(curves: Curves) -> list[Condition]:
    corrected = [(curves[f"{o} self"] - curves[f"{o} average"])[:, :-1] for o in OBJECTIVES]
    names = [OBJECTIVE_NAMES[o] for o in OBJECTIVES]
    return [
        Condition(
            name="rank correlation of corrected self-similarity with depth, last layer aside",
            values=np.concatenate([depth_correlation(curve) for curve in corrected], axis=1),
            labels=names,
            threshold=-0.8,
            unit="Spearman's rho",
            side="below",
        ),
        Condition(
            name="fall of corrected self-similarity from layer 0 to the last layer but one",
            values=np.concatenate([curve[:, :1] - curve[:, -1:] for curve in corrected], axis=1),
            labels=names,
            threshold=0.05,
            unit="cosine",
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
    learned=OBJECTIVES,
    minimum_seeds=1,
)
