"""representations:V-9. Change between consecutive layers 1-2 .. (L−1)-L."""

import numpy as np

from .._condition import Condition, exceeds, stays_below
from .._curves import change
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from .._shapes import later_over_earlier, pair_names
from .._sources import BOTTOM_UP
from .._table import untrained

READS = {"translation": change(TRANSLATION), "causal": change(CAUSAL), "masked": change(MASKED)}

# "Non-increasing" must allow for equal layers, and an interval around equality always includes it. An increase
# below the claim's own least effect counts as none.
TOLERANCE = 1.1


def test(curves: Curves) -> list[Condition]:
    ratios = {model: later_over_earlier(curve) for model, curve in curves.items()}
    masked = curves["masked"]
    num = masked.shape[1]
    names = pair_names(num, 1)
    return [
        exceeds(
            "last change of the masked LM over each earlier one",
            masked[:, -1:] / masked[:, :-1],
            1.1,
            "ratio",
            [f"{layer}-{layer + 1}" for layer in range(1, num)],
            published=1.23,
        ),
        stays_below(
            "a later change of the translation encoder over an earlier one",
            ratios["translation"],
            TOLERANCE,
            "ratio",
            names,
            published=1.0,
            alone=False,  # a model whose layers all change tokens alike never changes them more
        ),
        stays_below(
            "the last change of the translation encoder over its first",
            curves["translation"][:, -1:] / curves["translation"][:, :1],
            1 / TOLERANCE,
            "ratio",
            published=0.605,
        ),
        _somewhere("a rise of the causal LM's change", ratios["causal"], names, 1.22),
        _somewhere("a fall of the causal LM's change", 1 / ratios["causal"], names, 1.15),
        _somewhere("a fall of the masked LM's change", 1 / ratios["masked"], names, 1.42),
    ]


def _somewhere(name: str, ratios: np.ndarray, labels: list[str], published: float) -> Condition:
    """Any noise rises somewhere and falls somewhere: such a condition counts with the others only."""
    return exceeds(name, ratios, 1.0, "ratio", labels, over="any", alone=False, published=published)


FINDING = Finding(
    id="representations:V-9",
    claim=(
        "Layers of a translation encoder change tokens less and less; language models do not, and a masked LM changes "
        "them most at the last layer."
    ),
    source=BOTTOM_UP,
    published=(
        "change at layers 1-2 to 5-6: translation .0645 .0645 .053 .0495 .039; causal LM .075 .067 .065 .079 .0705; "
        "masked LM .0895 .077 .063 .0655 .110 (last over previous maximum: 1.23)"
    ),
    statistic=(
        "distance between consecutive layers: masked LM's last over every earlier one above 1.1; translation encoder "
        "never more than 1.1 times an earlier one, and its last under .91 times its first; causal LM and masked LM "
        "both rise and fall"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="untrained models", reads=untrained(READS)),),
    learned=OBJECTIVES,
)
