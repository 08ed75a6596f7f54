"""Claims about dynamics: V1 to V9."""

from itertools import combinations

import numpy as np

from infoflow.findings._control import layers_in_any_order, seeds_alone
from infoflow.findings._curves import layer_names
from infoflow.findings._finding import Condition, Control, Curves, claim, exceeds
from infoflow.findings._model_group import CAUSAL, MASKED, NAMES, OBJECTIVES, TRANSLATION
from infoflow.findings._sources import CONTRIBUTIONS_ON_SLIDES, PARAMETER_CONTRIBUTIONS
from infoflow.findings._table import Reading, baselines

from ._loss_change import (
    ATTENTION,
    COMPONENTS,
    FEED_FORWARD,
    corpus_similarity,
    halves_agree,
    head_spread,
    hurting,
    last_hurting,
    own_over_others,
    profile,
    profile_similarity,
    total_of,
)

PAIRS = tuple(combinations(OBJECTIVES, 2))


WITHIN: dict[str, Reading] = {one.name: profile_similarity(one, one) for one in OBJECTIVES}


_V1_READS: dict[str, Reading] = WITHIN | {
    f"{one.name}, {other.name}": profile_similarity(one, other) for one, other in PAIRS
}


@claim(
    "dynamics:V1",
    "The objective decides which parameters do the learning: two seeds of one objective are more alike than two "
    "objectives.",
    source=PARAMETER_CONTRIBUTIONS,
    published="objectives give distinct optimisation dynamics on comparable Transformers (no number in the abstract)",
    statistic="rank correlation of the shares of layers × components under different seeds: between any two "
    "objectives it is lower than within either of them",
    reads=_V1_READS,
    controls=(seeds_alone(_V1_READS, tuple(WITHIN), tuple(f"{one.name}, {other.name}" for one, other in PAIRS)),),
    reliable=halves_agree(),
)
def v1(curves: Curves) -> list[Condition]:
    """Condition on the share profiles of the stacks that read the text, under different seeds."""
    return [own_over_others("similarity of two seeds of one objective, minus that of two objectives", curves)]


OTHERS = (*ATTENTION, "norm")


SIZES: dict[str, Reading] = {f"{one.name} parameters": profile(one, number="parameters") for one in OBJECTIVES}


SHARES: dict[str, Reading] = {one.name: profile(one) for one in OBJECTIVES}


def _margin(name: str, curves: Curves, per_parameter: bool) -> Condition:
    margins, labels = [], []
    for objective in OBJECTIVES:
        share, size = curves[objective.name], curves[f"{objective.name} parameters"]
        feed = total_of(share, FEED_FORWARD) / (total_of(size, FEED_FORWARD) if per_parameter else 1)
        for other in OTHERS:
            margins.append(feed - total_of(share, (other,)) / (total_of(size, (other,)) if per_parameter else 1))
            labels += [f"{NAMES[objective]}, {layer}, {other}" for layer in layer_names(feed.shape[1], 0)]
    unit = "mean parameters" if per_parameter else "share"
    # W1 and W2 hold most parameters, so with an equal allocation they have the largest share.
    return exceeds(name, np.concatenate(margins, axis=1), 0.0, unit, labels, alone=per_parameter)


@claim(
    "dynamics:V2",
    "The feed-forward parts contribute most to the loss change in each layer, even per parameter.",
    source=PARAMETER_CONTRIBUTIONS,
    published="feed-forward parts are the main contributors in each layer (no number in the abstract)",
    statistic="in every layer and objective, W1 and W2 together have a larger share than query, key, value, output or "
    "norms, raw and per parameter",
    reads=SHARES | SIZES,
    controls=(
        Control(name="the same allocation for every parameter", reads=baselines(SHARES) | SIZES, decisive=False),
    ),
    uncontrolled="with the same allocation for every parameter there is no difference per parameter, whatever is "
    "trained",
    reliable=halves_agree(),
)
def v2(curves: Curves) -> list[Condition]:
    """Conditions that compare W1 and W2 with every other component, layer by layer."""
    return [
        _margin("share of W1 and W2 minus that of any other component", curves, per_parameter=False),
        _margin("the same per parameter, in units of the mean parameter", curves, per_parameter=True),
    ]


_V3_PAIRS = tuple(combinations(OBJECTIVES, 2))


ACROSS: dict[str, Reading] = {one.name: corpus_similarity(one, one, "other") for one in OBJECTIVES}


_V3_READS: dict[str, Reading] = ACROSS | {
    f"{one.name}, {other.name}": corpus_similarity(one, other, "same") for one, other in _V3_PAIRS
}


