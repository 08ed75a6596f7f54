"""heads:M1. Self-attention heads of the translation encoder, each ablated alone."""

from .._condition import SHARE, Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._head_numbers import MATTERS, ablations, mattering_share, removal_curve
from .._model_group import TRANSLATION
from .._sources import SIXTEEN_HEADS
from .._table import Reading, untrained

TOGETHER = 0.05  # nats per token


READS: dict[str, Reading] = {
    "share": mattering_share(ablations("encoder", "self", "head")),
    "together": removal_curve("random", kind="encoder-self"),
}
KEPT_ALONE = ablations("decoder", "cross", "others")


def test(curves: Curves) -> list[Condition]:
    """Where nothing that attention does matters, no single head does: together they must."""
    return [
        stays_below(
            f"share of ablations that change the loss by more than {MATTERS} nats per token",
            curves["share"][:, :1],
            0.5,
            "share of heads",
            bounds=SHARE,
            of=int(curves["share"][0, 1]),
            alone=False,
        ),
        exceeds(
            "rise of the loss with 80 % of these heads removed, in random order",
            curves["together"][:, -1:] - curves["together"][:, :1],
            TOGETHER,
            "nats per token",
        ),
    ]


FINDING = Finding(
    id="heads:M1",
    claim="Most heads of a translation encoder can be removed, one at a time, without a change that matters.",
    source=SIXTEEN_HEADS,
    published="8 of 96 encoder heads change BLEU (36.05) significantly when removed, 4 of them upwards",
    statistic=(
        f"share of the encoder's self-attention heads whose own ablation changes the loss by more than {MATTERS} nats "
        "per predicted token (1 % of the perplexity), below half; while removing 80 % of them in random order raises "
        f"it by over {TOGETHER}; significance of each head, corrected for their number, is in the table"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model", reads=untrained(READS)),
        Control(
            name="all but one cross-attention head of a layer removed",
            reads={**READS, "share": mattering_share(KEPT_ALONE)},
            decisive=False,
        ),
    ),
    learned=(TRANSLATION,),
    minimum_seeds=1,
)
