"""adaptation:A-12. Whether tasks need the same heads.

The source's numbers, those of heads:M5, are of two data sets of one task. The threshold is ours. What a head is worth
under another pretraining seed is no control here: heads of two seeds have nothing but their numbers in common, which is
what heads in random order say.
"""

from .._adaptation import agreement, chance_agreement
from .._condition import CORRELATION, Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import SIXTEEN_HEADS
from .._table import Reading, untrained

LEAST = 0.3
READS: dict[str, Reading] = {"agreement": agreement(MASKED)}


def test(curves: Curves) -> list[Condition]:
    name = "rank correlation between tasks of what heads are worth"
    return [exceeds(name, curves["agreement"], LEAST, "", bounds=CORRELATION, published=0.68)]


FINDING = Finding(
    id="adaptation:A-12",
    claim="Heads that matter for one task matter for others.",
    source=SIXTEEN_HEADS,
    published="Pearson's r .56 (WMT, news and TED talks), .68 (BERT, matched and mismatched MNLI)",
    statistic="rise of a task's loss without a head, of models tuned in full: Spearman's correlation over "
    f"self-attention heads between two tasks, mean over pairs, above {LEAST} (our threshold)",
    reads=READS,
    test=test,
    controls=(
        Control(name="heads in random order (reached by 5 % of orders)", reads={"agreement": chance_agreement(MASKED)}),
        Control(name="untrained model, tuned", reads=untrained(READS)),
        Control(
            name="worth for the pretraining objective, the same for all tasks",
            reads={"agreement": agreement(MASKED, "cost_before")},
            decisive=False,
        ),
    ),
    learned=(MASKED,),
    minimum_seeds=1,
)
