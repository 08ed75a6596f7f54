"""time:T17. Divergence between seeds' outputs."""

from .._apart_over_time import seeds_apart
from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._model_group import CAUSAL
from .._sources import FOUR_PHASES
from .._table import Reading

READS: dict[str, Reading] = {"moves": seeds_apart(CAUSAL)}


def test(curves: Curves) -> list[Condition]:
    rise, fall = (curves["moves"][:, [place]] for place in range(2))
    return [
        exceeds("divergence between seeds: rise from a minimum to a later maximum", rise, 0.1, "nats"),
        # Any curve that has risen may fall a little.
        exceeds("divergence between seeds: fall from that maximum to the end", fall, 0.0, "nats", alone=False),
    ]


FINDING = Finding(
    id="time:T17",
    claim="Seeds are alike, drift apart and come together again.",
    source=FOUR_PHASES,
    published="four phases of the divergence between outputs of seeds; no number",
    statistic=(
        "KL between the predictions of two seeds at one update, of each seed and the next: a maximum before the end "
        "that is .1 nats above an earlier minimum, and above the end (threshold ours)"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="step 0 at all checkpoints, resampled", reads={"moves": seeds_apart(CAUSAL, at_start=True)}),
    ),
    learned=(CAUSAL,),
)
