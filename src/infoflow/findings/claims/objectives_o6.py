"""objectives:O6. Masks drawn anew or once, with and without next-sentence prediction: two by two."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import ROBERTA
from .._stand_ins import PROBE, STANDS_IN, probe
from .._table import Reading
from .._zoo import NEXT_SENTENCE, NEXT_SENTENCE_STATIC, STATIC

_LEAST = -0.01  # a point below counts as no loss
READS: dict[str, Reading] = {
    "dynamic": probe(MASKED),
    "static": probe(STATIC),
    "dynamic pairs": probe(NEXT_SENTENCE),
    "static pairs": probe(NEXT_SENTENCE_STATIC),
}


def test(curves: Curves) -> list[Condition]:
    masks = [curves["dynamic"] - curves["static"], curves["dynamic pairs"] - curves["static pairs"]]
    pairs = [curves["dynamic"] - curves["dynamic pairs"], curves["static"] - curves["static pairs"]]
    return [
        exceeds("dynamic masks less static ones", np.mean(masks, axis=0), _LEAST, "share"),
        exceeds("without next-sentence prediction less with it", np.mean(pairs, axis=0), _LEAST, "share"),
    ]


FINDING = Finding(
    id="objectives:O6",
    claim="Masks that are drawn anew in each epoch teach a masked LM at least as much as static ones, and nothing is "
    f"lost without next-sentence prediction. {STANDS_IN}",
    source=ROBERTA,
    published="dynamic masking is comparable or slightly better than static; removing NSP matches or slightly improves "
    "downstream performance (unverified)",
    statistic=(
        f"{PROBE}, of masked-lm and masked-lm-nsp, each plain and +static: main effects of dynamic masks and of going "
        "without next-sentence prediction, neither a loss of a point"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="random neighbours in place of the masked LM with dynamic masks",
            reads=READS | {"dynamic": READS["dynamic"].changed(number="baseline")},
        ),
    ),
    learned=(MASKED, STATIC, NEXT_SENTENCE, NEXT_SENTENCE_STATIC),
)
