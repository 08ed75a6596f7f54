"""dynamics:V3. Not tested by one study: it has one corpus."""

from .._allocation import NotRecorded
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import PARAMETER_CONTRIBUTIONS

READS: dict[str, Reading] = {
    "corpora": NotRecorded(
        needs="it needs recordings on several corpora or corpus sizes, and a study has one: run one study for each and "
        "compare their tables (allocation_groups) with infoflow.dynamics.compare_trainings"
    )
}


def test(curves: Curves) -> list[Condition]:
    gap = curves["corpora"]
    labels = [str(pair) for pair in range(gap.shape[1])]
    return [
        Condition(name="similarity within objectives less between", values=gap, labels=labels, threshold=0.0, unit="ρ")
    ]


FINDING = Finding(
    id="dynamics:V3",
    claim="The dynamics depend on the objective, not on the size or the domain of the data.",
    source=PARAMETER_CONTRIBUTIONS,
    published="Europarl against WMT, and 700 thousand, 2 and 5 million sentence pairs (slides), look alike",
    statistic=(
        "not tested on one study: similarity of share profiles within objectives across corpora, less that between "
        "objectives"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="objectives shuffled among the runs", reads=READS),),
    learned=("causal-lm", "masked-lm", "translation"),
)
