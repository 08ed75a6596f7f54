"""representations:V-14. Layers are 1..L."""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._curves import position
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from .._shapes import falls, layer_names, step_names
from .._sources import BOTTOM_UP
from .._table import baselines, untrained

READS = {"causal LM": position(CAUSAL), "masked LM": position(MASKED), "translation": position(TRANSLATION)}


def test(curves: Curves) -> list[Condition]:
    translation = curves["translation"]
    gaps = {name: curves[name] - translation for name in ("causal LM", "masked LM")}
    layers = layer_names(translation.shape[1], 1)
    steps = {name: -falls(curve) for name, curve in curves.items()}
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
            [f"{step}, {name}" for name in steps for step in step_names(len(layers) - 1, 1)],
            published=0.3,
        ),
    ]


FINDING = Finding(
    id="representations:V-14",
    claim="A translation encoder keeps the position of its tokens better than language models; all lose it upwards.",
    source=BOTTOM_UP,
    published=(
        "distance in position at layers 1 to 6: translation 1.3 1.6 2.65 3.4 4.15 4.5; causal LM 2.65 4.3 5.4 6.3 7.2 "
        "7.7; masked LM 2.4 4.1 5.5 6.5 7.6 8.0 (longer sentences than those of the presets)"
    ),
    statistic=(
        "mean distance in position to the 50 nearest occurrences of the same token: both language models above the "
        "translation encoder by over .3 tokens at every layer; it rises at every layer in all three"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, ("causal LM", "masked LM"), "translation"),
        Control(name="all pairs of occurrences", reads=baselines(READS)),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=OBJECTIVES,
)
