"""Claims about pruned models: heads:V1 to V5, and heads:H2 about training them further."""

from collections.abc import Sequence

import numpy as np

from infoflow.findings._finding import SHARE, Condition, Control, Curves, claim, exceeds, stays_below
from infoflow.findings._model_group import Absent
from infoflow.findings._sources import HEAVY_LIFTING, OURS
from infoflow.findings._table import Reading, SeedRows

from ._pruned_models import (
    CHEAP,
    ENCODER,
    RANDOM,
    alive_by_kind,
    paired_difference,
    pruned_less_scratch,
    pruning_quality,
    removable_share,
    side_by_side,
    surviving_roles,
    undecided_gates,
)


@claim(
    "heads:V1",
    "Most of a translation encoder's heads can be removed at almost no cost.",
    source=HEAVY_LIFTING,
    published="38 of 48 heads can be removed at .15 BLEU (WMT English-Russian, 29.6), 44 of 48 at .25 (OpenSubtitles, "
    "32.4); then the curve falls: 5 heads 29.0 and 2 heads 28.25, 1 head 31.7",
    statistic="in a sweep of penalties on learned gates with a frozen decoder, over half of the encoder's heads can be "
    f"removed before quality drops by {CHEAP['bleu']} BLEU (without BLEU: {CHEAP['loss']} nats per token)",
    reads={"removable": removable_share()},
    controls=(
        Control(name="as many random heads, without further training", reads={"removable": removable_share(RANDOM)}),
    ),
)
def v1(curves: Curves) -> list[Condition]:
    """Condition on the share of encoder heads that learned gates can remove from the translation model."""
    name = "largest share of the encoder's heads that can be removed at almost no cost"
    return [exceeds(name, curves["removable"], 0.5, "share of heads", bounds=SHARE, published=38 / 48)]


_UNITS = ("BLEU", "nats per token")


@claim(
    "heads:V2",
    "A pruned model is better than a model trained from scratch with the same heads.",
    source=HEAVY_LIFTING,
    published="BLEU by encoder, decoder and cross-attention heads left, pruned against scratch: WMT 14/31/30 29.62 "
    "and 29.47, 12/21/25 29.36 and 28.95, 8/13/15 29.06 and 28.56, 5/9/12 28.90 and 28.41; OpenSubtitles 27/31/46 "
    "32.24 and 32.23, 13/17/31 32.23 and 31.98, 6/9/13 32.27 and 31.84",
    statistic="BLEU (without it: the loss) of the pruned model minus that of a model trained with the same heads from "
    "the start and for as many updates, mean over the steps of the sweep: above 0",
    reads={"gap": pruned_less_scratch()},
    controls=(
        Control(
            name="converged model with as many random heads instead of the pruned one",
            reads={"gap": pruned_less_scratch(RANDOM)},
        ),
    ),
)
def v2(curves: Curves) -> list[Condition]:
    """Condition that compares the pruned translation model with the same heads trained from scratch."""
    column = int(np.isnan(curves["gap"][0, 0]))  # the loss if BLEU was not scored
    name = "quality of the pruned model beyond that of the same heads trained from scratch"
    return [exceeds(name, curves["gap"][:, [column]], 0.0, _UNITS[column])]


