"""heads:C5. Positional and broad heads of the masked LM, and heads of one layer alike."""

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding
from .._head_numbers import best_heads, heads
from .._model_group import MASKED
from .._sources import CLARK
from .._table import Reading, Table, untrained


def _surface(statistic: str) -> Table:
    return heads("head_surface", MASKED, statistic=statistic)


READS: dict[str, Reading] = {
    "positions": best_heads(_surface("previous"), _surface("next")),
    "broad": best_heads(_surface("entropy"), less="baseline"),
    "layers": best_heads(heads("head_layer_distance", MASKED, pairs="difference"), less="baseline"),
}

BROAD = -1.05  # nats from uniform attention: 3.8 where uniform attention over 128 tokens has 4.85


def test(curves: Curves) -> list[Condition]:
    return [
        exceeds(
            "mean attention of the most positional head",
            curves["positions"],
            0.5,
            "share of attention",
            ["previous token", "next token"],
        ),
        exceeds(
            "entropy of the broadest head, less that of uniform attention",
            curves["broad"],
            BROAD,
            "nats",
            alone=False,  # all heads attend broadly before training
        ),
        exceeds(
            "divergence of heads between layers less that within, beyond permuted layers", curves["layers"], 0.0, "nats"
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
    learned=(MASKED,),
    minimum_seeds=1,
)
