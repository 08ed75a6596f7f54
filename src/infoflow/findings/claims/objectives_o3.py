"""objectives:O3. ELECTRA's discriminator against the masked LM, and what both cost.

Models of a study have equal updates, not equal operations. Where ELECTRA cost more, a better score may be the extra
computation's, and where it cost less, a worse one may be what was saved: then there is no verdict. A worse score at a
higher cost, or a better one at a lower cost, needs no equality. That the gain is largest for small models takes
studies of two sizes, whose gaps can be compared by hand: one study has one size.
"""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, Verdict, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import ELECTRA_PAPER
from .._stand_ins import PROBE, STANDS_IN, operations, probe
from .._table import Reading, untrained
from .._zoo import ELECTRA

_EQUAL = 0.1  # operations within a tenth count as equal
SCORES: dict[str, Reading] = {"electra": probe(ELECTRA), "masked": probe(MASKED)}
COST: dict[str, Reading] = {"electra operations": operations(ELECTRA), "masked operations": operations(MASKED)}


def test(curves: Curves) -> list[Condition]:
    return [exceeds("ELECTRA over the masked LM", curves["electra"] - curves["masked"], 0.0, "share")]


def hinders(curves: Curves, verdict: Verdict) -> str | None:
    """Why operations forbid the verdict."""
    ratio = float(np.asarray(curves["electra operations"] / curves["masked operations"])[0, 0])
    if (ratio > 1 + _EQUAL and verdict != "fails") or (ratio < 1 - _EQUAL and verdict != "holds"):
        return (
            f"ELECTRA's training took {ratio:.2f} times the operations of the masked LM's, so their compute is not "
            "equal and the difference may be due to it"
        )
    return None


FINDING = Finding(
    id="objectives:O3",
    claim="Telling replaced tokens teaches an encoder more than filling in masked ones, at equal size, data and "
    f"compute. {STANDS_IN}",
    source=ELECTRA_PAPER,
    published="representations outperform BERT's given the same model size, data, and compute; the gains are "
    "particularly strong for small models",
    statistic=(
        f"{PROBE}: ELECTRA's discriminator lies above the masked LM. Operations are counted, and where they differ by "
        "over a tenth in favour of the verdict, there is none. Two sizes take two studies"
    ),
    reads=SCORES | COST,
    test=test,
    controls=(
        seeds_alone(SCORES | COST, "electra", "masked"),
        Control(name="untrained models", reads=untrained(SCORES) | COST),
    ),
    learned=(ELECTRA, MASKED),
    hinders=hinders,
)