@claim(
    "dynamics:V3",
    "The dynamics depend on the objective, not on the size or the domain of the data: one objective on two corpora is "
    "more alike than two objectives on one corpus.",
    source=PARAMETER_CONTRIBUTIONS,
    cause="A masked LM learns from a seventh of the tokens, so its shares are noisy: two masked LMs under different "
    "seeds are less similar than a masked and a causal LM. The corpus itself hardly mattered.",
    examined="dynamics-corpora",
    published="Europarl against WMT, and 700 thousand, 2 and 5 million sentence pairs (slides), look alike",
    statistic="rank correlation of the shares of layers × components under different seeds, mean over pairs of "
    "corpora: between any two objectives on one corpus it is lower than between two corpora for either objective",
    reads=_V3_READS,
    controls=(
        seeds_alone(_V3_READS, tuple(ACROSS), tuple(f"{one.name}, {other.name}" for one, other in _V3_PAIRS)),
        Control(
            name="two seeds of one objective on one corpus instead of two objectives",
            reads=ACROSS
            | {f"{one.name}, {other.name}": corpus_similarity(one, one, "same") for one, other in _V3_PAIRS},
            decisive=False,
        ),
    ),
)
def v3(curves: Curves) -> list[Condition]:
    """Condition on share profiles of the stacks that read the text, on several corpora and under different seeds."""
    name = "similarity of one objective on two corpora, minus that of two objectives on one corpus"
    return [own_over_others(name, curves)]


_V4_READS: dict[str, Reading] = {
    "encoder, masked": profile_similarity(TRANSLATION, MASKED, "encoder", "encoder"),
    "encoder, causal": profile_similarity(TRANSLATION, CAUSAL, "encoder", "decoder"),
    "decoder, causal": profile_similarity(TRANSLATION, CAUSAL, "decoder", "decoder"),
    "decoder, masked": profile_similarity(TRANSLATION, MASKED, "decoder", "encoder"),
}


@claim(
    "dynamics:V4",
    "A translation encoder learns like a masked LM, its decoder like a causal LM.",
    source=CONTRIBUTIONS_ON_SLIDES,
    cause="The decoder was closer to the causal LM, but so was the encoder; shares of the masked LM are noisy, because "
    "it learns from a seventh of the tokens.",
    examined="dynamics",
    published="shown as maps of layers and components (slides; no number)",
    statistic="rank correlation of the shares of layers × components under different seeds: the encoder is more "
    "similar to the masked LM than to the causal LM, the decoder the reverse (cross-attention and embeddings left out)",
    reads=_V4_READS,
    controls=(
        seeds_alone(_V4_READS, ("encoder, masked", "decoder, causal"), ("encoder, causal", "decoder, masked")),
        Control(name="shuffled profiles", reads=baselines(_V4_READS), decisive=False),  # expected: no similarity
    ),
    learned=OBJECTIVES,
    reliable=halves_agree(),
)
def v4(curves: Curves) -> list[Condition]:
    """Conditions that compare both stacks of translation with both language models, under different seeds."""
    name = "similarity of a stack to the language model of its kind, minus that to the other"
    gaps = {
        "translation encoder": curves["encoder, masked"] - curves["encoder, causal"],
        "translation decoder": curves["decoder, causal"] - curves["decoder, masked"],
    }
    return [exceeds(name, np.concatenate(list(gaps.values()), axis=1), 0.0, "rank correlation", list(gaps))]


_V5_READS: dict[str, Reading] = {"encoder": profile(TRANSLATION, "encoder"), "decoder": profile(TRANSLATION, "decoder")}


@claim(
    "dynamics:V5",
    "In translation the feed-forward parts of the upper layers contribute most.",
    source=CONTRIBUTIONS_ON_SLIDES,
    published="feed-forward contributions peak in upper layers (slides; no number)",
    statistic="the largest share of W1 and W2 lies in the upper third of the layers, in the encoder and in the decoder",
    reads=_V5_READS,
    controls=(
        layers_in_any_order(_V5_READS, numbers=len(COMPONENTS)),
        # The same share for every layer.
        Control(name="the same allocation for every parameter", reads=baselines(_V5_READS), decisive=False),
    ),
    reliable=halves_agree((TRANSLATION,)),
)
def v5(curves: Curves) -> list[Condition]:
    """Condition on the feed-forward shares of translation in each layer."""
    margins, labels = [], []
    for stack, curve in curves.items():
        feed = total_of(curve, FEED_FORWARD)
        upper = max(1, round(feed.shape[1] / 3))
        margins.append(feed[:, -upper:].max(axis=1, keepdims=True) - feed[:, :-upper])
        labels += [f"{stack}, {layer}" for layer in layer_names(feed.shape[1] - upper, 0)]
    name = "largest share of W1 and W2 in the upper third, minus that of each layer below"
    return [exceeds(name, np.concatenate(margins, axis=1), 0.0, "share", labels)]


LOOKING, REST = ("key", "query"), ("value", "output", "mlp_in", "mlp_out")


