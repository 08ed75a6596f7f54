"""Claims about heads: M1, M2, M3, M4, M5, M6."""

import numpy as np

from infoflow.heads import ABLATION_TRANSFER

from .._finding import SHARE, Condition, Control, Curves, claim, exceeds, stays_below
from .._head_numbers import CHOSEN, MATTERS, SHARES, ablations, best_head_left, mattering_share, removal_curve
from .._model_group import TRANSLATION
from .._sources import SIXTEEN_HEADS
from .._table import Reading, Table, baselines, one_number, untrained

TOGETHER = 0.05


_M1_READS: dict[str, Reading] = {
    "share": mattering_share(ablations("encoder", "self", "head")),
    "together": removal_curve("random", kind="encoder-self"),
}


KEPT_ALONE = ablations("decoder", "cross", "others")


@claim(
    "heads:M1",
    "Most heads of a translation encoder can be removed, one at a time, without a change that matters.",
    source=SIXTEEN_HEADS,
    published="8 of 96 encoder heads change BLEU (36.05) significantly when removed, 4 of them upwards",
    statistic=f"under half of the encoder's self-attention heads change the loss by more than {MATTERS} nats per "
    "predicted token (1 % of the perplexity) when ablated alone, while removing 80 % of them in random order raises "
    f"it by over {TOGETHER}; the table has each head's significance, corrected for the number of heads",
    reads=_M1_READS,
    controls=(
        Control("untrained model", untrained(_M1_READS)),
        Control(
            "all but one cross-attention head of a layer removed",
            {**_M1_READS, "share": mattering_share(KEPT_ALONE)},
            decisive=False,
        ),
    ),
    minimum_seeds=1,
)
def m1(curves: Curves) -> list[Condition]:
    """Require that all heads together matter, because no single head could matter if attention as a whole did not."""
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


ENOUGH = 0.05


_M2_READS: dict[str, Reading] = {
    "encoder": best_head_left("encoder", "self"),
    "decoder": best_head_left("decoder", "self"),
    "cross": best_head_left("decoder", "cross"),
}


@claim(
    "heads:M2",
    "One head is enough in most layers, but not in the late cross-attention.",
    source=SIXTEEN_HEADS,
    published="BLEU with the best single head: worst encoder layer −1.31, cross-attention layer 6 −13.56 and layer 5 "
    "−1.55, decoder self-attention none significant",
    statistic=f"keeping only the best head costs less than {ENOUGH} nats per predicted token in over half of the "
    f"layers, and costs over {MATTERS} more in the last cross-attention than in any self-attention; heads are {CHOSEN}",
    reads=_M2_READS,
    controls=(
        Control("untrained model", untrained(_M2_READS)),
        Control("a random head left", baselines(_M2_READS), decisive=False),
    ),
    minimum_seeds=1,
)
def m2(curves: Curves) -> list[Condition]:
    others = np.concatenate([curves["encoder"], curves["decoder"]], axis=1)
    layers = np.concatenate([others, curves["cross"]], axis=1)
    return [
        exceeds(
            f"share of layers that lose less than {ENOUGH} nats per token with one head left",
            (layers < ENOUGH).mean(axis=1, keepdims=True),
            0.5,
            "share of layers",
            bounds=SHARE,
            alone=False,  # an untrained model loses nothing; the other condition needs heads that cost something
        ),
        exceeds(
            "loss of the last cross-attention with one head left, minus that of the worst self-attention",
            curves["cross"][:, -1:] - others.max(axis=1, keepdims=True),
            MATTERS,
            "nats per token",
        ),
    ]


CHEAP = 0.05


_M3_READS: dict[str, Reading] = {"importance": removal_curve("importance"), "random": removal_curve("random")}


