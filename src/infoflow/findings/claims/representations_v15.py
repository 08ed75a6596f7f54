"""representations:V-15. Layers are 1..L."""

import numpy as np

from .._condition import Condition, exceeds
from .._curves import context
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from .._shapes import early_layer, falls, layer_names, step_names
from .._sources import BOTTOM_UP
from .._table import baselines, untrained

READS = {
    "causal left": context(CAUSAL, "left"),
    "causal right": context(CAUSAL, "right"),
    "masked left": context(MASKED, "left"),
    "masked right": context(MASKED, "right"),
    "translation left": context(TRANSLATION, "left"),
}
UNIT = "share of neighbours"


def test(curves: Curves) -> list[Condition]:
    """The published layer 2 of 6 stands for a third of the depth."""
    left, right = curves["causal left"], curves["causal right"]
    early = early_layer(left.shape[1]) - 1
    drop = falls(left[:, early:])
    masked = {side: curves[f"masked {side}"] for side in ("left", "right")}
    others = [layer for layer in range(left.shape[1]) if layer != early]
    names = layer_names(left.shape[1], 1)
    return [
        _rise("fall of the causal LM's left token, layer 2 of 6 to the top", left[:, early] - left[:, -1], 0.03, 0.125),
        _rise("rise of the causal LM's right token, layer 1 to the top", right[:, -1] - right[:, 0], 0.007, 0.031),
        exceeds(
            "fall of the causal LM's left token at every layer after layer 2 of 6",
            drop,
            0.0,
            UNIT,
            step_names(drop.shape[1], early + 1),
            published=0.022,
        ),
        exceeds(
            "the masked LM's peak at layer 2 of 6 over every other layer",
            np.concatenate([curve[:, [early]] - curve[:, others] for curve in masked.values()], axis=1),
            0.0,
            UNIT,
            [f"{names[layer]}, {side}" for side in masked for layer in others],
            published=0.004,
        ),
        _rise(
            "rise of the translation encoder's left token, layer 1 to the top",
            curves["translation left"][:, -1] - curves["translation left"][:, 0],
            0.0,
            0.098,
        ),
    ]


def _rise(name: str, values: np.ndarray, threshold: float, published: float) -> Condition:
    return exceeds(name, values[:, None], threshold, UNIT, published=published)


FINDING = Finding(
    id="representations:V-15",
    claim=(
        "A causal LM trades the token before for the token after; a masked LM gathers both at the bottom; a "
        "translation encoder gathers the token before."
    ),
    source=BOTTOM_UP,
    published=(
        "causal LM left .370 .373 .351 .320 .282 .248, right .130 .131 .139 .146 .163 .161; masked LM left .223 .242 "
        ".238 .234 .229 .228, right .245 .281 .272 .266 .262 .253; translation left .142 .192 .234 .246 .250 .240"
    ),
    statistic=(
        "share of the 50 nearest occurrences of the same token with the same token before (left) or after (right): "
        "causal LM left falls at every layer after the second (of six) and by over .03, right rises by over .007; "
        "masked LM left and right are highest at the second; translation left rises"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="chance", reads=baselines(READS)), Control(name="untrained models", reads=untrained(READS))),
    learned=OBJECTIVES,
)
