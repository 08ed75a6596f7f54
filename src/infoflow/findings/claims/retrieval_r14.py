"""retrieval:R-14. Retrieval that collapses.

The rule is ours: a run has collapsed where passages help by less than `UTILITY` nats and fewer than `HIT` of the first
passages are right. It is asked of each run, and runs are counted: three that all collapse are a share of .44 at least,
three of which none does one of .56 at most (Wilson's intervals), so that "none with a warm start" takes 35 runs. Runs
that have not learned count: they are what is asked for. Untrained models are no control here: before training a
retriever that was not warmed up finds next to nothing, and one that was finds a quarter, so they would always show
the claim. Rows that it needs: in retrieval_scores the metric utility (in nats, of the mean passage, over facts).
"""

from functools import partial

import numpy as np

from infoflow.results import Spec

from .._chance import seeds_alone
from .._condition import SHARE, Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._retrieval import found, told
from .._sources import REALM
from .._table import Function, Reading, SeedRows
from .._zoo import COLD, RETRIEVE_LEARNED

UTILITY, HIT, SOME = 0.1, 0.1, 0.1


def collapsed(objective: Spec) -> Reading:
    """Whether a run has collapsed, 1 or 0, (1 + R, 1)."""
    utility, hit = told(objective, "utility"), found(objective)
    function = partial(_collapsed, utility=utility.function, hit=hit.function)
    return Reading((*utility.tables, *hit.tables), function)


def _collapsed(helped: SeedRows, right: SeedRows, utility: Function, hit: Function) -> np.ndarray | None:
    of_utility, of_hit = utility(helped), hit(right)
    if of_utility is None or of_hit is None:
        return None
    common = min(len(of_utility), len(of_hit))
    return ((of_utility[:common] < UTILITY) & (of_hit[:common] < HIT)).astype(float)


READS: dict[str, Reading] = {"cold": collapsed(COLD), "warm": collapsed(RETRIEVE_LEARNED)}


def test(curves: Curves) -> list[Condition]:
    cold, warm = curves["cold"], curves["warm"]
    share = {"unit": "share of runs", "bounds": SHARE, "of": 1}
    return [
        exceeds("share of runs without a warm start that collapse", cold, SOME, **share),
        stays_below("share with a warm start", warm, SOME, alone=False, **share),
    ]


FINDING = Finding(
    id="retrieval:R-14",
    claim="Without a warm start retrieval may collapse, and the reader learns to ignore it.",
    source=REALM,
    published="why REALM starts with the inverse cloze task (section 3.4); seen by RAG on some tasks (appendix H)",
    statistic=f"share of the runs whose retrieval utility is below {UTILITY} nats and whose first passage is right in "
    f"less than {HIT}, counted run by run: above {SOME} without, below {SOME} with a warm start (our rule)",
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "cold", "warm"),
        Control(name="both with a warm start", reads=READS | {"cold": READS["warm"]}, decisive=False),
    ),
    learned=(),
)
