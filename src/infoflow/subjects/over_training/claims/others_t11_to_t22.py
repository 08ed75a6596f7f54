"""Claims about time: T11, T12, T13, T14, T16, T17, T18, T19, T22; and about heads over training: heads:M7."""

import numpy as np

from infoflow.findings._finding import SHARE, Condition, Control, Curves, claim, exceeds, stays_below
from infoflow.findings._model_group import CAUSAL, MASKED, NAMES, OBJECTIVES, TRANSLATION, Absent
from infoflow.findings._readings import reach_at
from infoflow.findings._sources import (
    BLEVINS,
    FOUR_PHASES,
    NGRAM_STAGES,
    RAZZHIGAEV,
    SIMILARITY,
    SIXTEEN_HEADS,
    SOURCE_AND_TARGET,
    TRANSLATION_STAGES,
)
from infoflow.findings._table import Reading, SeedRows, Table
from infoflow.results import Spec

from ..measures import CHECKPOINT_STEPS, STAGES_BY_WARMUP
from ._curves_over_time import seeds_apart
from ._over_time import divergence_left, language_first, lower_more_alike, order_last, prunable, rank_course, source_dip
from ._probes_over_time import best_layer_moves

FACTOR = 1.5  # smallest ratio of updates that counts as later; 2 if the sum of learning rates alone decided


@claim(
    "time:T11",
    "A translation model is first a language model of its target side.",
    source=TRANSLATION_STAGES,
    published="translations' scores under n-grams of the target side rise above the references' before quality rises",
    statistic="mean log-probability of greedy translations under bigrams of the training targets, minus the "
    "references': above 0 at some checkpoint before half of chrF's rise; its maximum is no later than that under "
    "5-grams",
    reads={"language": language_first()},
    controls=(Control(name="words drawn by their frequency alone", reads={"language": language_first("baseline")}),),
)
def t11(curves: Curves) -> list[Condition]:
    """Translations first become text of the target language."""
    found = curves["language"]
    name, later = "score under bigrams before half of chrF's rise, above the references'", found[:, [1]]
    after, reach = "from the maximum of this score to that under 5-grams", reach_at(found, 4)
    return [
        exceeds(name, found[:, [0]], 0.0, "nats per token", reach=reach_at(found, 2)),
        exceeds(after, later, -1e-9, "doublings", alone=False, reach=reach),
    ]


@claim(
    "time:T12",
    "Reordering is learned last.",
    source=TRANSLATION_STAGES,
    cause="Short sentences: the order of words hardly changes once chrF has settled.",
    examined="over-training",
    published="translations become less monotone while BLEU hardly changes any more",
    statistic="fuzzy reordering score of greedy translations (with begin and end) by one word aligner: after chrF "
    "has reached .9 of its final value, the score still moves by over a fifth of its range, and also over the last "
    "half of the updates",
    reads={"order": order_last()},
    controls=(Control(name="the same words in random order", reads={"order": order_last("baseline")}),),
)
def t12(curves: Curves) -> list[Condition]:
    """Word order still changes after the quality has settled."""
    after, half = (curves["order"][:, [index]] for index in range(2))
    unit, reach = "share of its range", reach_at(curves["order"], 2)
    return [
        exceeds("movement of the reordering score after nine tenths of chrF", after, 0.2, unit, reach=reach),
        exceeds("the same over the last half of the updates", half, 0.2, unit),
    ]


@claim(
    "time:T13",
    "The share of the source in a translation's predictions falls, then rises.",
    source=SOURCE_AND_TARGET,
    published="the source's share falls at first and rises later in training; no number",
    statistic="share of the source in the relevance for the likeliest token, mean over the decoder's steps after the "
    "first: between the first and the last checkpoint, it falls more than .03 below both",
    reads={"dip": source_dip()},
    controls=(
        Control(name="equal relevance of all tokens", reads={"dip": source_dip("baseline")}, decisive=False),
        Control(name="another rule of relevance", reads={"dip": source_dip(rule=1)}, decisive=False),
    ),
    uncontrolled="equal relevance has no dip, whatever was trained",
)
def t13(curves: Curves) -> list[Condition]:
    """How the source's share in a translation's predictions falls and rises over training."""
    name = "how far the share of the source falls below both its start and its end"
    return [exceeds(name, curves["dip"], 0.03, "share of relevance")]


_T14_SHARE = 0.25


