"""objectives:O2. The best of three denoising objectives under two families of blocks, and translation beside them.

The source compares architectures in the sense of stacks (encoder, decoder, both); here an objective has one layout of
stacks in all families, so that what can differ for one objective is the family of blocks. That an objective is best in
one layout and not in another cannot be read off these tables.
"""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import TRANSLATION
from .._sources import COMPARISON
from .._stand_ins import PROBE, STANDS_IN, probe
from .._table import Reading, untrained
from .._zoo import BART, DENOISE_FULL, DESHUFFLING

_FAMILIES = ("bert", "t5")
_SHARED = (DENOISE_FULL, DESHUFFLING, BART)
READS: dict[str, Reading] = {
    "translation": probe(TRANSLATION, "bert"),
    **{f"{family} {one.name}": probe(one, family) for family in _FAMILIES for one in _SHARED},
}


def test(curves: Curves) -> list[Condition]:
    scores = {
        family: np.concatenate([curves[f"{family} {one.name}"] for one in _SHARED], axis=1) for family in _FAMILIES
    }
    best = {family: int(rows[0].argmax()) for family, rows in scores.items()}
    regrets = [
        scores[family][:, [best[family]]] - scores[family][:, [best[other]]]
        for family, other in (_FAMILIES, _FAMILIES[::-1])
    ]
    return [
        exceeds(
            "what the best objective of the other family loses to the best of this one",
            np.concatenate(regrets, axis=1),
            0.0,
            "share",
            [f"{family} blocks" for family in _FAMILIES],
        ),
        exceeds(
            "translation over BART, both on BERT's blocks", curves["translation"] - curves["bert bart"], 0.0, "share"
        ),
    ]


FINDING = Finding(
    id="objectives:O2",
    claim="The architecture dictates which objective teaches most, and translation is an effective objective for an "
    f"encoder beside a decoder. {STANDS_IN}",
    source=COMPARISON,
    published="the architecture dictates which pretraining objective is optimal; multilingual translation is a very "
    "effective one under the right conditions (no number in the abstract)",
    statistic=(
        f"{PROBE}: of denoising, deshuffling and BART another one is best on BERT's and on T5's blocks, each above the "
        "other's best; translation is above BART on BERT's blocks. Stacks cannot be varied for one objective"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(
            READS,
            *({f"{family} {one.name}": one.name for one in _SHARED} for family in _FAMILIES),
            {"translation": BART.name},
        ),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(TRANSLATION, *_SHARED),
)
