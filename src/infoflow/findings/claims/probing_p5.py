"""probing:P-5. The layer in which similarity of texts is judged best."""

from .._condition import CORRELATION, Condition, Verdict, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._shapes import layer_names
from .._sources import BERT_SCORE
from .._table import Reading, Table, untrained

FEWEST = 4


def _agreement(labels: str) -> Reading:
    """Correlation of F with the scores of people over layers 0..L."""
    return Table("bert_score", MASKED).where(score="f", labels=labels).by(first=0)


READS: dict[str, Reading] = {"correlation": _agreement("human")}


def test(curves: Curves) -> list[Condition]:
    found = curves["correlation"]
    return [
        exceeds(
            "correlation with people of a layer below the top, less that of the top",
            found[:, :-1] - found[:, -1:],
            0.0,
            "correlation",
            layer_names(found.shape[1] - 1, 0),
            over="any",
            bounds=(2 * CORRELATION[0], 2 * CORRELATION[1]),
        )
    ]


def too_shallow(curves: Curves, verdict: Verdict) -> str | None:
    """The claim is about models of four layers or more."""
    layers = curves["correlation"].shape[1] - 1
    return f"it is about encoders of {FEWEST} layers or more, and this one has {layers}" if layers < FEWEST else None


FINDING = Finding(
    id="probing:P-5",
    claim="BERTScore agrees with people best in a layer below the top.",
    source=BERT_SCORE,
    published="best layers: BERT-base 9 of 12, BERT-large 18 of 24, RoBERTa-large 17 of 24; but BART-base 6 of 6",
    statistic="Pearson's correlation of BERTScore (F) with human scores of the same pairs: some layer below the top "
    f"above the top; encoders alone, of {FEWEST} layers or more",
    reads=READS,
    test=test,
    controls=(
        Control(name="permuted human scores", reads={"correlation": _agreement("permuted")}),
        Control(name="untrained model", reads=untrained(READS), decisive=False),
    ),
    learned=(MASKED,),
    hinders=too_shallow,
    given=Given(tasks=("encoder", "masked-lm")),
    minimum_seeds=1,
)
