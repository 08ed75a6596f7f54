"""probing:T-1. Where in depth tasks are solved: the classical pipeline."""

from itertools import pairwise, permutations
from typing import Any

import numpy as np

from .._condition import Condition, exceeds
from .._finding import Control, Curves, Finding, Given
from .._model_group import MASKED
from .._probing import depths
from .._sources import PIPELINE
from .._table import Reading, untrained

TASKS = ("upos", "constituents", "arc-label", "coreference")
LEAST = 0.5  # layers; of BERT-large 1.5
READS: dict[str, Reading] = {"layers": depths(MASKED, TASKS, "expected_layer")}


def test(curves: Curves) -> list[Condition]:
    layers = curves["layers"]
    names = [f"{second} behind {first}" for first, second in pairwise(TASKS)]
    return [
        exceeds("the next task's expected layer lies higher", np.diff(layers, axis=1), 0.0, "layers", names),
        exceeds(
            "expected layer of coreference above that of parts of speech",
            layers[:, -1:] - layers[:, :1],
            LEAST,
            "layers",
            alone=False,  # half of all orders have the last task above the first
            published=9.471 - 3.386,
        ),
    ]


def _permuted(curves: dict[str, np.ndarray]) -> dict[str, Any]:
    """The tasks in every order: what a random order of them would show."""
    orders = np.array(list(permutations(range(len(TASKS)))))
    return {"layers": curves["layers"][0][orders]}


FINDING = Finding(
    id="probing:T-1",
    claim="A masked LM solves tasks in the order of the classical pipeline: parts of speech, constituents, "
    "dependencies, coreference.",
    source=PIPELINE,
    published="expected layers of BERT-large: parts of speech 3.39, coreference 9.47; of BERT-base constituents 2.38, "
    "dependencies 2.52, semantic roles 2.59 (roles are not tested here: no annotation is at hand)",
    statistic="expected layers of edge probes in this order, and the last above the first by half a layer "
    "(constituents are subtrees of the dependency tree here)",
    reads=READS,
    test=test,
    controls=(
        Control(name="untrained model", reads=untrained(READS)),
        Control(name="tasks in any order", reads=READS, transform=_permuted),
    ),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
