"""heads:C5. Positional and broad heads of the masked LM, and heads of one layer alike."""

from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._heads import BestHeads
from .._reading import Reading, untrained
from .._sources import CLARK


def _surface(statistic: str) -> dict[str, str]:
    return {"statistic": statistic}


READS: dict[str, Reading] = {
    "positions": BestHeads(
        table="head_surface", objective="masked-lm", columns=(_surface("previous"), _surface("next"))
    ),
    "broad": BestHeads(table="head_surface", objective="masked-lm", columns=(_surface("entropy"),), less="baseline"),
    "layers": BestHeads(
        table="head_layer_distance", objective="masked-lm", columns=({"pairs": "difference"},), less="baseline"
    ),
}

BROAD = -1.05  # nats from uniform attention: 3.8 where uniform attention over 128 tokens has 4.85


def test(curves: Curves) -> list[Condition]:
    return [
        Condition(
            name="mean attention of the most positional head",
            values=curves["positions"],
            labels=["previous token", "next token"],
            threshold=0.5,
            unit="share of attention",
        ),
        Condition(
            name="entropy of the broadest head, less that of uniform attention",
            values=curves["broad"],
            labels=["all layers"],
            threshold=BROAD,
            unit="nats",
        ),
        Condition(
            name="divergence of heads between layers less that within, beyond permuted layers",
            values=curves["layers"],
            labels=["all layers"],
            threshold=0.0,
            unit="nats",
        ),
    ]


FINDING = Finding(
    id="heads:C5",
    claim="A masked LM has heads for the previous and for the next token and heads that attend broadly, and heads of "
    "one layer attend alike.",
    source=CLARK,
    published="BERT-base: 4 heads (layers 2, 4, 7, 8) with over 50 % on the previous token, 5 (layers 1, 2, 2, 3, 6) "
    "on the next; broad heads in the lowest layers; heads of one layer lie together in a map of their distances",
    statistic=(
        "some head has over half of its attention on the previous token and some on the next, some head's entropy is "
        "within 1.05 nats of uniform attention, and heads of one layer diverge less than heads with permuted layers"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=("masked-lm",),
    minimum_seeds=1,
)
