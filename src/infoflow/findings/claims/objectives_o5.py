"""objectives:O5. BART's noise against each of its five kinds alone.

Variants of the plan are named after their one noise: `bart+masking`, `bart+deletion`, `bart+infilling`,
`bart+permutation`, `bart+rotation`. Permutation changes sentences that stand alone in nothing: windows are needed
(`text = "windows"`), which tables do not say.
"""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._sources import BART_PAPER
from .._stand_ins import PROBE, STANDS_IN, probe
from .._table import Reading, untrained
from .._zoo import BART, BART_NOISES

READS: dict[str, Reading] = {"bart": probe(BART), **{one.variant: probe(one) for one in BART_NOISES}}


def test(curves: Curves) -> list[Condition]:
    names = [one.variant for one in BART_NOISES]
    gains = np.concatenate([curves["bart"] - curves[name] for name in names], axis=1)
    return [exceeds("infilling with permutation over one noise alone", gains, 0.0, "share", names)]


FINDING = Finding(
    id="objectives:O5",
    claim=f"Of BART's noises, infilling of spans with permuted sentences teaches most. {STANDS_IN}",
    source=BART_PAPER,
    published="the best performance by both randomly shuffling the order of the sentences and in-filling spans",
    statistic=(
        f"{PROBE}: bart lies above each of bart+masking, bart+deletion, bart+infilling, bart+permutation and "
        "bart+rotation; permutation needs text = windows"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "bart", tuple(one.variant for one in BART_NOISES)),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(BART, *BART_NOISES),
)
