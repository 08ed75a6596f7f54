"""adaptation:A-12. Whether tasks need the same heads.

The source's numbers, those of heads:M5, are of two data sets of one task. The threshold is ours. What a head is worth
under another pretraining seed is no control here: heads of two seeds have nothing but their numbers in common, which is
what heads in random order say.
"""

import numpy as np

from .._adaptation import agreement, agreement_with_pretraining, chance_agreement, most_agreement
from .._condition import CORRELATION, Condition, Verdict, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import SIXTEEN_HEADS
from .._table import Reading, untrained

LEAST, PUBLISHED = 0.3, 0.68
READS: dict[str, Reading] = {"agreement": agreement(MASKED), "most": most_agreement(MASKED)}


def test(curves: Curves) -> list[Condition]:
    name = "rank correlation between tasks of what heads are worth"
    return [exceeds(name, curves["agreement"], LEAST, "", bounds=CORRELATION, published=PUBLISHED)]


def hinders(curves: dict[str, np.ndarray], verdict: Verdict) -> str | None:
    most = float(curves["most"][0, 0])
    if verdict != "fails" or most * PUBLISHED >= LEAST:
        return None
    return (
        "what heads are worth for a task hardly agrees with itself over the task's own test examples: tasks that need "
        f"the same heads would agree by {most:.2f} at most, and those of the source by less than {LEAST}"
    )


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
            name="worth for pretraining in place of that for another task",
            reads={"agreement": agreement_with_pretraining(MASKED)},
            decisive=False,
        ),
    ),
    learned=(MASKED,),
    hinders=hinders,
    minimum_seeds=1,
)
