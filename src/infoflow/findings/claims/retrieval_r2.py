"""retrieval:R-2. What weights store beside passages.

The source trains with paraphrases as ideal passages. The thresholds are ours, and so is the reading after a short
training without passages: a model that is never asked without one may say less than it holds. Where all models hold
nearly all bits of a class, the next rarer one is compared.
"""

from infoflow.results import Spec

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import bits_of_classes, full, stored
from .._sources import MORE_ROOM
from .._table import Reading, untrained
from .._zoo import CLOSED_BOOK, NULL_SHARE, READ_GOLD, READ_RANDOM, RETRIEVE_LEARNED

LEAST = 0.5
READERS = {"right passage": READ_GOLD, "learned retriever": RETRIEVE_LEARNED}
_CLOSED = {"closed": bits_of_classes(CLOSED_BOOK), "closed elicited": bits_of_classes(CLOSED_BOOK, "elicited")}


def _reads(readers: dict[str, Spec]) -> dict[str, Reading]:
    raw = {name: bits_of_classes(reader) for name, reader in readers.items()}
    elicited = {f"{name} elicited": bits_of_classes(reader, "elicited") for name, reader in readers.items()}
    return _CLOSED | raw | elicited | {"random": bits_of_classes(READ_RANDOM)}


READS = _reads(READERS)


def test(curves: Curves) -> list[Condition]:
    place = stored(curves["closed"], [curves[name] for name in READERS])
    at = slice(2, 3) if place is None else slice(place, place + 1)
    conditions = []
    for name in READERS:
        raw = curves["closed"][:, at] - curves[name][:, at]
        elicited = curves["closed elicited"][:, at] - curves[f"{name} elicited"][:, at]
        useless = curves["random"][:, at] - curves[name][:, at]
        conditions += [
            exceeds(f"bits of the closed-book reader less those with the {name}", raw, LEAST, "bits", alone=False),
            exceeds(f"the same when both are elicited ({name})", elicited, 0.0, "bits", alone=False),
            exceeds(f"bits of the reader of random passages less those with the {name}", useless, 0.0, "bits"),
        ]
    return conditions


FINDING = Finding(
    id="retrieval:R-2",
    claim="Trained with retrieval, weights hold less knowledge about the world.",
    source=MORE_ROOM,
    published="retrieval-augmented models save substantially less world knowledge in their weights (no number)",
    statistic=f"stored bits of a frequent trained fact without a passage: closed-book above both readers by {LEAST} as "
    "they are, and after a short training without passages; and more than reading useless passages explains (our "
    "thresholds)",
    reads=READS,
    test=test,
    controls=(
        Control(name="reader of random passages", reads=_reads(dict.fromkeys(READERS, READ_RANDOM))),
        Control(name="untrained models", reads=untrained(READS)),
        Control(
            name="as many readings without a passage and no others",
            reads=_reads(dict.fromkeys(READERS, NULL_SHARE)),
            decisive=False,
        ),
    ),
    learned=(CLOSED_BOOK, READ_GOLD, READ_RANDOM, RETRIEVE_LEARNED),
    hinders=full("closed", *READERS),
)
