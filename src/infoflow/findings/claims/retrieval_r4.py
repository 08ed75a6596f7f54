"""retrieval:R-4. What the room in the weights is used for.

Rows that it needs: probe_trees and probe_scores of the arms on the language of worlds; in retrieval_scores the metric
loss, in nats per masked token, of the queries "language" without a passage. The threshold of a point is ours.
"""

from infoflow.results import Spec

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._probing import accuracy, trees
from .._retrieval import best_layer, told
from .._sources import MORE_ROOM
from .._table import Reading, untrained
from .._zoo import CLOSED_BOOK, READ_RANDOM, RETRIEVE_LEARNED

POINT = 0.01
TASKS = ("relations", "deprel", "parent", "upos")


def _reads(reader: Spec) -> dict[str, Reading]:
    sides = {"reader": reader, "closed": CLOSED_BOOK}
    found: dict[str, Reading] = {}
    for side, one in sides.items():
        found[f"{side} structure"] = best_layer(trees(one, "uuas"))
        found[f"{side} relations"] = best_layer(accuracy(one, TASKS))
        found[f"{side} loss"] = told(one, "loss", "language")
    return found


READS = _reads(RETRIEVE_LEARNED)


def test(curves: Curves) -> list[Condition]:
    probes = [
        exceeds(
            f"{name} of the reader with passages less those of the closed-book one, best layer",
            curves[f"reader {what}"] - curves[f"closed {what}"],
            POINT,
            "score",
        )
        for what, name in (("structure", "trees"), ("relations", "labels of words"))
    ]
    loss = curves["reader loss"] - curves["closed loss"]
    return [*probes, stays_below("loss on sentences of language, less that of the closed-book reader", loss, 0.0, "")]


FINDING = Finding(
    id="retrieval:R-4",
    claim="Capacity that retrieval frees goes to language: syntax inside a sentence gets better.",
    source=MORE_ROOM,
    published="better at local context and syntax, worse at global context (abstract; no number)",
    statistic=f"structural and label probes on generated grammar: with passages more than {POINT} above the "
    "closed-book reader (our threshold); loss on masked words of such sentences below its own",
    reads=READS,
    test=test,
    controls=(
        Control(name="reader of random passages", reads=_reads(READ_RANDOM)),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=(CLOSED_BOOK, READ_RANDOM, RETRIEVE_LEARNED),
)