@claim(
    "time:T14",
    "A translation model's predictions settle early.",
    source=SOURCE_AND_TARGET,
    published="little change after about 12,000 batches",
    statistic="KL(p_T||p_t) of the predictions of the last checkpoint and of the one at a quarter of the updates: at "
    "most a tenth of its value at step 0",
    reads={"left": divergence_left(TRANSLATION, _T14_SHARE)},
    controls=(
        Control(
            name="a quarter of the sum of the learning rates instead of the updates",
            reads={"left": divergence_left(TRANSLATION, _T14_SHARE, "lr_share")},
            decisive=False,
        ),
        Control(name="step 0", reads={"left": divergence_left(TRANSLATION, 0.0)}, decisive=False),
    ),
    uncontrolled="the divergence is counted in units of that at step 0",
)
def t14(curves: Curves) -> list[Condition]:
    """How early predictions match those of the final model."""
    name = "divergence from the last checkpoint's predictions after a quarter of the updates, relative to step 0"
    return [stays_below(name, curves["left"], 0.1, "share")]


_LEAST = 0.05


@claim(
    "time:T16",
    "The dimension of the last states falls, rises and falls again.",
    source=RAZZHIGAEV,
    published="collapse in the warm-up, expansion, compression; or a rise and a fall; no common number",
    statistic="effective rank of the covariance of the last states: a minimum and a later maximum between the first "
    "and the last checkpoint, each move over a twentieth (threshold ours)",
    reads={"moves": rank_course(CAUSAL)},
    controls=(
        Control(name="as many random states", reads={"moves": rank_course(CAUSAL, "baseline")}),
        Control(name="step 0 at all checkpoints, resampled", reads={"moves": rank_course(CAUSAL, "noise")}),
    ),
)
def t16(curves: Curves) -> list[Condition]:
    """Effective rank over training."""
    names = ("fall from step 0 to a minimum", "rise from the minimum to a maximum", "fall from the maximum to the end")
    return [
        exceeds(f"effective rank: {name}", curves["moves"][:, [index]], _LEAST, "ln of the ratio", alone=index == 1)
        for index, name in enumerate(names)
    ]


@claim(
    "time:T17",
    "Models of different seeds start alike, diverge and converge again.",
    source=FOUR_PHASES,
    published="four phases of the divergence between outputs of seeds: uniform, sharp convergence, sharp divergence, "
    "slow reconvergence (only in larger models); no number",
    statistic="KL between the predictions of each seed and the next at the same update: a maximum before the "
    "end that is .1 nats above an earlier minimum, and above the end (threshold ours)",
    reads={"moves": seeds_apart(CAUSAL)},
    controls=(
        Control(name="step 0 at all checkpoints, resampled", reads={"moves": seeds_apart(CAUSAL, at_start=True)}),
    ),
)
def t17(curves: Curves) -> list[Condition]:
    """Divergence between seeds' outputs."""
    rise, fall = (curves["moves"][:, [index]] for index in range(2))
    return [
        exceeds("divergence between seeds: rise from a minimum to a later maximum", rise, 0.1, "nats"),
        # Any curve that has risen may fall a little.
        exceeds("divergence between seeds: fall from that maximum to the end", fall, 0.0, "nats", alone=False),
    ]


def reads(*, at_start: bool = False) -> dict[str, Reading]:
    return {NAMES[one]: lower_more_alike(one, at_start=at_start) for one in OBJECTIVES}


@claim(
    "time:T18",
    "After warm-up, lower layers are always more similar between seeds than upper ones.",
    source=SIMILARITY,
    published="at the end of training, early layers are more similar between seeds than late ones; over time: ours",
    statistic="debiased CKA of state 1 with another seed's final state 1 above that of the last states, at .9 of the "
    "checkpoints after a tenth of the updates, in every objective",
    reads=reads(),
    controls=(Control(name="before training", reads=reads(at_start=True)),),
)
def t18(curves: Curves) -> list[Condition]:
    """How similar lower and upper layers are between two seeds, at every checkpoint."""
    name = "share of the checkpoints after the warm-up at which state 1 is more alike between seeds than the last, {}"
    return [
        exceeds(name.format(model), values[:, :1], 0.9, "share of checkpoints", bounds=SHARE, step=1 / values[0, 1])
        for model, values in curves.items()
    ]


def unigram_stage(objective: Spec, compared: str = "warm-up") -> Reading:
    """How much later the divergence from unigrams reaches its minimum with the longer warm-up.

    The columns are this delay in doublings of updates and in doublings of the sum of learning rates, and the spacing of
    checkpoints around the minimum in doublings of updates.

    With `compared="seed"`, the first column is the absolute difference from the next seed with the same warm-up. The
    second is 0, because sums of learning rates matter only if the warm-up differs.
    """
    table = Table(STAGES_BY_WARMUP.name, objective, needs=("measure", "gap", "replicates"))
    return table.where(compared=compared, order=1).reduce(_grown, signed=compared == "warm-up")


