"""Claims about representations: V1, V2, V3, V4, V5, V6, V7."""

from itertools import product

import numpy as np

from .. import _curves
from .._control import seeds_alone
from .._curves import LANGUAGE_MODEL_INFORMATION as READS
from .._finding import CORRELATION, Condition, Control, Curves, claim, exceeds, stays_below
from .._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from .._sources import BOTTOM_UP
from .._table import Reading, baselines, untrained
from .._two_estimates import by_usable_information

_V1_READS = {"causal": _curves.information(CAUSAL, "input")}


@by_usable_information
@claim(
    "representations:V-1",
    "A causal language model forgets its input token, layer by layer.",
    source=BOTTOM_UP,
    cause="Few clusters: in layer 0, positions take up clusters, so the first layers seem to gain information. With "
    "1,000 clusters instead of 200, the claim held.",
    examined="reasons",
    published="5.30 5.285 5.22 5.05 4.81 4.47 3.97 nats at layers 0 to 6: a fall of 1.33",
    statistic="mutual information with the input token falls at every layer, by over .33 nats from layer 0 to the top",
    reads=_V1_READS,
    controls=(Control("untrained model", untrained(_V1_READS)), _curves.clustering_control(_V1_READS)),
    minimum_seeds=1,
)
def v1(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L."""
    steps = _curves.falls(curves["causal"])
    return [
        exceeds(
            "total fall of the information about the input",
            _curves.total_fall(curves["causal"]),
            0.33,
            "nats",
            published=1.33,
        ),
        exceeds("fall at every layer", steps, 0.0, "nats", _curves.step_names(steps.shape[1], 0), published=0.015),
    ]


_V2_READS = {"causal": _curves.information(CAUSAL, "input"), "translation": _curves.information(TRANSLATION, "input")}


@by_usable_information
@claim(
    "representations:V-2",
    "A translation encoder forgets its input token too, but less than a causal language model.",
    source=BOTTOM_UP,
    cause="Positions: with the mean state of each position subtracted, the claim held at width 64, but not at 128.",
    examined="reasons",
    published="falls of .74 (translation: 5.215 to 4.475) and 1.33 nats (causal LM: 5.30 to 3.97) over six layers",
    statistic="mutual information with the input token falls at every layer of the translation encoder, and at least "
    ".15 nats less in total than in the causal LM",
    reads=_V2_READS,
    controls=(Control("untrained models", untrained(_V2_READS)), _curves.clustering_control(_V2_READS)),
)
def v2(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L."""
    steps = _curves.falls(curves["translation"])
    return [
        exceeds(
            "total fall of the causal LM minus that of the translation encoder",
            _curves.total_fall(curves["causal"]) - _curves.total_fall(curves["translation"]),
            0.15,
            "nats",
            published=0.59,
        ),
        exceeds(
            "fall of the translation encoder at every layer",
            steps,
            0.0,
            "nats",
            _curves.step_names(steps.shape[1], 0),
            published=0.005,
        ),
    ]


_V3_READS = {"masked": _curves.information(MASKED, "input")}


@by_usable_information
@claim(
    "representations:V-3",
    "A masked language model first loses and then recovers the identity of its input token.",
    source=BOTTOM_UP,
    cause="Learned positions and few clusters: both parts held with fixed sinusoids, the first with 1,000 clusters.",
    examined="reasons",
    published="5.215 5.21 5.185 5.045 4.935 4.99 5.10 nats at layers 0 to 6, nothing masked: a rise of .165 from "
    "layer 4",
    statistic="mutual information with the input token, nothing masked, is lowest at a layer between the ends, and "
    "rises from there to the top by over .04 nats; a rise in clusters alone shows that occurrences of a token come "
    "together again, not that more about it can be read",
    reads=_V3_READS,
    controls=(
        Control("causal LM", {"masked": _curves.information(CAUSAL, "input")}),
        Control("untrained model", untrained(_V3_READS)),
        _curves.clustering_control(_V3_READS),
    ),
    minimum_seeds=1,
)
def v3(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L; nothing is masked.

    A curve is U-shaped if some layer between the ends lies below both ends.
    """
    curve = curves["masked"]
    interior = curve[:, 1:-1]
    names = _curves.layer_names(interior.shape[1], 1)
    return [
        exceeds(
            "rise from the lowest layer between the ends to the top",
            curve[:, -1:] - interior,
            0.04,
            "nats",
            names,
            over="any",
            published=0.165,
        ),
        exceeds(
            "fall from layer 0 to the lowest layer between the ends",
            curve[:, :1] - interior,
            0.0,
            "nats",
            names,
            over="any",
            published=0.28,
            alone=False,  # a causal LM falls too, so what counts is the later rise of the masked LM
        ),
    ]


MODELS = {"causal": "causal LM", "masked": "masked LM"}


LEAST_RISE = {"causal": 0.13, "masked": 0.4}


LEAST_CORRELATION = 0.9


RISE = {"causal": 0.535, "masked": 1.655}


CORRELATIONS = {"causal": (1.0, -1.0), "masked": (0.964, -0.991)}


def _conditions(curves: Curves, model: str) -> list[Condition]:
    source, target, name = curves[f"{model} input"], curves[f"{model} output"], MODELS[model]
    return [
        exceeds(
            f"rise of the information about the output, {name}",
            -_curves.total_fall(target),
            LEAST_RISE[model],
            "nats",
            published=RISE[model],
        ),
        exceeds(
            f"rank correlation of depth and information about the output, {name}",
            _curves.depth_correlation(target),
            LEAST_CORRELATION,
            "Spearman's rho",
            published=CORRELATIONS[model][0],
            bounds=CORRELATION,
        ),
        stays_below(
            f"rank correlation of depth and information about the input, {name}",
            _curves.depth_correlation(source),
            -LEAST_CORRELATION,
            "Spearman's rho",
            published=CORRELATIONS[model][1],
            bounds=CORRELATION,
        ),
    ]


@by_usable_information
@claim(
    "representations:V-4",
    "Language models compress, then predict: with depth they lose the input token and gain the output token.",
    source=BOTTOM_UP,
    cause="Few clusters find less information at layer 0 than at layer 1, which breaks the order of the layers.",
    examined="reasons",
    published="information about the output rises by .535 nats (causal LM) and 1.655 (masked LM, as in training), "
    "while that about the input falls by 1.33 and 5.95",
    statistic="causal LM and masked LM (inputs as in training): Spearman correlation with depth below -.9 for the "
    "input and above .9 for the output token; information about the output rises by over .13 and .4 nats",
    reads=READS,
    controls=(Control("shuffled labels", baselines(READS)), Control("untrained models", untrained(READS))),
    minimum_seeds=1,
)
def v4(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L; the masked LM sees inputs corrupted as in training."""
    return [condition for model in MODELS for condition in _conditions(curves, model)]


# Controls replace only the masked LM, since a ratio of two changes that are both noise would be meaningless.
REPLACED: dict[str, Reading] = {name: reading for name, reading in READS.items() if name.startswith("masked")}


def _change(curves: Curves, model: str) -> np.ndarray:
    """Sum of the absolute changes of the information about input and output from layer 0 to the top."""
    return abs(_curves.total_fall(curves[f"{model} input"])) + abs(_curves.total_fall(curves[f"{model} output"]))


@by_usable_information
@claim(
    "representations:V-5",
    "The stages of losing the input and building the prediction are more distinct in a masked LM than in a causal LM.",
    source=BOTTOM_UP,
    published="changes from layer 0 to 6, input and output together: 7.6 nats (masked LM, as in training) and 1.87 "
    "(causal LM), a ratio of 4.1",
    statistic="absolute change of the information about the input plus that about the output, layer 0 to the top: "
    "masked LM (inputs as in training) over causal LM above 1.5",
    reads=READS,
    controls=(
        Control("masked LM with shuffled labels", {**READS, **baselines(REPLACED)}),
        Control("untrained masked LM", {**READS, **untrained(REPLACED)}),
    ),
)
def v5(curves: Curves) -> list[Condition]:
    """The curves cover layers 0..L; the masked LM sees inputs corrupted as in training."""
    return [
        exceeds(
            "change of the masked LM over change of the causal LM",
            _change(curves, "masked") / _change(curves, "causal"),
            1.5,
            "ratio",
            published=4.1,
        )
    ]


_V6_READS = {**_curves.TASK_DISTANCES, **_curves.SEED_DISTANCES}


@claim(
    "representations:V-6",
    "The objective shapes representations more than the random initialisation does.",
    source=BOTTOM_UP,
    published="at layer 1 at most .332 between seeds and at least .408 between objectives; at layer 6 .370 and .535",
    statistic="at every layer the largest mean distance between seeds of one objective lies below the smallest "
    "distance between objectives, by over .02",
    reads=_V6_READS,
    controls=(
        seeds_alone(_V6_READS, tuple(_curves.TASK_DISTANCES), tuple(_curves.SEED_DISTANCES)),
        Control("untrained models", untrained(_V6_READS)),
    ),
    learned=OBJECTIVES,
)
def v6(curves: Curves) -> list[Condition]:
    """The curves cover layers 1..L.

    Every distance between objectives must exceed every distance between seeds.
    """
    pairs = list(product(_curves.TASK_DISTANCES, _curves.SEED_DISTANCES))
    gaps = np.concatenate([curves[task] - curves[seed] for task, seed in pairs], axis=1)
    layers = _curves.layer_names(curves[pairs[0][0]].shape[1], 1)
    return [
        exceeds(
            "distance between objectives minus distance between seeds",
            gaps,
            0.02,
            "1 − PWCCA",
            [f"{layer}, {task} against {seed}" for task, seed in pairs for layer in layers],
            published=0.076,
        )
    ]


CLOSEST, *OTHERS = _curves.TASK_DISTANCES


@claim(
    "representations:V-7",
    "From layer 2 on, translation and masked-LM encoders are closest to each other, and the causal LM is farther away.",
    source=BOTTOM_UP,
    cause="Of the three models, small translation encoders change their states least. At width 256, on sentences of 25 "
    "words, the difference has the published sign.",
    examined="paper",
    published="layer 2: .430 (translation–masked LM) against .475 and .438; layer 6: .535 against .603 and .603; not "
    "at layer 1: .423 against .408",
    statistic="at every layer from 2 on, the distance translation–masked LM lies below both distances to the causal LM",
    reads=_curves.TASK_DISTANCES,
    controls=(
        seeds_alone(_curves.TASK_DISTANCES, *_curves.TASK_DISTANCES),
        Control("shuffled rows", baselines(_curves.TASK_DISTANCES)),
        # Decides nothing: matched models start with the same encoder, and only the causal LM's mask differs.
        Control(
            "untrained models (translation and masked LM are one encoder before training)",
            untrained(_curves.TASK_DISTANCES),
            decisive=False,
        ),
    ),
    learned=OBJECTIVES,
)
def v7(curves: Curves) -> list[Condition]:
    """The curves cover layers 2..L, since the published curves show the opposite at layer 1."""
    gaps = [curves[other][:, 1:] - curves[CLOSEST][:, 1:] for other in OTHERS]
    layers = _curves.layer_names(gaps[0].shape[1], 2)
    return [
        exceeds(
            f"distance of another pair minus distance {CLOSEST}",
            np.concatenate(gaps, axis=1),
            0.0,
            "1 − PWCCA",
            [f"{layer}, {other}" for other in OTHERS for layer in layers],
            published=0.008,
        )
    ]
