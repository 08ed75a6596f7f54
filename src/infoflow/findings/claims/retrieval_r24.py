"""retrieval:R-24. When the retriever does its part.

Ours, and reported rather than tested: the verdict goes by the sign. A retriever is frozen at first (by default for a
third of the updates), so windows before its first change are left out. Rows that it needs: in allocation_steps of the
arm retrieve-learned a component, or a stack, called retriever.
"""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._retrieval import part_by_window
from .._sources import OURS
from .._table import Reading
from .._zoo import RETRIEVE_LEARNED

READS: dict[str, Reading] = {"windows": part_by_window("retriever")}


def test(curves: Curves) -> list[Condition]:
    own, of_all = np.split(curves["windows"], 2, axis=1)
    third = own.shape[1] // 3
    first, last = (own[:, part].sum(1) / of_all[:, part].sum(1) for part in (slice(third), slice(-third, None)))
    name = "share of the loss change, first third of the time in which the retriever learns less last third"
    return [exceeds(name, (first - last)[:, None], 0.0, "share")]


FINDING = Finding(
    id="retrieval:R-24",
    claim="The retriever's share of the loss change comes early.",
    source=OURS,
    published="no published claim; what is measured is reported",
    statistic="share of the retriever in the loss change allocated to all parameters: first third of the windows, "
    "from its first change on, above the last third (our rule; reported)",
    reads=READS,
    test=test,
    controls=(Control(name="the reader's embeddings", reads={"windows": part_by_window("embeddings")}),),
    learned=(RETRIEVE_LEARNED,),
)
