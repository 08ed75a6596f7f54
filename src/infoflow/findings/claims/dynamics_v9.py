"""dynamics:V9. Attention shares of the causal LM by layer."""

import numpy as np

from .._chance import layers_in_any_order
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import ATTENTION, COMPONENTS, halves_agree, profile, total_of
from .._model_group import CAUSAL, MASKED
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading, baselines

READS: dict[str, Reading] = {"causal": profile(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    attention = total_of(curves["causal"], ATTENTION)
    middle = attention[:, 1:-1].sum(axis=1) / (attention.shape[1] - 2)  # NaN where there are but two layers
    return [
        exceeds(
            "mean share of attention in the layers between, less that of the first and of the last",
            np.stack([middle - attention[:, 0], middle - attention[:, -1]], axis=1),
            0.0,
            "share",
            ["first layer", "last layer"],
        )
    ]


FINDING = Finding(
    id="dynamics:V9",
    claim="In a causal LM the attention of the middle layers contributes more than that of the first and the last.",
    source=PARAMETER_CONTRIBUTIONS,
    published="the attention of middle layers contributes more, read as fine syntax learned there (slides; no number)",
    statistic="share of query, key, value and output: the mean of the layers between exceeds the first and the last "
    "layer",
    reads=READS,
    test=test,
    controls=(
        layers_in_any_order(READS, numbers=len(COMPONENTS)),
        # The same share for every layer.
        Control(name="the same allocation for every parameter", reads=baselines(READS), decisive=False),
        Control(
            name="masked LM",
            reads={"causal": profile(MASKED)},
            decisive=False,
        ),
    ),
    learned=(CAUSAL,),
    reliable=halves_agree((CAUSAL,)),
)
