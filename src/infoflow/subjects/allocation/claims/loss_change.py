"""Claims about dynamics: L1, L2, L3, L4, L6, Z1."""

from itertools import combinations

import numpy as np

from infoflow.findings._control import layers_in_any_order
from infoflow.findings._curves import layer_names
from infoflow.findings._finding import CORRELATION, SHARE, Condition, Control, Curves, claim, exceeds, stays_below
from infoflow.findings._model_group import NAMES, OBJECTIVES, TRANSLATION
from infoflow.findings._sources import LOSS_CHANGE, LOSS_CHANGE_RECALLED, TRANSLATION_DYNAMICS
from infoflow.findings._table import Reading, baselines

from ._loss_change import (
    COMPONENTS,
    components_by_layer,
    halves_agree,
    profile,
    profile_similarity,
    reliability,
    synchrony,
    window_mean,
)

_L1_READS: dict[str, Reading] = {NAMES[one]: window_mean(one, "helping") for one in OBJECTIVES}


@claim(
    "dynamics:L1",
    "Barely over half of the parameters help in any step of training.",
    source=LOSS_CHANGE,
    published="barely over 50 % of parameters help in any iteration",
    statistic="of the parameters whose allocation is not 0, the mean share that lowered the loss lies between 50 % "
    "and 60 % in every objective",
    reads=_L1_READS,
    controls=(
        Control(
            name="random signs",
            reads=_L1_READS,
            transform=lambda curves: {name: np.full_like(curve, 0.5) for name, curve in curves.items()},
            decisive=False,
        ),
    ),
    reliable=halves_agree(parameters=True),
    uncontrolled="with random signs, half of the parameters help, which is the limit itself",
)
def l1(curves: Curves) -> list[Condition]:
    """Conditions on the share of parameters that lower the loss, averaged over the whole training."""
    values, labels = np.concatenate(list(curves.values()), axis=1), list(curves)
    # Chance also lies below the upper limit, so that limit counts only with the lower one.
    name, unit = "share that helps, of the parameters whose allocation is not 0", "share of parameters"
    return [exceeds(name, values, 0.5, unit, labels), stays_below(name, values, 0.6, unit, labels, alone=False)]


_L2_READS: dict[str, Reading] = {
    **{NAMES[one]: profile(one) for one in OBJECTIVES},
    "translation decoder": profile(TRANSLATION, "decoder"),
}


@claim(
    "dynamics:L2",
    "Whole layers can hurt: summed over training, they raise the loss that the others lower.",
    source=LOSS_CHANGE,
    published="some layers hurt overall, moving against the training gradient (the last layer of a ResNet: "
    "unverified; explained by a phase lag in oscillation)",
    statistic="some layer of some stack has a negative share in the loss change of its stack",
    reads=_L2_READS,
    controls=(
        layers_in_any_order(_L2_READS, numbers=len(COMPONENTS)),
        # The same share for every layer.
        Control(name="the same allocation for every parameter", reads=baselines(_L2_READS), decisive=False),
    ),
    reliable=halves_agree(),
)
def l2(curves: Curves) -> list[Condition]:
    """Condition on each layer's share, summed over its components."""
    totals = {name: components_by_layer(curve).sum(axis=2) for name, curve in curves.items()}
    labels = [f"{name}, {layer}" for name, total in totals.items() for layer in layer_names(total.shape[1], 0)]
    shares = np.concatenate(list(totals.values()), axis=1)
    return [stays_below("a layer's share of the loss change of its stack", shares, 0.0, "share", labels, over="any")]


TURNED: dict[str, Reading] = {NAMES[one]: synchrony(one, turned=True) for one in OBJECTIVES}


@claim(
    "dynamics:L3",
    "Layers learn at the same time: their loss changes peak together.",
    source=LOSS_CHANGE,
    published="learning is synchronised over layers, with peaks often in the same iteration (no number)",
    statistic="share of common peaks, mean over pairs of layers, is above one half in every objective; a peak is a "
    "window in which a layer lowered the loss more than in both neighbouring ones",
    reads={NAMES[one]: synchrony(one) for one in OBJECTIVES},
    controls=(Control(name="each layer's series rotated by a random number of windows", reads=TURNED),),
    reliable=halves_agree(),
)
def l3(curves: Curves) -> list[Condition]:
    """Condition on the peaks that layers have in common, with intervals over seeds."""
    name, shares = "share of a layer's peaks that are also peaks of another layer", np.hstack(list(curves.values()))
    return [exceeds(name, shares, 0.5, "share of peaks", list(curves), bounds=SHARE)]


RULES = ("simpson", "first-order")


