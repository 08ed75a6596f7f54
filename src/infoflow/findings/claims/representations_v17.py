"""representations:V-17. Layers are 1..L."""

from itertools import permutations
from math import factorial

import numpy as np

from infoflow.foundation import stream

from .._condition import Condition, exceeds
from .._curves import identity, information
from .._finding import Control, Curves, Finding
from .._model_group import NAMES, OBJECTIVES
from .._shapes import spearman
from .._sources import BOTTOM_UP
from .._table import Reading

READS: dict[str, Reading] = {
    **{f"{o.name} identity": identity(o) for o in OBJECTIVES},
    **{f"{o.name} information": information(o, "input", first=1) for o in OBJECTIVES},
}


def test(curves: Curves) -> list[Condition]:
    agreement = [spearman(curves[f"{o.name} identity"], curves[f"{o.name} information"]) for o in OBJECTIVES]
    return [
        exceeds(
            "rank correlation over layers of identity neighbours and information about the input",
            np.concatenate(agreement, axis=1),
            0.8,
            "Spearman's rho",
            [NAMES[o] for o in OBJECTIVES],
            published=0.94,
        )
    ]


def permuted_layers(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    """The information in other orders of the layers, the same order for each model; identity as it is."""
    num_layers = next(iter(curves.values())).shape[1]
    orders = _orders(num_layers)
    return {name: curve[0, orders] if name.endswith("information") else curve for name, curve in curves.items()}


def _orders(num_layers: int) -> np.ndarray:
    """All orders of up to seven layers; of more, as many random ones."""
    if num_layers <= 7:
        return np.array(list(permutations(range(num_layers))))
    generator = stream("findings", "layer orders", num_layers)
    return generator.permuted(np.tile(np.arange(num_layers), (factorial(7), 1)), axis=1)


FINDING = Finding(
    id="representations:V-17",
    claim=(
        "Two measures agree: layers that know more about their input token also keep its occurrences closer together."
    ),
    source=BOTTOM_UP,
    published="Spearman .94 to 1 in each model, from the published curves",
    statistic=(
        "Spearman correlation over layers 1..L of identity neighbours and mutual information with the input token, "
        "above .8 in every model"
    ),
    reads=READS,
    test=test,
    controls=(Control(name="layers in permuted order (95 % quantile)", reads=READS, transform=permuted_layers),),
    learned=OBJECTIVES,
    minimum_seeds=1,
)