@claim(
    "heads:V3",
    "The encoder's self-attention loses its heads first and cross-attention last; the decoder's self-attention keeps "
    "those of its lower layers, cross-attention those of its upper ones.",
    source=HEAVY_LIFTING,
    cause="Generated sentences: on real captions, cross-attention kept its heads longest, as published.",
    examined="multi30k",
    published="encoder, decoder and cross-attention heads left of 48 each: WMT 14/31/30, 12/21/25, 8/13/15, 5/9/12; "
    "OpenSubtitles 27/31/46, 13/17/31, 6/9/13; by layer in a figure without numbers",
    statistic="share of heads of each kind that survive, mean over the steps of a sweep with gates on all heads: "
    "cross-attention above the decoder's self-attention above the encoder's; the lower above the upper half of the "
    "decoder's layers in self-attention, and the reverse in cross-attention",
    reads={"alive": alive_by_kind()},
    controls=(
        Control(name="random orders of all heads", reads={"alive": alive_by_kind(RANDOM)}),
        # All differences are 0 by construction.
        Control(
            name="the same share removed of every kind and layer",
            reads={"alive": alive_by_kind(uniform=True)},
            decisive=False,
        ),
    ),
)
def v3(curves: Curves) -> list[Condition]:
    """Conditions on which kinds of attention lose their heads first if learned gates choose among all heads."""
    encoder, decoder, cross, low, high = curves["alive"].T
    name, unit = "share of heads left, mean over the sweep: difference of two kinds of attention", "share of heads"
    gaps = {
        "decoder self-attention minus encoder": decoder - encoder,
        "cross-attention minus encoder": cross - encoder,
        "cross-attention minus decoder self-attention": cross - decoder,
    }
    kinds = exceeds(name, np.stack(list(gaps.values()), axis=1), 0.0, unit, list(gaps))
    if np.isnan([low[0], high[0]]).any():  # a single layer has no halves
        return [kinds]
    name = "share of heads left in the half of the layers that keeps them, minus that in the other half"
    halves = ["decoder self-attention, lower layers", "cross-attention, upper layers"]
    return [kinds, exceeds(name, np.stack([low, high], axis=1), 0.0, unit, halves)]


MOST = 0.8


@claim(
    "heads:V4",
    "The heads that survive pruning keep the functions of the encoder.",
    source=HEAVY_LIFTING,
    published="the model with 17 of 48 encoder heads keeps all functions; with fewer heads, functions are lost one "
    "after the other",
    statistic=f"of the roles that encoder heads of the converged model have, over {MOST:.0%} are still held by some "
    "surviving head at the sweep step closest to 17 of 48 heads, with fewer than half of the heads left; "
    "roles are measured again there, with the same thresholds",
    reads={"survive": surviving_roles()},
    controls=(
        Control(
            name="as many random heads of the converged model (expected share)",
            reads={"survive": surviving_roles("random")},
        ),
    ),
)
def v4(curves: Curves) -> list[Condition]:
    """Condition on the functions that the translation encoder's heads still have when few heads are left."""
    name, functions = "share of the functions that some surviving head still has", int(curves["survive"][0, 1])
    share = curves["survive"][:, :1]
    return [exceeds(name, share, MOST, "share of functions", bounds=SHARE, of=functions, published=1.0)]


FEW = 0.05


@claim(
    "heads:V5",
    "Learned gates are decisive: in the end, nearly all of them are 0 or 1.",
    source=HEAVY_LIFTING,
    cause="Too few updates for each penalty: with 1,500 instead of 120, 0 to 6 of 48 gates stayed undecided.",
    examined="pruning-scale",
    published="almost all gates are exactly 0 or 1 after training, in words without a number",
    statistic=f"at the largest penalty of the sweep under {FEW:.0%} of the gates evaluate to neither 0 nor 1",
    reads={"undecided": undecided_gates()},
    controls=(Control(name="gates without a penalty", reads={"undecided": undecided_gates("zero")}),),
)
def v5(curves: Curves) -> list[Condition]:
    """Condition on the share of learned gates that are still undecided at the end of the sweep of penalties."""
    name, gates = "share of the gates that are neither 0 nor 1 at the largest penalty", int(curves["undecided"][0, 1])
    return [stays_below(name, curves["undecided"][:, :1], FEW, "share of gates", bounds=SHARE, of=gates)]


# R bootstrap replicates, the estimate in their row 0


RECOVERED, RECOVERED_RANDOM, RECOVERED_ALL = "recovered", "recovered-random", "recovered-all"
"""Methods that train a model further: with the heads that gates left, with as many random heads, and with all heads."""

UNPRUNED = "unpruned"
THAN = {UNPRUNED: "the converged model", RECOVERED_ALL: "all heads", RECOVERED_RANDOM: "as many random heads"}


def recovered_gaps(way: str = RECOVERED, than: Sequence[str] = (UNPRUNED, RECOVERED_ALL, RECOVERED_RANDOM)) -> Reading:
    """Quality of pruned encoders after further training, minus that of other models: one number for each of `than`.

    Numbers are in BLEU, then in loss; positive if the pruned models are better, NaN for an unscored metric. They use
    the step nearest to `FEW_KEPT` among those with fewer than half of the encoder's heads left, paired by sentences.
    """
    return pruning_quality().where(metric=..., scope=...).reduce(_gaps, way=way, than=tuple(than))


