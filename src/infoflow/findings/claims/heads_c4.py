"""heads:C4. The masked LM's attention to SEP does nothing."""

import numpy as np

from .._condition import Condition, exceeds, stays_below
from .._finding import Control, Curves, Finding
from .._head_numbers import heads, layer_means
from .._model_group import MASKED
from .._sources import CLARK
from .._table import Reading, untrained


def _surface(statistic: str) -> Reading:
    return layer_means(heads("head_surface", MASKED, statistic=statistic))


READS: dict[str, Reading] = {
    "mass": _surface("sep"),
    "own": _surface("sep_to_sep"),
    "gradient": layer_means(heads("head_special_gradient", MASKED), ratio=True),
}


def test(curves: Curves) -> list[Condition]:
    layer = int(np.nanargmax(curves["mass"][0]))
    at = [f"block {layer}, where SEP has most attention"]
    mass, own, gradient = (curves[name][:, layer : layer + 1] for name in ("mass", "own", "gradient"))
    return [
        exceeds("attention to SEP", mass, 0.5, "share of attention", at),
        exceeds("attention of SEP to SEP", own, 0.5, "share of attention", at),
        stays_below(
            "gradient of the loss with respect to attention to SEP, relative to other frequent tokens",
            gradient,
            1.0,
            "ratio",
            at,
        ),
    ]


FINDING = Finding(
    id="heads:C4",
    claim="Heads of a masked LM attend to SEP where their function does not apply: much attention, little effect.",
    source=CLARK,
    published="over half of BERT's attention in layers 6 to 10 is on SEP; SEP attends to SEP with over 90 % there; the "
    "loss's gradient with respect to that attention is small from layer 5 on (a figure)",
    statistic=(
        "in the layer with most attention on SEP, more than half of all attention and of SEP's own falls on it, and "
        "the gradient of the loss there is smaller than with respect to attention on the most frequent other tokens"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="untrained model", reads=untrained(READS)),),
    learned=(MASKED,),
    minimum_seeds=1,
)
