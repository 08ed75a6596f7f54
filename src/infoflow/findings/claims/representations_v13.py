"""representations:V-13. The top layer."""

import numpy as np

from .._chance import seeds_alone
from .._condition import Condition, exceeds
from .._curves import identity
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from .._sources import BOTTOM_UP
from .._table import baselines, untrained

READS = {"causal": identity(CAUSAL), "masked": identity(MASKED), "translation": identity(TRANSLATION)}


def test(curves: Curves) -> list[Condition]:
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


FINDING = Finding(
    id="representations:V-13",
    claim="At the top layer a masked LM preserves token identity best, a translation encoder less, a causal LM least.",
    source=BOTTOM_UP,
    published=".976 (masked LM), .916 (translation) and .768 (causal LM) of 50 neighbours at layer 6",
    statistic=(
        "share of the 50 nearest neighbours that are the same token, top layer: masked LM over translation over "
        "causal LM, each gap above .015"
    ),
    reads=READS,
    test=test,
    controls=(
        seeds_alone(READS, "causal", "masked", "translation"),
        Control(name="chance", reads=baselines(READS)),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=OBJECTIVES,
)
