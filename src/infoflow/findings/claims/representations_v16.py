"""representations:V-16. Layers are 1..L."""

import numpy as np

from .._condition import Condition, exceeds
from .._curves import tag
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED, OBJECTIVES, TRANSLATION
from .._shapes import falls, layer_names, middle_layer, step_names
from .._sources import BOTTOM_UP
from .._table import baselines, untrained

READS = {
    "masked full": tag(MASKED, "ccg"),
    "translation full": tag(TRANSLATION, "ccg"),
    "causal left": tag(CAUSAL, "ccg_left"),
    "causal right": tag(CAUSAL, "ccg_right"),
}
UNIT = "share of neighbours"


def test(curves: Curves) -> list[Condition]:
    """A curve peaks inside when some layer between the ends lies above both ends."""
    right = curves["causal right"]
    steps = -falls(right[:, :-1])
    plateau = _plateau(curves["translation full"])
    first_late = right.shape[1] - plateau.shape[1] + 1
    return [
        _peak("the masked LM's category", curves["masked full"], 0.005, 0.020),
        _peak("the causal LM's left part", curves["causal left"], 0.012, 0.045),
        exceeds(
            "a quarter of the translation encoder's rise up to layer 3 of 6, less its change since",
            plateau,
            0.0,
            UNIT,
            layer_names(plateau.shape[1], first_late),
            published=0.03125,
        ),
        exceeds(
            "rise of the causal LM's right part at every layer but the last",
            steps,
            0.0,
            UNIT,
            step_names(steps.shape[1], 1),
            published=0.004,
        ),
    ]


def _peak(what: str, curve: np.ndarray, fall: float, published: float) -> Condition:
    """One inner layer lies above layer 1, and by `fall` above the top."""
    inner = curve[:, 1:-1]
    return exceeds(
        f"height of {what} at an inner layer over the top, or over layer 1 and {fall} more, whichever is less",
        np.minimum(inner - curve[:, -1:], inner - curve[:, :1] + fall),
        fall,
        UNIT,
        layer_names(inner.shape[1], 2),
        over="any",
        published=published,
    )


def _plateau(curve: np.ndarray) -> np.ndarray:
    """Positive at the layers above the middle that lie near it: by less than a quarter of the rise up to it."""
    middle = middle_layer(curve.shape[1]) - 1
    rise = curve[:, [middle]] - curve[:, :1]
    return rise / 4 - np.abs(curve[:, middle + 1 :] - curve[:, [middle]])


FINDING = Finding(
    id="representations:V-16",
    claim=(
        "Syntax is gathered at the bottom: a masked LM's and a causal LM's past-looking part fade again towards the "
        "top, a causal LM's future-looking part keeps rising, a translation encoder keeps what it has."
    ),
    source=BOTTOM_UP,
    published=(
        "CCG category: masked LM .456 .516 .543 .548 .538 .528, translation .390 .485 .543 .541 .536 .536; causal LM "
        "left part .494 .517 .527 .523 .503 .476, right part .530 .555 .569 .573 .583 .579"
    ),
    statistic=(
        "share of the 50 nearest occurrences of the same token with the same CCG category or part: masked LM peaks "
        "between the ends and falls by over .005, causal LM's left part likewise by over .012, its right part rises "
        "up to the last layer but one, translation stays within a quarter of its rise from the third layer (of six) on"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="chance", reads=baselines(READS)),
        Control(
            name="translation encoder in place of the language models",
            reads={
                "masked full": tag(TRANSLATION, "ccg"),
                "translation full": tag(TRANSLATION, "ccg"),
                "causal left": tag(TRANSLATION, "ccg_left"),
                "causal right": tag(TRANSLATION, "ccg_right"),
            },
        ),
        Control(name="untrained models", reads=untrained(READS)),
    ),
    learned=OBJECTIVES,
)
