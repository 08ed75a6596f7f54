"""representations:Z-6. Layers are 0..L."""

import numpy as np

from .._condition import Condition, exceeds
from .._curves import geometry
from .._finding import Control, Curves, Finding
from .._model_group import MASKED, TRANSLATION
from .._shapes import step_names
from .._sources import ENCODER_SPACES
from .._table import untrained

READS = {"translation": geometry(TRANSLATION, "average_similarity")}
_RATIO = 1.5


def test(curves: Curves) -> list[Condition]:
    """A difference, not a ratio: an earlier step may be zero or a fall, which the last must exceed too."""
    steps = np.diff(curves["translation"], axis=1)
    earlier, last = steps[:, :-1], steps[:, -1:]
    return [
        exceeds(
            f"rise at the last layer, by itself and less {_RATIO} times each earlier one",
            np.concatenate([last, last - _RATIO * earlier], axis=1),
            0.0,
            "cosine",
            ["by itself", *step_names(earlier.shape[1], 0)],
        ),
    ]


FINDING = Finding(
    id="representations:Z-6",
    claim=(
        "In a translation encoder the states of random words become alike by a jump at the last layer; in a masked LM "
        "they do so gradually."
    ),
    source=ENCODER_SPACES,
    published="no number: the figure that shows it is not readable",
    statistic=(
        "mean cosine of random word occurrences, translation encoder: it rises at the last layer, by over 1.5 times "
        "its largest rise at an earlier one; the masked LM does not meet this"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="masked LM", reads={"translation": geometry(MASKED, "average_similarity")}),
        Control(name="untrained model", reads=untrained(READS)),
    ),
    learned=(TRANSLATION, MASKED),
)
