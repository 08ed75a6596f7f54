"""Claim about heads over training: heads:M7."""

from infoflow.findings._finding import Condition, Control, Curves, claim
from infoflow.findings._model_group import TRANSLATION
from infoflow.findings._sources import SIXTEEN_HEADS
from infoflow.findings._table import Reading

from ._over_time import prunable

_M7_READS: dict[str, Reading] = {"prunable": prunable("importance")}


@claim(
    "heads:M7",
    "That many heads can go shows early in training.",
    source=SIXTEEN_HEADS,
    published="IWSLT: from about epoch 10 on, 40 % of the heads can be removed while keeping 85 to 90 % of the BLEU; "
    "in epochs 1 and 2, all heads cost the same",
    statistic="largest share of heads, in order of importance, that can be removed while keeping 90 % of the model's "
    "gain over unigrams: over .1 higher at the middle checkpoint than at the first with a gain, and at least "
    "three quarters of that at the last checkpoint",
    reads=_M7_READS,
    controls=(Control(name="random order", reads={"prunable": prunable("random")}),),
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
def m7(curves: Curves) -> list[Condition]:
    """Share of removable heads at each checkpoint; only a study that keeps checkpoints can test it."""
    share = curves["prunable"]
    middle = share.shape[1] // 2
    return [
        Condition(
            name="rise of the prunable share from the first checkpoint to the middle one",
            values=share[:, [middle]] - share[:, :1],
            labels=["middle"],
            threshold=0.1,
            unit="share of heads",
        ),
        Condition(
            name="share prunable at the middle checkpoint less three quarters of the last one's",
            values=share[:, [middle]] - 0.75 * share[:, -1:],
            labels=["middle"],
            threshold=0.0,
            unit="share of heads",
            alone=False,  # a constant share has its last value early: it counts with the rise
        ),
    ]
