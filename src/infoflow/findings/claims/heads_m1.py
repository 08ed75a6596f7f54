"""heads:M1. Self-attention heads of the translation encoder, each ablated alone."""

from .._ablated_heads import MATTERS, HeadChanges, MatteringShare, RemovalCurve
from .._condition import SHARE, Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import SIXTEEN_HEADS

TOGETHER = 0.05  # nats per token


def _reads(trained: bool = True) -> dict[str, Reading]:
    changes = HeadChanges(objective="translation", stack="encoder", kind="self", trained=trained)
    curve = RemovalCurve(objective="translation", order="random", kind="encoder-self", trained=trained)
    return {"share": MatteringShare(changes=changes), "together": curve}


READS = _reads()
KEPT_ALONE = HeadChanges(objective="translation", stack="decoder", kind="cross", removed="others")


def test(curves: Curves) -> list[Condition]:
    """Where nothing that attention does matters, no single head does: together they must."""
    return [
        Condition(
            name=f"share of ablations that change the loss by more than {MATTERS} nats per token",
            values=curves["share"],
            labels=["all heads"],
            threshold=0.5,
            unit="share of heads",
            bounds=SHARE,
            side="below",
            alone=False,
        ),
        Condition(
            name="rise of the loss with 80 % of these heads removed, in random order",
            values=curves["together"][:, -1:] - curves["together"][:, :1],
            labels=["80 %"],
            threshold=TOGETHER,
            unit="nats per token",
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
        Control(name="untrained model", reads=_reads(trained=False)),
        Control(
            name="all but one cross-attention head of a layer removed",
            reads={**READS, "share": MatteringShare(changes=KEPT_ALONE)},
            decisive=False,
        ),
    ),
    learned=("translation",),
    minimum_seeds=1,
)