@claim(
    "heads:M3",
    "A large share of the heads can be removed without training, if the least important go first.",
    source=SIXTEEN_HEADS,
    published="about 20 % (WMT), 40 % (MNLI), 50 % (CoLA, MRPC) and 60 % (SST-2) can go without a significant cost",
    statistic=f"removing 20 % of all heads costs less than {CHEAP} nats per predicted token, and at 20, 40 and 60 % "
    f"the order of importance costs less than random orders, by over {MATTERS}",
    reads=_M3_READS,
    controls=(
        Control(
            "one random order in place of the order of importance",
            {**_M3_READS, "importance": removal_curve("random", draw=0)},
        ),
        Control("untrained model", untrained(_M3_READS)),
    ),
    minimum_seeds=1,
)
def m3(curves: Curves) -> list[Condition]:
    importance, random = curves["importance"], curves["random"]
    return [
        stays_below(
            "rise of the loss with a fifth of the heads removed",
            importance[:, 1:2] - importance[:, :1],
            CHEAP,
            "nats per token",
            alone=False,  # an untrained model loses nothing; the other condition needs heads that cost something
        ),
        exceeds(
            "loss in random order minus that in order of importance",
            (random - importance)[:, 1:4],
            MATTERS,
            "nats per token",
            [f"{share:.0%}" for share in SHARES[1:4]],
        ),
    ]


KINDS = {"encoder": "encoder-self", "decoder": "decoder-self", "cross": "decoder-cross"}


_M4_READS: dict[str, Reading] = {name: removal_curve("importance", kind) for name, kind in KINDS.items()}


RANDOM: dict[str, Reading] = {name: removal_curve("random", kind) for name, kind in KINDS.items()}


@claim(
    "heads:M4",
    "Cross-attention needs its heads more than the other kinds of attention do.",
    source=SIXTEEN_HEADS,
    published="beyond 60 % of its heads cross-attention collapses; the other kinds keep about 30 BLEU with 20 % left",
    statistic="with 60 and 80 % of a kind's heads removed in order of importance, the loss is higher for "
    f"cross-attention than for the encoder's and the decoder's self-attention, by over {MATTERS} nats per token",
    reads=_M4_READS,
    controls=(Control("untrained model", untrained(_M4_READS)), Control("random orders", RANDOM, decisive=False)),
    minimum_seeds=1,
)
def m4(curves: Curves) -> list[Condition]:
    gaps = [curves["cross"][:, 3:] - curves[name][:, 3:] for name in ("encoder", "decoder")]
    return [
        exceeds(
            "loss without cross-attention heads minus that without as many of another kind",
            np.concatenate(gaps, axis=1),
            MATTERS,
            "nats per token",
            [f"{share:.0%}, {name} self-attention" for name in ("encoder", "decoder") for share in SHARES[3:]],
        )
    ]


TRANSFER = Table(ABLATION_TRANSFER.name, TRANSLATION).where(kind="all")


_M5_READS: dict[str, Reading] = {"correlation": TRANSFER.reduce(one_number)}


@claim(
    "heads:M5",
    "Heads that matter on one domain matter on another.",
    source=SIXTEEN_HEADS,
    published="Pearson's r .56 (WMT, news and TED talks), .68 (BERT, matched and mismatched MNLI)",
    statistic="the loss changes from ablating each head on two corpora have a correlation over heads above .3 (needs a "
    "plan whose [corpus] has a transfer_name, or heads.ablation_transfer)",
    reads=_M5_READS,
    controls=(Control("shuffled heads", baselines(_M5_READS)),),
    minimum_seeds=1,
)
def m5(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "correlation of the effects of ablation between two domains",
            curves["correlation"],
            0.3,
            "Pearson's r",
            published=0.56,
        )
    ]


_M6_READS: dict[str, Reading] = {"importance": removal_curve("importance"), "oracle": removal_curve("oracle")}


@claim(
    "heads:M6",
    "Gradient importance ranks heads for removal better than the cost of ablating each head alone does.",
    source=SIXTEEN_HEADS,
    published="the curve by importance lies above the one by single ablations; no number is given",
    statistic="mean gap between the two curves of the loss over 20 to 80 % of all heads removed, above .01 nats per "
    "token",
    reads=_M6_READS,
    controls=(
        Control(
            "a random order in place of the order of importance",
            {**_M6_READS, "importance": removal_curve("random", draw=0)},
        ),
        Control("untrained model", untrained(_M6_READS)),
    ),
    minimum_seeds=1,
)
def m6(curves: Curves) -> list[Condition]:
    gap = (curves["oracle"] - curves["importance"])[:, 1:]
    return [
        exceeds(
            "mean loss over 20 to 80 % of the heads removed: in order of single ablations minus in order of importance",
            gap.mean(axis=1, keepdims=True),
            MATTERS,
            "nats per token",
        )
    ]