FEW_KEPT = 10 / 48
"""Share of the encoder's heads that the paper left at a cost of .15 BLEU."""
_METRICS = ("bleu", "loss")
_NONE_LEFT_FEW = "no point with fewer than half of the encoder's heads left was trained further"


def _gaps(rows: SeedRows, way: str, than: tuple[str, ...]) -> np.ndarray:
    point = _point(rows)
    gaps: list[np.ndarray | None] = []
    for metric in _METRICS:
        scored = rows.at(rows.frame["metric"] == metric)
        own = _score(scored, way, point)
        sign = 1 if metric == "bleu" else -1
        for other in (_score(scored, one, point) for one in than):
            gaps.append(None if own is None or other is None else sign * paired_difference(own, other))
    return side_by_side(gaps)


def _point(rows: SeedRows) -> int:
    frame = rows.frame[(rows.frame["method"] == RECOVERED) & (rows.frame["scope"] == ENCODER)]
    if frame.empty:
        raise Absent(
            "no pruned encoder was trained further: set recover in the plan's [pruning], and encoder-self among its "
            "scopes"
        )
    heads = frame["total"] - frame["kept_decoder_self"] - frame["kept_decoder_cross"]
    left = (1 - (frame["total"] - frame["kept"]) / heads).groupby(frame["point"]).first()
    few = left[left < 0.5]
    if few.empty:
        raise Absent(f"{_NONE_LEFT_FEW}: sweep larger penalties, or name more recover_points")
    return int((few - FEW_KEPT).abs().idxmin())


def _score(rows: SeedRows, way: str, point: int) -> np.ndarray | None:
    """The score at a step, or at the only step if all heads are kept, (1 + R,)."""
    found = rows.frame["method"] == way
    if way not in (UNPRUNED, RECOVERED_ALL):
        found &= (rows.frame["scope"] == ENCODER) & (rows.frame["point"] == point)
    own = rows.at(found)
    return None if own.frame.empty else own.numbers[:, 0]


LOST = (0.3, 0.03)


@claim(
    "heads:H2",
    "Trained further with only the few heads that gates left, a translation encoder is as good as with all heads, and "
    "better than with as many random ones.",
    source=OURS,
    cause="Gates show which heads a model uses, not which it needs for learning: a model with as many random heads "
    "recovered just as well, and one with all heads, trained as long, was 2.1 BLEU ahead.",
    examined="pruning-scale",
    published=f"none for models trained further, so the threshold, {LOST[0]} BLEU, is ours: twice the cost of "
    "the 10 of 48 heads that gates left (heads:V1)",
    statistic="at the step of a gate sweep that left closest to 10 of 48 encoder heads (fewer than half), after "
    "further training without gates: BLEU (without it: the loss) minus that of the converged model, and minus that of "
    f"the model with all heads, is above −{LOST[0]} ({LOST[1]} nats per token), and minus that of a model with as "
    "many random heads, it is above 0; the last two models were trained further from the converged one, for as many "
    "updates in total",
    reads={"gaps": recovered_gaps(than=tuple(THAN))},
    controls=(
        Control(
            name="as many random heads, trained for as many updates",
            reads={"gaps": recovered_gaps(RECOVERED_RANDOM, than=(UNPRUNED, RECOVERED_ALL, RECOVERED))},
        ),
    ),
)
def h2(curves: Curves) -> list[Condition]:
    """Conditions on a translation encoder with few heads left that was trained further."""
    gaps = np.split(curves["gaps"], 2, axis=1)
    metric = int(np.isnan(gaps[0][0]).all())  # the loss if BLEU was not scored
    conditions = []
    for (way, name), gap in zip(THAN.items(), np.split(gaps[metric], len(THAN), axis=1), strict=True):
        longer = "" if way == UNPRUNED else ", trained for as many updates"
        least = 0.0 if way == RECOVERED_RANDOM else -LOST[metric]
        conditions.append(exceeds(f"quality beyond that of {name}{longer}", gap, least, _UNITS[metric]))
    return conditions
