"""heads:C4. The masked LM's attention to SEP does nothing."""

import numpy as np

from .._condition import Condition
from .._finding import Control, Curves, Finding
from .._heads import LayerMeans
from .._reading import Reading, untrained
from .._sources import CLARK


def _surface(statistic: str) -> LayerMeans:
    return LayerMeans(table="head_surface", objective="masked-lm", where={"statistic": statistic})


READS: dict[str, Reading] = {
    "mass": _surface("sep"),
    "own": _surface("sep_to_sep"),
    "gradient": LayerMeans(
        table="head_special_gradient",
        objective="masked-lm",
        where={},
        ratio=True,
    ),
}


def test(curves: Curves) -> list[Condition]:
    layer = int(np.nanargmax(curves["mass"][0]))
    at = [f"block {layer}, where SEP has most attention"]
    mass, own, gradient = (curves[name][:, layer : layer + 1] for name in ("mass", "own", "gradient"))
    return [
        Condition(name="attention to SEP", values=mass, labels=at, threshold=0.5, unit="share of attention"),
        Condition(name="attention of SEP to SEP", values=own, labels=at, threshold=0.5, unit="share of attention"),
        Condition(
            name="gradient of the loss with respect to attention to SEP, relative to other frequent tokens",
            values=gradient,
            labels=at,
            threshold=1.0,
            unit="ratio",
            side="below",
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
    learned=("masked-lm",),
    minimum_seeds=1,
)
