"""representations:Z-3. Held-out words, states after the map."""

from .._alignment import gain, in_place_of_aligned, pair
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading
from .._sources import ENCODER_SPACES

UNITS = {
    "retrieval forward": "share of words",
    "retrieval backward": "share of words",
    "rsa": "rank correlation",
    "pwcca": "PWCCA",
}
READS: dict[str, Reading] = {name: one for metric in ("mse", *UNITS) for name, one in pair(metric, "mapped").items()}


def test(curves: Curves) -> list[Condition]:
    falls = Condition(
        name="fall of the squared error", values=-gain(curves, "mse"), labels=[""], threshold=0, unit="squared units"
    )
    rises = [
        Condition(name=f"rise of {metric}", values=gain(curves, metric), labels=[""], threshold=0, unit=unit)
        for metric, unit in UNITS.items()
    ]
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
    reads=READS,
    test=test,
    controls=(
        Control(name="trained on shuffled links", reads=in_place_of_aligned(READS, "shuffled")),
        Control(name="trained on the regulariser only", reads=in_place_of_aligned(READS, "regulariser only")),
    ),
    learned=("masked-lm", "translation"),
)
