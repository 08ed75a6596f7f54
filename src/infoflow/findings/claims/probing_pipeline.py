"""Claims about probing: T1, T2, T3."""

from itertools import pairwise, permutations
from typing import Any

import numpy as np

from .._finding import SHARE, Condition, Control, Curves, Given, claim, exceeds, stays_below
from .._model_group import MASKED
from .._readings import cumulative_shape, depths
from .._sources import PIPELINE
from .._table import Reading, untrained

TASKS = ("upos", "constituents", "arc-label", "coreference")


LEAST = 0.5


_T1_READS: dict[str, Reading] = {"layers": depths(MASKED, TASKS, "expected_layer")}


def _permuted(curves: dict[str, np.ndarray]) -> dict[str, Any]:
    """The tasks in every order, as a random order would show."""
    orders = np.array(list(permutations(range(len(TASKS)))))
    return {"layers": curves["layers"][0][orders]}


@claim(
    "probing:T-1",
    "A masked LM solves tasks in the order of the classical pipeline: parts of speech, constituents, dependencies, "
    "coreference.",
    source=PIPELINE,
    published="expected layers of BERT-large: parts of speech 3.39, coreference 9.47; of BERT-base constituents 2.38, "
    "dependencies 2.52, semantic roles 2.59 (roles are not tested here: no annotation is available)",
    statistic="expected layers of edge probes in this order, and the last above the first by half a layer "
    "(constituents are subtrees of the dependency tree here)",
    reads=_T1_READS,
    controls=(
        Control(name="untrained model", reads=untrained(_T1_READS)),
        Control(
            name="tasks in any order",
            reads=_T1_READS,
            transform=_permuted,
            permuted=("tasks", lambda curves: curves["layers"].shape[1]),
        ),
    ),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
def t1(curves: Curves) -> list[Condition]:
    """Where in depth tasks are solved: the classical pipeline."""
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


SYNTAX = ("upos", "arc-label")


SEMANTICS: dict[str, str | tuple[str, ...]] = {"entities": ("ner-spans", "entity-spans"), "coreference": "coreference"}


_T2_READS: dict[str, Reading] = {
    "syntax": depths(MASKED, SYNTAX, "k_weights"),
    "semantics": depths(MASKED, tuple(SEMANTICS.values()), "k_weights"),
}


@claim(
    "probing:T-2",
    "Syntactic tasks draw on few layers of a masked LM, semantic ones on many.",
    source=PIPELINE,
    published="K(s), the divergence of mixing weights from uniform, is higher for syntactic tasks than for relations "
    "and proto-roles",
    statistic="K(s) of parts of speech and dependencies above that of entities (of a treebank all mentions by their "
    "kind) and coreference, every pair (our choice of semantic tasks: relations and proto-roles have no "
    "annotation)",
    reads=_T2_READS,
    controls=(Control(name="untrained model", reads=untrained(_T2_READS)),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
def t2(curves: Curves) -> list[Condition]:
    """Syntax in few layers, semantics in many."""
    gaps = curves["syntax"][:, :, None] - curves["semantics"][:, None]
    names = [f"{one} and {other}" for one in SYNTAX for other in SEMANTICS]
    return [
        exceeds(
            "mixing weights of a syntactic task farther from uniform than those of a semantic one",
            gaps.reshape(len(gaps), -1),
            0.0,
            "bits",
            names,
        )
    ]


_T3_READS: dict[str, Reading] = {"shape": cumulative_shape(MASKED)}


@claim(
    "probing:T-3",
    "A probe that sees one more layer is mostly no worse, but the top layer often lowers the score a little.",
    source=PIPELINE,
    published="BERT-base: 9 of 11 tasks are best below layer 12, usually by at most .4 F1",
    statistic="cumulative scores: fewer than half of all steps fall, and at least half of the tasks are best below "
    "the top",
    reads=_T3_READS,
    controls=(Control(name="untrained model", reads=untrained(_T3_READS)),),
    learned=(MASKED,),
    given=Given(),
    minimum_seeds=1,
)
def t3(curves: Curves) -> list[Condition]:
    """Scores of probes that see one more layer."""
    falling, peaks = curves["shape"][:, :1], curves["shape"][:, 1:2]
    return [
        stays_below("share of steps at which a score falls", falling, 0.5, "share of steps", bounds=SHARE, alone=False),
        exceeds(
            "share of tasks whose score is highest below the top",
            peaks,
            np.nextafter(0.5, 0.0),
            "share of tasks",
            bounds=SHARE,
            of=int(curves["shape"][0, 2]),
            published=9 / 11,
        ),
    ]
