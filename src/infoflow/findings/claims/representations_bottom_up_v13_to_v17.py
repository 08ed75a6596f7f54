"""Claims about representations: V13, V14, V15, V16, V17."""

from itertools import permutations
from math import factorial

import numpy as np

from infoflow.foundation import stream

from .. import _curves
from .._control import seeds_alone
from .._curves import num_layers
from .._finding import CORRELATION, NO_CAUSE, Condition, Control, Curves, claim, exceeds
from .._model_group import CAUSAL, MASKED, NAMES, OBJECTIVES, TRANSLATION
from .._sources import BOTTOM_UP
from .._table import Reading, baselines, untrained
from .._two_estimates import by_usable_information

_V13_READS = {
    "causal": _curves.identity(CAUSAL),
    "masked": _curves.identity(MASKED),
    "translation": _curves.identity(TRANSLATION),
}


@claim(
    "representations:V-13",
    "At the top layer, a masked LM preserves token identity best, a translation encoder less and a causal LM least.",
    source=BOTTOM_UP,
    cause="A deep decoder, or short training: the claim held at two widths with one decoder layer and ten million "
    "tokens.",
    examined="scale",
    published=".976 (masked LM), .916 (translation) and .768 (causal LM) of 50 neighbours at layer 6",
    statistic="share of the 50 nearest neighbours that are the same token, top layer: masked LM over translation over "
    "causal LM, each gap above .015",
    reads=_V13_READS,
    controls=(
        seeds_alone(_V13_READS, "causal", "masked", "translation"),
        Control("chance", baselines(_V13_READS)),
        Control("untrained models", untrained(_V13_READS)),
    ),
)
def v13(curves: Curves) -> list[Condition]:
    causal, masked, translation = (curves[name][:, -1:] for name in ("causal", "masked", "translation"))
    return [
        exceeds(
            "gap of the share of neighbours with the same token, top layer",
            np.concatenate([masked - translation, translation - causal], axis=1),
            0.015,
            "share of neighbours",
            ["masked LM over translation", "translation over causal LM"],
            published=0.06,
        )
    ]


_V14_READS = {
    "causal LM": _curves.position(CAUSAL),
    "masked LM": _curves.position(MASKED),
    "translation": _curves.position(TRANSLATION),
}


@claim(
    "representations:V-14",
    "A translation encoder keeps the position of its tokens better than language models do; all lose it with depth.",
    source=BOTTOM_UP,
    cause="Short sentences: on sentences of at least 11 words the effect rose from .11 to .33 tokens (.3 needed).",
    examined="reasons",
    published="distance in position at layers 1 to 6: translation 1.3 1.6 2.65 3.4 4.15 4.5; causal LM 2.65 4.3 5.4 "
    "6.3 7.2 7.7; masked LM 2.4 4.1 5.5 6.5 7.6 8.0 (longer sentences than those of the presets)",
    statistic="mean distance in position to the 50 nearest occurrences of the same token: both language models lie "
    "over .3 tokens above the translation encoder at every layer; the distance rises at every layer in all three",
    reads=_V14_READS,
    controls=(
        seeds_alone(_V14_READS, ("causal LM", "masked LM"), "translation"),
        Control("all pairs of occurrences", baselines(_V14_READS)),
        Control("untrained models", untrained(_V14_READS)),
    ),
)
def v14(curves: Curves) -> list[Condition]:
    """The curves cover layers 1..L."""
    translation = curves["translation"]
    gaps = {name: curves[name] - translation for name in ("causal LM", "masked LM")}
    layers = _curves.layer_names(translation.shape[1], 1)
    steps = {name: -_curves.falls(curve) for name, curve in curves.items()}
    return [
        exceeds(
            "distance in position to neighbours, beyond that of the translation encoder",
            np.concatenate(list(gaps.values()), axis=1),
            0.3,
            "tokens",
            [f"{layer}, {name}" for name in gaps for layer in layers],
            published=1.1,
        ),
        exceeds(
            "rise of the distance at every layer",
            np.concatenate(list(steps.values()), axis=1),
            0.0,
            "tokens",
            [f"{step}, {name}" for name in steps for step in _curves.step_names(len(layers) - 1, 1)],
            published=0.3,
        ),
    ]


