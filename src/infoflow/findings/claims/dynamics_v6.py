"""dynamics:V6. Components as sums over layers; intervals over seeds."""

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._loss_change import halves_agree, hurting
from .._model_group import CAUSAL, MASKED, TRANSLATION
from .._sources import PARAMETER_CONTRIBUTIONS
from .._table import Reading

LOOKING, OTHERS = ("key", "query"), ("value", "output", "mlp_in", "mlp_out")
READS: dict[str, Reading] = {
    "hurt": hurting(MASKED, (*LOOKING, *OTHERS)),
}


def test(curves: Curves) -> list[Condition]:
    hurt = curves["hurt"]
    looking, others = hurt[:, :2], hurt[:, 2:]
    return [
        exceeds(
            "steps in which keys or queries hurt, less those of another component",
            (looking[:, :, None] - others[:, None, :]).reshape(len(hurt), -1),
            0.0,
            "share of steps",
            [f"{one} and {other}" for one in LOOKING for other in OTHERS],
        ),
        exceeds("steps in which keys or queries hurt", np.asarray(looking), 0.01, "share of steps", LOOKING),
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
            reads={"hurt": hurting(CAUSAL, (*LOOKING, *OTHERS))},
        ),
        Control(
            name="translation encoder",
            reads={"hurt": hurting(TRANSLATION, (*LOOKING, *OTHERS))},
            decisive=False,
        ),
    ),
    learned=(MASKED,),
    reliable=halves_agree((MASKED,)),
)
