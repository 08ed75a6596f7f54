"""Claims about the detection of translations that ignore their source: heads:D1 and D2."""

import numpy as np

from infoflow.findings._finding import Condition, Control, Curves, Finding, Given, claim, exceeds
from infoflow.findings._model_group import TRANSLATION
from infoflow.findings._sources import Source
from infoflow.findings._table import Reading, SeedRows, Table, one_number, untrained

from .measures import DETACHED_TRANSLATION, LOG_PROBABILITY, RANDOM, SOURCE_SHARE, SWAPPED, WORST

WORKINGS = Source(
    "Dale, Voita, Barrault and Costa-jussà 2023, Detecting and Mitigating Hallucinations in Machine Translation: "
    "Model Internal Workings Alone Do Well, Sentence Similarity Even Better, ACL (hallucinations of a trained system, "
    "found by annotators)",
    "abstract",
    ours=True,
)
DIFFERENCE = (-1.0, 1.0)


def _score(kind: str, score: str) -> Reading:
    table = Table(DETACHED_TRANSLATION.name, TRANSLATION, needs=("layer",)).where(kind=kind, score=score)
    return table.reduce(_top) if score == SOURCE_SHARE else table.reduce(one_number)


def _top(rows: SeedRows) -> np.ndarray:
    """The AUC after the last decoder layer, (1 + R, 1)."""
    return one_number(rows.at(rows.frame["layer"] == rows.frame["layer"].max()))


def _shares_win(number: int, kind: str, which: str, how: str) -> Finding:
    reads = {"share": _score(kind, SOURCE_SHARE), "log-probability": _score(kind, LOG_PROBABILITY)}

    @claim(
        f"heads:D{number}",
        f"The source's share is better than the model's own log-probability at showing which translations {which}.",
        source=WORKINGS,
        published="a low share of the source detects the most severe hallucinations twice as accurately as earlier "
        "methods",
        statistic=f"AUC of the source share after the last decoder layer (ALTI+) minus the AUC of the mean "
        f"log-probability, {how}: above 0; and the AUC of the share itself above .5",
        reads=reads,
        controls=(
            Control(name="untrained model", reads=untrained(reads)),
            Control(name="random score instead of the share", reads=reads | {"share": _score(kind, RANDOM)}),
        ),
        learned=(TRANSLATION,),
        given=Given(tasks=("seq2seq",)),
        minimum_seeds=1,
    )
    def test(curves: Curves) -> list[Condition]:
        """Compare the AUCs of two scores on the same translations."""
        beyond = curves["share"] - curves["log-probability"]
        return [
            exceeds("AUC of the source share beyond that of log-probability", beyond, 0.0, "AUC", bounds=DIFFERENCE),
            exceeds("AUC of the source share", curves["share"], 0.5, "AUC", bounds=(0.0, 1.0)),
        ]

    return test


D1 = _shares_win(1, SWAPPED, "belong to another source", "translations of swapped sources against true pairs")
D2 = _shares_win(2, WORST, "are the worst of its own", "the fifth with the lowest chrF against the others")
