"""retrieval:R-15. The subject's stored fact beside a document.

Judged on passages about two entities alone: where a passage is about one, its reader need not look at the subject at
all. The source's models were given and never trained with documents. The thresholds are ours; where restoring the
subject gives back less than `NOTHING` without a document, no fact is stored there that a document could put aside.
"""

from .._condition import Condition, exceeds, short, stays_below
from .._finding import Control, Curves, Finding
from .._retrieval import lost, traced
from .._sources import RICH_PARAMETERS
from .._table import Reading, baselines
from .._zoo import GOLD_PAIRS

RATIO, TIMES, NOTHING = 0.5, 3, 0.05
_LOST: dict[str, Reading] = {what: lost(GOLD_PAIRS, f"mask→{what}") for what in ("object", "subject")}
READS: dict[str, Reading] = {"traced": traced(GOLD_PAIRS), **_LOST}


def test(curves: Curves) -> list[Condition]:
    without, with_it = curves["traced"][:, :1], curves["traced"][:, 1:]
    more = curves["object"] - TIMES * curves["subject"]
    return [
        stays_below(
            "effect of the subject's last token with a document, over that without",
            with_it / without,
            RATIO,
            "",
            published=0.19,
            alone=False,
        ),
        exceeds(
            f"answers lost without a view of the object, less {TIMES} times those without the subject",
            more,
            0.0,
            "share",
        ),
    ]


def hinders(curves: Curves, verdict: str) -> str | None:
    effect = curves["traced"][0, 0]
    if effect >= NOTHING:
        return None
    return (
        f"without a document, restoring the subject's last token gives back a probability of {short(effect)}, below "
        f"{NOTHING}: no stored fact is used that a document could replace"
    )


FINDING = Finding(
    id="retrieval:R-15",
    claim="With a document, the fact stored at the subject is hardly used.",
    source=RICH_PARAMETERS,
    published="average indirect effect at the subject's last token .2 → .0375; without attention from the last token "
    "to the subject below 5 % are lost, without that to the attribute 20–25 %",
    statistic=f"passages about two entities: largest effect of restoring the subject's last token below {RATIO} "
    f"of that without a document; forbidding mask→object costs over {TIMES} times as much as mask→subject (our "
    "thresholds)",
    reads=READS,
    test=test,
    controls=(
        Control(name="as many random edges forbidden", reads={"traced": traced(GOLD_PAIRS), **baselines(_LOST)}),
    ),
    learned=(GOLD_PAIRS,),
    hinders=hinders,
    minimum_seeds=1,
)
