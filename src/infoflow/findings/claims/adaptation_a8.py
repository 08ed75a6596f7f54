"""adaptation:A-8. Ways to corrupt a text.

The source's numbers are recalled and not read. The largest difference of several noisy means is biased upwards: the
check errs against the claim. The control is an objective of another family, which the source and A-7 find to differ:
tasks that do not tell it apart from the variants cannot tell that these are alike.
"""

import numpy as np

from .._adaptation import means, tuned
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._sources import T5_PAPER
from .._table import Reading, Table
from .._zoo import CAUSAL, DENOISE_FULL, DENOISE_MASK, DROP_TOKENS, REPLACE_SPANS

VARIANTS = (DENOISE_FULL, DENOISE_MASK, REPLACE_SPANS, DROP_TOKENS)
_FROM_SCRATCH = tuned(DENOISE_FULL, trained=False)


def _reads(*variants: Table) -> dict[str, Reading]:
    return {"variants and from scratch": means(*variants, _FROM_SCRATCH)}


READS = _reads(*map(tuned, VARIANTS))


def test(curves: Curves) -> list[Condition]:
    variants, scratch = np.split(curves["variants and from scratch"], [len(VARIANTS)], axis=1)
    gain = variants.mean(axis=1, keepdims=True) - scratch
    apart = np.ptp(variants, axis=1)[:, None]
    name = "half of what the variants gain over no pretraining, less what the best and the worst differ by"
    return [exceeds(name, gain / 2 - apart, 0.0, "score", published=0.064)]


FINDING = Finding(
    id="adaptation:A-8",
    claim="Variants of denoising differ little on end tasks.",
    source=T5_PAPER,
    published="GLUE: 82.96 (as BERT), 82.32 (as MASS), 83.28 (spans replaced), 84.44 (tokens dropped), 66.22 without "
    "pretraining (table 5, and table 1; recalled, not read)",
    statistic="main metric on test, tuned in full, mean over tasks: the best and the worst of "
    f"{', '.join(one.label for one in VARIANTS)} differ by less than half of what they gain over an untrained model",
    reads=READS,
    test=test,
    controls=(Control(name="causal LM in place of one variant", reads=_reads(*map(tuned, (*VARIANTS[:-1], CAUSAL)))),),
    learned=VARIANTS,
)
