"""dynamics:V6. Components as sums over layers; intervals over seeds."""

import numpy as np

from .._allocation import BlockHurts
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import PARAMETER_CONTRIBUTIONS

LOOKING, OTHERS = ("key", "query"), ("value", "output", "mlp_in", "mlp_out")
READS: dict[str, Reading] = {
    "hurt": BlockHurts(objective="masked-lm", stack="encoder", components=(*LOOKING, *OTHERS)),
}


def test(curves: Curves) -> list[Condition]:
    hurt = curves["hurt"]
    looking, others = hurt[:, :2], hurt[:, 2:]
    return [
        Condition(
            name="steps in which keys or queries hurt, less those of another component",
            values=(looking[:, :, None] - others[:, None, :]).reshape(len(hurt), -1),
            labels=[f"{one} and {other}" for one in LOOKING for other in OTHERS],
            threshold=0.0,
            unit="share of steps",
        ),
        Condition(
            name="steps in which keys or queries hurt",
            values=np.asarray(looking),
            labels=LOOKING,
            threshold=0.01,
            unit="share of steps",
        ),
    ]


FINDING = Finding(
    id="dynamics:V6",
    claim="In masked language modelling keys and queries raise the loss in many more steps than anything else.",
    source=PARAMETER_CONTRIBUTIONS,
    published=(
        "steps of 125,000 in which a component raised the loss (slides): masked LM key 1565, query 2055, value 24, "
        "output "
        "6, W1 0, W2 0; causal LM 24 to 29 each; translation key and query 64, value 130, output 113, W1 59, W2 131"
    ),
    statistic=(
        "keys and queries, each as a sum over layers, hurt in more steps than value, output, W1 and W2 each, and in "
        "over 1 "
        "% of the steps"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(
            name="causal LM in place of the masked LM",
            reads={"hurt": BlockHurts(objective="causal-lm", stack="decoder", components=(*LOOKING, *OTHERS))},
        ),
        Control(
            name="translation encoder",
            reads={"hurt": BlockHurts(objective="translation", stack="encoder", components=(*LOOKING, *OTHERS))},
            decisive=False,
        ),
    ),
    learned=("masked-lm",),
)
