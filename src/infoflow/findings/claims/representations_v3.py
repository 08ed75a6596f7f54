"""representations:V-3. Layers are 0..L; nothing is masked."""

from .._clustering import clustering_control
from .._condition import Condition
from .._curves import information
from .._finding import Control, Curves, Finding
from .._reading import untrained
from .._shapes import layer_names
from .._sources import BOTTOM_UP

READS = {"masked": information("masked-lm", "input")}


def test(curves: Curves) -> list[Condition]:
    """A curve is U-shaped when some layer between the ends lies below both ends."""
    curve = curves["masked"]
    interior = curve[:, 1:-1]
    names = layer_names(interior.shape[1], 1)
    return [
        Condition(
            name="rise from the lowest layer between the ends to the top",
            values=curve[:, -1:] - interior,
            labels=names,
            threshold=0.04,
            unit="nats",
            over="any",
        ),
        Condition(
            name="fall from layer 0 to the lowest layer between the ends",
            values=curve[:, :1] - interior,
            labels=names,
            threshold=0.0,
            unit="nats",
            over="any",
            alone=False,  # a causal LM falls too: what counts is that the masked LM rises again
        ),
    ]


FINDING = Finding(
    id="representations:V-3",
    claim="A masked language model first loses and then recovers the identity of its input token.",
    source=BOTTOM_UP,
    published=(
        "5.215 5.21 5.185 5.045 4.935 4.99 5.10 nats at layers 0 to 6, nothing masked: a rise of .165 from layer 4"
    ),
    statistic=(
        "mutual information with the input token, nothing masked, is lowest at a layer between the ends, and rises "
        "from there to the top by over .04 nats"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="causal LM", reads={"masked": information("causal-lm", "input")}),
        Control(name="untrained model", reads=untrained(READS)),
        clustering_control(READS),
    ),
    learned=("masked-lm",),
    minimum_seeds=1,
)
