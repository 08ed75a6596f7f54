"""representations:Z-3. Held-out words, states after the map."""

from .._alignment import controls, gain, pairs
from .._condition import Condition, exceeds
from .._finding import Curves, Finding
from .._model_group import MASKED, TRANSLATION
from .._sources import ENCODER_SPACES

UNITS = {
    "retrieval forward": "share of words",
    "retrieval backward": "share of words",
    "rsa": "rank correlation",
    "pwcca": "PWCCA",
}
METRICS = ("mse", *UNITS)


def test(curves: Curves) -> list[Condition]:
    falls = exceeds("fall of the squared error", -gain(curves, "mse"), 0, "squared units")
    rises = [exceeds(f"rise of {metric}", gain(curves, metric), 0, unit) for metric, unit in UNITS.items()]
    return [falls, *rises]


FINDING = Finding(
    id="representations:Z-3",
    claim="Alignment brings a masked LM's space nearer to a translation encoder's than any linear map of it.",
    source=ENCODER_SPACES,
    published="directions only: error falls; retrieval, RSA and PWCCA rise",
    statistic=(
        "aligned encoder against the unaligned one under its best linear map, on held-out words: squared error lower; "
        "retrieval both ways, RSA and PWCCA to the translation encoder higher"
    ),
    reads=pairs(METRICS, "mapped"),
    test=test,
    controls=controls(METRICS, "mapped"),
    learned=(MASKED, TRANSLATION),
)