@claim(
    "dynamics:L6",
    "Simpson's rule follows the loss closely from step to step; a first-order estimate does not.",
    source=LOSS_CHANGE.beyond,
    published="the code accepts an error of .001 per iteration; that first order is inaccurate is unverified",
    statistic="Simpson's mean residual lies below .001 nats, and that of first order is over five times as large",
    reads={f"{one.name} {rule}": reliability(one, "mean residual", rule) for one in OBJECTIVES for rule in RULES},
    controls=(
        Control(
            name="first order in place of Simpson's rule",
            reads={
                f"{one.name} {rule}": reliability(one, "mean residual", "first-order")
                for one in OBJECTIVES
                for rule in RULES
            },
            decisive=False,
        ),
    ),
    uncontrolled="first order divided by itself is 1, whatever the residuals are",
)
def l6(curves: Curves) -> list[Condition]:
    """Conditions on the residuals of two rules on the same steps, with intervals over seeds."""
    simpson, first = (np.concatenate([curves[f"{one.name} {rule}"] for one in OBJECTIVES], axis=1) for rule in RULES)
    labels = [NAMES[one] for one in OBJECTIVES]
    return [
        # With small steps first order passes too, so this condition counts only together with the ratio.
        stays_below("mean residual of Simpson's rule", simpson, 1e-3, "nats per step", labels, alone=False),
        exceeds("residual of first order over that of Simpson's rule", first / simpson, 5.0, "ratio", labels),
    ]


_L4_READS: dict[str, Reading] = {
    f"{one.name} {column}": window_mean(one, column) for one in OBJECTIVES for column in ("top_share", "alternated")
}


NORMAL = 0.0362


def _each(name: str, curves: Curves, column: str, threshold: float, unit: str, alone: bool = True) -> Condition:
    values = np.concatenate([curves[f"{one.name} {column}"] for one in OBJECTIVES], axis=1)
    return exceeds(name, values, threshold, unit, [NAMES[one] for one in OBJECTIVES], alone=alone)


@claim(
    "dynamics:L4",
    "A few parameters carry much of each step's loss change, and parameters alternate between helping and hurting.",
    source=LOSS_CHANGE_RECALLED,
    published="heavy-tailed allocations and alternating parameters (unverified: not read at the source)",
    statistic="the largest 1 % of |A| have more than twice the share that they have in a normal distribution (3.6 %), "
    "and more than a tenth of the moving parameters change sign from one step to the next",
    reads=_L4_READS,
    controls=(
        Control(
            name="normally distributed allocations with random signs",
            reads=_L4_READS,
            transform=lambda curves: {
                name: np.full_like(curve, NORMAL if "top_share" in name else 0.5) for name, curve in curves.items()
            },
            decisive=False,
        ),
    ),
    reliable=halves_agree(parameters=True),
    uncontrolled="the share in a normal distribution is known exactly: half of the limit",
)
def l4(curves: Curves) -> list[Condition]:
    """Conditions on the sizes and signs of single parameters' allocations, with intervals over seeds."""
    changed, unit = "parameters whose sign changed since the preceding step", "share of parameters"
    return [
        _each("share of the largest 1 % of |A| in the sum of |A|", curves, "top_share", 2 * NORMAL, "share of the sum"),
        # Random signs alternate too, so this condition counts only together with the heavy tail.
        _each(changed, curves, "alternated", 0.1, unit, alone=False),
    ]


PAIRS = tuple(combinations(OBJECTIVES, 2))


STATISTIC = "half correlation of groups without embeddings"


@claim(
    "dynamics:Z1",
    "Loss change allocation on a sample of the training data agrees with that on all of it.",
    source=TRANSLATION_DYNAMICS,
    cause="A masked LM is scored on a seventh of the tokens: it failed (.70), while the causal LM (.98) and translation"
    " (.99) agreed.",
    examined="dynamics",
    published="allocation on a sample agrees with that on the full training set (abstract; no number)",
    statistic="totals of the groups of parameters, embeddings left out, on two disjoint halves of the evaluated "
    "sentences correlate above .9: one sample represents another, and therefore the whole",
    reads={NAMES[one]: reliability(one, STATISTIC) for one in OBJECTIVES},
    controls=(
        Control(
            name="another objective instead of the other half (rank correlation of shares, different seeds)",
            reads={NAMES[one]: profile_similarity(*pair) for one, pair in zip(OBJECTIVES, PAIRS, strict=True)},
            decisive=False,  # rank correlations between training runs are lower anyway
        ),
    ),
    uncontrolled="unrelated halves have a correlation of 0, whatever is trained",
)
def z1(curves: Curves) -> list[Condition]:
    """Condition on the agreement of two halves of the evaluated sentences, with intervals over seeds."""
    name = "correlation of the groups' totals on two halves of the sentences, embeddings left out"
    values = np.concatenate(list(curves.values()), axis=1)
    return [exceeds(name, values, 0.9, "correlation", list(curves), bounds=CORRELATION)]
