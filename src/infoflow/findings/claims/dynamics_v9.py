"""dynamics:V9. Attention shares of the causal LM by layer."""

import numpy as np

from .._allocation import ATTENTION, Profile, total_of
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading, baselines
from .._sources import PARAMETER_CONTRIBUTIONS

READS: dict[str, Reading] = {"causal": Profile(objective="causal-lm", stack="decoder")}


def test(curves: Curves) -> list[Condition]:
    attention = total_of(curves["causal"], ATTENTION)
    middle = attention[:, 1:-1].sum(axis=1) / (attention.shape[1] - 2)  # NaN where there are but two layers
    return [
        Condition(
            name="mean share of attention in the layers between, less that of the first and of the last",
            values=np.stack([middle - attention[:, 0], middle - attention[:, -1]], axis=1),
            labels=["first layer", "last layer"],
            threshold=0.0,
            unit="share",
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
        Control(name="the same allocation for every parameter", reads=baselines(READS)),
        Control(
            name="masked LM",
            reads={"causal": Profile(objective="masked-lm", stack="encoder")},
            decisive=False,
        ),
    ),
    learned=("causal-lm",),
)