_V15_READS = {
    "causal left": _curves.context(CAUSAL, "left"),
    "causal right": _curves.context(CAUSAL, "right"),
    "masked left": _curves.context(MASKED, "left"),
    "masked right": _curves.context(MASKED, "right"),
    "translation left": _curves.context(TRANSLATION, "left"),
}


UNIT = "share of neighbours"


def _rise(name: str, values: np.ndarray, threshold: float, published: float) -> Condition:
    return exceeds(name, values[:, None], threshold, UNIT, published=published)


@claim(
    "representations:V-15",
    "A causal LM trades the previous token for the next one; a masked LM gathers both in low layers; a "
    "translation encoder gathers the previous token.",
    source=BOTTOM_UP,
    cause=NO_CAUSE,
    examined="reasons",
    published="causal LM left .370 .373 .351 .320 .282 .248, right .130 .131 .139 .146 .163 .161; masked LM left .223 "
    ".242 .238 .234 .229 .228, right .245 .281 .272 .266 .262 .253; translation left .142 .192 .234 .246 .250 .240",
    statistic="share of the 50 nearest occurrences of the same token with the same token before (left) or after "
    "(right): causal LM left falls at every layer after the second (of six) and by over .03, right rises by over "
    ".007; masked LM left and right are highest at the second; translation left rises",
    reads=_V15_READS,
    controls=(Control("chance", baselines(_V15_READS)), Control("untrained models", untrained(_V15_READS))),
)
def v15(curves: Curves) -> list[Condition]:
    """The curves cover layers 1..L.

    Layer 2 of 6 in the source corresponds to a third of the depth.
    """
    left, right = curves["causal left"], curves["causal right"]
    early = _curves.early_layer(left.shape[1]) - 1
    drop = _curves.falls(left[:, early:])
    masked = {"token before": curves["masked left"], "token after": curves["masked right"]}
    others = [layer for layer in range(left.shape[1]) if layer != early]
    names = _curves.layer_names(left.shape[1], 1)
    return [
        _rise("fall for token before, causal LM, layer 2 of 6 to the top", left[:, early] - left[:, -1], 0.03, 0.125),
        _rise("rise for token after, causal LM, layer 1 to the top", right[:, -1] - right[:, 0], 0.007, 0.031),
        exceeds(
            "fall for token before, causal LM, at every layer after layer 2 of 6",
            drop,
            0.0,
            UNIT,
            _curves.step_names(drop.shape[1], early + 1),
            published=0.022,
        ),
        exceeds(
            "the masked LM's peak at layer 2 of 6 over all other layers",
            np.concatenate([curve[:, [early]] - curve[:, others] for curve in masked.values()], axis=1),
            0.0,
            UNIT,
            [f"{names[layer]}, {side}" for side in masked for layer in others],
            published=0.004,
        ),
        _rise(
            "rise for token before, translation encoder, layer 1 to the top",
            curves["translation left"][:, -1] - curves["translation left"][:, 0],
            0.0,
            0.098,
        ),
    ]


_V16_READS = {
    "masked full": _curves.tag(MASKED, "ccg"),
    "translation full": _curves.tag(TRANSLATION, "ccg"),
    "causal left": _curves.tag(CAUSAL, "ccg_left"),
    "causal right": _curves.tag(CAUSAL, "ccg_right"),
}


_V16_UNIT = "share of neighbours"


def _peak(what: str, curve: np.ndarray, fall: float, published: float) -> Condition:
    """State that one inner layer lies above layer 1, and by `fall` above the top."""
    inner = curve[:, 1:-1]
    return exceeds(
        f"height of {what} at an inner layer over the top, or over layer 1 and {fall} more, whichever is less",
        np.minimum(inner - curve[:, -1:], inner - curve[:, :1] + fall),
        fall,
        _V16_UNIT,
        _curves.layer_names(inner.shape[1], 2),
        over="any",
        published=published,
    )


