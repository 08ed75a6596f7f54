"""representations:V-3. Layers are 0..L; nothing is masked."""

from .._clustering import clustering_control
from .._condition import Condition, exceeds
from .._curves import information
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL, MASKED
from .._shapes import layer_names
from .._sources import BOTTOM_UP
from .._table import untrained

READS = {"masked": information(MASKED, "input")}


def test(curves: Curves) -> list[Condition]:
    """A curve is U-shaped when some layer between the ends lies below both ends."""
    curve = curves["masked"]
    interior = curve[:, 1:-1]
    names = layer_names(interior.shape[1], 1)
    return [
        exceeds(
            "rise from the lowest layer between the ends to the top",
            curve[:, -1:] - interior,
            0.04,
            "nats",
            names,
            over="any",
            published=0.165,
        ),
        exceeds(
            "fall from layer 0 to the lowest layer between the ends",
            curve[:, :1] - interior,
            0.0,
            "nats",
            names,
            over="any",
            published=0.28,
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
        Control(name="causal LM", reads={"masked": information(CAUSAL, "input")}),
        Control(name="untrained model", reads=untrained(READS)),
        clustering_control(READS),
    ),
    learned=(MASKED,),
    minimum_seeds=1,
)
