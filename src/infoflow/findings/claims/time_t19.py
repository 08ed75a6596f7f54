"""time:T19. Warm-up and the stages of learning.

Unverified: by what factor the warm-up of the published models grew. The factor of 4 and both limits are ours.
"""

import numpy as np

from infoflow.over_training import CHECKPOINT_STEPS

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._sources import NGRAM_STAGES
from .._table import Reading
from .._warmup import FACTOR, unigram_stage

READS: dict[str, Reading] = {"grown": unigram_stage(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    updates, rates = (curves["grown"][:, [place]] for place in range(2))
    step = float(np.nanmax(curves["grown"][:, 2]))
    limit, what = float(np.log2(FACTOR)), "to the minimum of KL(Q1||P), with four times the warm-up"
    return [
        exceeds(f"updates {what}", updates, limit, "doublings", step=CHECKPOINT_STEPS["updates"] * step),
        # Two trainings with the same stages meet it too.
        stays_below(
            f"sum of learning rates {what}",
            rates,
            limit,
            "doublings",
            alone=False,
            step=CHECKPOINT_STEPS["rates"] * step,
        ),
    ]


FINDING = Finding(
    id="time:T19",
    claim=(
        "Stages follow the learning rate: with four times the warm-up, the minimum of the divergence from "
        "unigrams comes later, at the same sum of learning rates."
    ),
    source=NGRAM_STAGES,
    published=(
        "14m: minima at 256 and 1,000 updates, with a longer warm-up at 1,000 and 2,000 (published data; by "
        "what factor the warm-up grew is unverified)"
    ),
    statistic=(
        "two studies with the same seeds and data, one with four times the warm-up: the divergence from unigrams is "
        "least 1.5 times as many updates later, or more, and at less than 1.5 times the sum of learning rates "
        "(limits ours; a sum that decided alone would give 2 and 1)"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="the next seed with the same warm-up, later or earlier", reads={"grown": unigram_stage(CAUSAL, "seed")}
        ),
    ),
    learned=(CAUSAL,),
)
