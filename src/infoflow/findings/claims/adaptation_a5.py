"""adaptation:A-5. Perplexity on domain text, and end tasks.

Recalled and not read: the source's figure of perplexities beside its tables of scores. The threshold is ours. Where
scores do not even order the strategies as they do under other seeds of tuning, nothing orders them, and the check stays
open.
"""

from .._adaptation import order_of_halves, order_of_strategies
from .._condition import CORRELATION, Condition, stays_below
from .._finding import Control, Curves, Finding
from .._model_group import MASKED
from .._sources import LEGAL_BERT_PAPER
from .._table import Reading

MOST = 0.9
READS: dict[str, Reading] = {"order": order_of_strategies(MASKED)}


def test(curves: Curves) -> list[Condition]:
    name = "rank correlation over strategies of end-task score with how well domain text is predicted"
    return [stays_below(name, curves["order"], MOST, "", bounds=CORRELATION)]


FINDING = Finding(
    id="adaptation:A-5",
    claim="Lower perplexity on the domain's text does not order the end tasks.",
    source=LEGAL_BERT_PAPER,
    published="the variants of lowest perplexity are not those of the best end-task scores (recalled, not read)",
    statistic="Spearman's correlation, over the model as it is, continued and from scratch, of the mean score over "
    f"tasks with the negative loss per word of domain text: below {MOST} (our threshold)",
    reads=READS,
    test=test,
    controls=(
        Control(
            name="scores under other seeds of tuning in place of the loss", reads={"order": order_of_halves(MASKED)}
        ),
    ),
    learned=(MASKED,),
)