@claim(
    "dynamics:V6",
    "In masked language modelling keys and queries raise the loss in many more steps than anything else.",
    source=CONTRIBUTIONS_ON_SLIDES,
    published="of 125,000 steps, those in which a component raised the loss (slides): masked LM key 1565, query 2055, "
    "value 24, output 6, W1 0, W2 0; causal LM 24 to 29 each; translation key and query 64, value 130, output 113, "
    "W1 59, W2 131",
    statistic="keys and queries, each as a sum over layers, hurt in more steps than each of value, output, W1 and W2, "
    "and in over 1 % of the steps",
    reads={"hurt": hurting(MASKED, (*LOOKING, *REST))},
    controls=(
        Control(name="causal LM in place of the masked LM", reads={"hurt": hurting(CAUSAL, (*LOOKING, *REST))}),
        Control(name="translation encoder", reads={"hurt": hurting(TRANSLATION, (*LOOKING, *REST))}, decisive=False),
    ),
    reliable=halves_agree((MASKED,)),
)
def v6(curves: Curves) -> list[Condition]:
    """Conditions on how often each component, summed over layers, raised the loss, with intervals over seeds."""
    hurt = curves["hurt"]
    looking, others = hurt[:, :2], hurt[:, 2:]
    gaps = (looking[:, :, None] - others[:, None, :]).reshape(len(hurt), -1)
    name, pairs = "steps in which keys or queries hurt", [f"{one} and {other}" for one in LOOKING for other in REST]
    return [
        exceeds(f"{name}, minus those of another component", gaps, 0.0, "share of steps", pairs),
        exceeds(name, np.asarray(looking), 0.01, "share of steps", LOOKING),
    ]


_V7_READS: dict[str, Reading] = {
    "causal": last_hurting(CAUSAL),
    "masked": last_hurting(MASKED),
    "translation": last_hurting(TRANSLATION),
}


def _later(name: str, late: np.ndarray, early: np.ndarray) -> Condition:
    """A condition on times: a part that raises the loss in the last step might do so even later in longer training."""
    reach = float(early[0, 1]), float(late[0, 1])
    return exceeds(name, late[:, :1] - early[:, :1], 0.0, "share of the training", reach=reach)


@claim(
    "dynamics:V7",
    "Components stop hurting first in causal language modelling, then in translation, last in masked modelling.",
    source=CONTRIBUTIONS_ON_SLIDES,
    published="last of 125,000 steps in which a component hurt (slides): causal LM 1,072, translation 2,673, masked "
    "LM 59,727; largest loss change of a component 5.58 (key), 95 (W2), 68.18 (value)",
    statistic="the last step in which any component, summed over layers, hurt, as a share of the training: it comes "
    "first in the causal LM, then in translation, and last in the masked LM",
    reads=_V7_READS,
    controls=(seeds_alone(_V7_READS, *_V7_READS),),
    reliable=halves_agree(),
)
def v7(curves: Curves) -> list[Condition]:
    """Conditions on the last step in which a component, summed over layers, raised the loss."""
    causal, masked, translation = (curves[name] for name in ("causal", "masked", "translation"))
    return [
        _later("the masked LM's last hurting step after translation's", masked, translation),
        _later("translation's last hurting step after the causal LM's", translation, causal),
    ]


_V8_READS: dict[str, Reading] = {NAMES[one]: head_spread(one) for one in OBJECTIVES}


@claim(
    "dynamics:V8",
    "The heads of a layer contribute unequally to the loss change.",
    source=CONTRIBUTIONS_ON_SLIDES,
    published="maps of layers × heads, normalised over the map (slides; how exactly is unverified; no number)",
    statistic="the standard deviation over the heads of a layer, minus what the choice of sentences explains, exceeds "
    "a quarter of the heads' mean absolute contribution, on average over layers and in every objective",
    reads=_V8_READS,
    controls=(Control(name="equal heads that differ only by the choice of sentences", reads=baselines(_V8_READS)),),
    reliable=halves_agree(),
)
def v8(curves: Curves) -> list[Condition]:
    """Condition on the heads of self-attention, with intervals over seeds."""
    name = "standard deviation over the heads of a layer beyond noise, divided by their mean absolute contribution"
    return [exceeds(name, np.concatenate(list(curves.values()), axis=1), 0.25, "ratio", list(curves))]


_V9_READS: dict[str, Reading] = {"causal": profile(CAUSAL)}


@claim(
    "dynamics:V9",
    "In a causal LM the attention of the middle layers contributes more than that of the first and the last.",
    source=CONTRIBUTIONS_ON_SLIDES,
    published="the attention of middle layers contributes more, perhaps by learning fine syntax (slides; no number)",
    statistic="share of query, key, value and output: the mean of the middle layers exceeds the share of the first "
    "and of the last layer",
    reads=_V9_READS,
    controls=(
        layers_in_any_order(_V9_READS, numbers=len(COMPONENTS)),
        # The same share for every layer.
        Control(name="the same allocation for every parameter", reads=baselines(_V9_READS), decisive=False),
        Control(name="masked LM", reads={"causal": profile(MASKED)}, decisive=False),
    ),
    reliable=halves_agree((CAUSAL,)),
)
def v9(curves: Curves) -> list[Condition]:
    """Condition on the attention shares of the causal LM in each layer."""
    attention = total_of(curves["causal"], ATTENTION)
    middle = attention[:, 1:-1].sum(axis=1) / (attention.shape[1] - 2)  # NaN if there are only two layers
    name = "mean share of attention in the middle layers, minus that of the first and of the last"
    gaps = np.stack([middle - attention[:, 0], middle - attention[:, -1]], axis=1)
    return [exceeds(name, gaps, 0.0, "share", ["first layer", "last layer"])]
