"""objectives:O4. ELECTRA's loss on all tokens against its loss on the generator's positions alone.

The plan's variant is named `electra+selected`, with `selected_only = true`.
"""

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import ELECTRA_PAPER
from .._stand_ins import PROBE, STANDS_IN, probe
from .._table import Reading, untrained
from .._zoo import ELECTRA, ELECTRA_SELECTED

READS: dict[str, Reading] = {"electra": probe(ELECTRA), "selected": probe(ELECTRA_SELECTED), "masked": probe(MASKED)}


def test(curves: Curves) -> list[Condition]:
    gain, lost = curves["electra"] - curves["masked"], curves["electra"] - curves["selected"]
    return [
        exceeds("ELECTRA over the masked LM", gain, 0.0, "share"),
        exceeds("loss by selected tokens alone, less half of that gain", lost - gain / 2, 0.0, "share"),
    ]


FINDING = Finding(
    id="objectives:O4",
    claim="ELECTRA's advantage comes from a loss on all tokens: on selected ones alone it loses most of the advantage. "
    f"{STANDS_IN}",
    source=ELECTRA_PAPER,
    published="the gain is due to the loss being defined over all input tokens rather than just the masked subset",
    statistic=(
        f"{PROBE}: ELECTRA lies above the masked LM, and electra+selected (selected_only = true) lies below ELECTRA by "
        "more than half of that"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "electra", "selected", "masked"),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(ELECTRA, MASKED),
)
