"""heads:M4. Heads of one kind of attention ablated, in the order of their importance."""

import numpy as np

from .._ablated_heads import MATTERS, SHARES, RemovalCurve
from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._reading import Reading, untrained
from .._sources import SIXTEEN_HEADS

KINDS = {"encoder": "encoder-self", "decoder": "decoder-self", "cross": "decoder-cross"}
READS: dict[str, Reading] = {
    name: RemovalCurve(objective="translation", order="importance", kind=kind) for name, kind in KINDS.items()
}
RANDOM: dict[str, Reading] = {
    name: RemovalCurve(objective="translation", order="random", kind=kind) for name, kind in KINDS.items()
}


def test(curves: Curves) -> list[Condition]:
    gaps = [curves["cross"][:, 3:] - curves[name][:, 3:] for name in ("encoder", "decoder")]
    return [
        Condition(
            name="loss without cross-attention heads less that without as many of another kind",
            values=np.concatenate(gaps, axis=1),
            labels=[f"{share:.0%}, {name} self-attention" for name in ("encoder", "decoder") for share in SHARES[3:]],
            threshold=MATTERS,
            unit="nats per token",
        )
    ]


FINDING = Finding(
    id="heads:M4",
    claim="Cross-attention is the kind of attention that needs its heads.",
    source=SIXTEEN_HEADS,
    published="beyond 60 % of its heads cross-attention collapses; the other kinds keep about 30 BLEU with 20 % left",
    statistic=(
        "with 60 and 80 % of a kind's heads removed in order of importance, the loss is higher for cross-attention "
        f"than for the encoder's and the decoder's self-attention, by over {MATTERS} nats per token"
    ),
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model", reads=untrained(READS)),
        Control(name="random orders", reads=RANDOM, decisive=False),
    ),
    learned=("translation",),
    minimum_seeds=1,
)