@claim(
    "representations:V-16",
    "Low layers gather syntax: towards the top, it fades again in a masked LM and in the past-looking part of a "
    "causal LM, keeps rising in the future-looking part of a causal LM, and stays level in a translation encoder.",
    source=BOTTOM_UP,
    published="CCG category: masked LM .456 .516 .543 .548 .538 .528, translation .390 .485 .543 .541 .536 .536; "
    "causal LM left part .494 .517 .527 .523 .503 .476, right part .530 .555 .569 .573 .583 .579",
    statistic="share of the 50 nearest occurrences of the same token with the same CCG category or part: masked LM "
    "peaks between the ends and falls by over .005, causal LM's left part likewise by over .012, its right part rises "
    "up to the last layer but one; from the third layer (of six) on, translation stays within a quarter of its rise",
    reads=_V16_READS,
    controls=(
        Control("chance", baselines(_V16_READS)),
        Control(
            "translation encoder instead of the language models",
            {
                "masked full": _curves.tag(TRANSLATION, "ccg"),
                "translation full": _curves.tag(TRANSLATION, "ccg"),
                "causal left": _curves.tag(TRANSLATION, "ccg_left"),
                "causal right": _curves.tag(TRANSLATION, "ccg_right"),
            },
        ),
        Control("untrained models", untrained(_V16_READS)),
    ),
    learned=OBJECTIVES,
)
def v16(curves: Curves) -> list[Condition]:
    """The curves cover layers 1..L.

    A curve has an inner peak if some layer between the ends lies above both ends.
    """
    right = curves["causal right"]
    steps = -_curves.falls(right[:, :-1])
    full, middle = curves["translation full"], _curves.middle_layer(curves["translation full"].shape[1]) - 1
    # positive at layers above the middle that differ from it by less than a quarter of the rise up to it
    plateau = (full[:, [middle]] - full[:, :1]) / 4 - np.abs(full[:, middle + 1 :] - full[:, [middle]])
    first_late = right.shape[1] - plateau.shape[1] + 1
    return [
        _peak("the masked LM's category", curves["masked full"], 0.005, 0.020),
        _peak("the causal LM's left part", curves["causal left"], 0.012, 0.045),
        exceeds(
            "a quarter of the translation encoder's rise up to layer 3 of 6, minus its change since",
            plateau,
            0.0,
            _V16_UNIT,
            _curves.layer_names(plateau.shape[1], first_late),
            published=0.03125,
        ),
        exceeds(
            "rise of the causal LM's right part at every layer but the last",
            steps,
            0.0,
            _V16_UNIT,
            _curves.step_names(steps.shape[1], 1),
            published=0.004,
        ),
    ]


_V17_READS: dict[str, Reading] = {
    **{f"{o.name} identity": _curves.identity(o) for o in OBJECTIVES},
    **{f"{o.name} information": _curves.information(o, "input", first=1) for o in OBJECTIVES},
}


def permuted_layers(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The information with layers permuted in the same order for each model; identity stays unchanged."""
    num_layers = next(iter(curves.values())).shape[1]
    orders = _orders(num_layers)
    return {name: curve[0, orders] if name.endswith("information") else curve for name, curve in curves.items()}


def _orders(num_layers: int) -> np.ndarray:
    """All orders of up to seven layers; for more layers, as many random orders as seven layers have orders."""
    if num_layers <= 7:
        return np.array(list(permutations(range(num_layers))))
    generator = stream("findings", "layer orders", num_layers)
    return generator.permuted(np.tile(np.arange(num_layers), (factorial(7), 1)), axis=1)


@by_usable_information
@claim(
    "representations:V-17",
    "Two measures agree: layers that encode more about their input token also keep its occurrences closer together.",
    source=BOTTOM_UP,
    cause="Positions: with the mean state of each position subtracted, the claim held (rank correlation .96).",
    examined="reasons",
    published="Spearman .94 to 1 in each model, from the published curves",
    statistic="identity neighbours and mutual information with the input token have a Spearman correlation over layers "
    "1..L above .8 in every model",
    reads=_V17_READS,
    controls=(
        Control(
            "layers in permuted order (95 % quantile)",
            _V17_READS,
            transform=permuted_layers,
            permuted=("layers", num_layers),
        ),
    ),
    minimum_seeds=1,
)
def v17(curves: Curves) -> list[Condition]:
    """The curves cover layers 1..L."""
    agreement = [_curves.spearman(curves[f"{o.name} identity"], curves[f"{o.name} information"]) for o in OBJECTIVES]
    return [
        exceeds(
            "rank correlation over layers of identity neighbours and information about the input",
            np.concatenate(agreement, axis=1),
            0.8,
            "Spearman's rho",
            [NAMES[o] for o in OBJECTIVES],
            published=0.94,
            bounds=CORRELATION,
        )
    ]