def _grown(rows: SeedRows, signed: bool) -> np.ndarray:
    ordered = SeedRows(rows.frame.sort_values("measure", ascending=False), rows.number)  # updates, then rates
    if list(ordered.frame["measure"]) != ["updates", "rates"]:
        raise Absent("stages_by_warmup must hold updates and rates once for each seed")
    numbers = ordered.numbers
    if not np.isfinite(numbers[0]).all():
        raise Absent("the divergence from unigrams has no minimum between the first checkpoint and the last")
    if (gap := float(ordered.frame["gap"].max())) > np.log2(FACTOR):
        raise Absent(
            f"checkpoints around the minimum lie {gap:.2f} doublings of updates apart, but at most "
            f"{np.log2(FACTOR):.2f} are allowed: use a schedule with more steps"
        )
    grown = numbers if signed else np.abs(numbers) * [1, 0]
    return np.column_stack([grown, np.full(len(grown), gap)])


@claim(
    "time:T19",
    "Stages follow the learning rate: with four times the warm-up, the minimum of the divergence from unigrams comes "
    "later, at the same sum of learning rates.",
    source=NGRAM_STAGES.beyond,
    published="14m: minima at 256 and 1,000 updates, with a longer warm-up at 1,000 and 2,000 (published data; by "
    "what factor the warm-up grew is unverified)",
    statistic="two studies with the same seeds and data, one with four times the warm-up: the divergence from "
    "unigrams reaches its minimum after at least 1.5 times as many updates, and at less than 1.5 times the sum of "
    "learning rates (limits ours; if the sum alone decided, the factors would be 2 and 1)",
    reads={"grown": unigram_stage(CAUSAL)},
    controls=(
        Control(
            name="difference from the next seed with the same warm-up", reads={"grown": unigram_stage(CAUSAL, "seed")}
        ),
    ),
)
def t19(curves: Curves) -> list[Condition]:
    """Warm-up and the stages of learning.

    We have not verified by which factor the warm-up of the published models grew. The factor of 4 and both limits are
    ours.
    """
    updates, rates = (curves["grown"][:, [index]] for index in range(2))
    gap = float(np.nanmax(curves["grown"][:, 2]))
    steps = {measure: gap * times for measure, times in CHECKPOINT_STEPS.items()}
    limit, what = float(np.log2(FACTOR)), "to the minimum of KL(Q1||P), with four times the warm-up"
    rated = f"sum of learning rates {what}"
    return [
        exceeds(f"updates {what}", updates, limit, "doublings", step=steps["updates"]),
        # Two training runs with equal stages meet this condition too.
        stays_below(rated, rates, limit, "doublings", alone=False, step=steps["rates"]),
    ]


TASK = ("upos", "xpos")


@claim(
    "time:T22",
    "Knowledge moves down: the layer that encodes parts of speech best is lower at the end than when they were "
    "first encoded.",
    source=BLEVINS,
    published="best layers of probes move down during the training of XLM-R; no number",
    statistic="linear probes trained at every checkpoint: the best layer at the end lies below the one "
    "at the first checkpoint with nine tenths of the gain over step 0, and the last layer is less accurate than then",
    reads={"moves": best_layer_moves(MASKED, TASK)},
    controls=(Control(name="control labels", reads={"moves": best_layer_moves(MASKED, TASK, "control")}),),
)
def t22(curves: Curves) -> list[Condition]:
    """Whether the best layer of probes moves down after a task has been learned."""
    down, loss = (curves["moves"][:, [index]] for index in range(2))
    name = "how many layers lower the best layer is at the end than at nine tenths of the gain"
    return [
        exceeds(name, down, 0.0, "layers", reach=reach_at(curves["moves"], 2)),
        exceeds("accuracy that the last layer has lost since then", loss, 0.0, "accuracy", alone=False),
    ]


# Claim about heads over training: heads:M7.


@claim(
    "heads:M7",
    "It is already apparent early in training that many heads can be removed.",
    source=SIXTEEN_HEADS,
    published="IWSLT: from about epoch 10 on, 40 % of the heads can be removed while keeping 85 to 90 % of the BLEU; "
    "in epochs 1 and 2, all heads cost the same",
    statistic="largest share of heads, in order of importance, that can be removed while keeping 90 % of the model's "
    "gain over unigrams: over .1 higher at the middle checkpoint than at the first with a gain, and at least "
    "three quarters of the share at the last checkpoint",
    reads={"prunable": prunable("importance")},
    controls=(Control(name="random order", reads={"prunable": prunable("random")}),),
    minimum_seeds=1,
)
def m7(curves: Curves) -> list[Condition]:
    """Share of removable heads at each checkpoint; only a study that keeps checkpoints can test it."""
    share, unit, label = curves["prunable"], "share of heads", ["middle"]
    middle = share[:, [share.shape[1] // 2]]
    rise = "rise of the prunable share from the first checkpoint to the middle one"
    late = "share prunable at the middle checkpoint minus three quarters of that at the last"
    return [
        exceeds(rise, middle - share[:, :1], 0.1, unit, label),
        # A constant share meets this condition too, so it counts only together with the rise.
        exceeds(late, middle - 0.75 * share[:, -1:], 0.0, unit, label, alone=False),
    ]
