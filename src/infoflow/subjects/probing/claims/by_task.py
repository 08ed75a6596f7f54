"""Claims about probing: description length, M1, M2, M3, M5, M6; and the order of tasks over layers, T1, T2, T3."""

from itertools import pairwise, permutations
from typing import Any

import numpy as np

from infoflow.findings._curves import layer_names, num_layers, spearman
from infoflow.findings._finding import (
    CORRELATION,
    SHARE,
    Condition,
    Control,
    Curves,
    Given,
    claim,
    exceeds,
    stays_below,
)
from infoflow.findings._model_group import MASKED
from infoflow.findings._readings import TOKEN_TASKS, accuracy
from infoflow.findings._sources import DESCRIPTION_LENGTH, PIPELINE
from infoflow.findings._table import Reading, untrained

from ._readings import bits, cumulative_shape, depths, shuffled_layers

_M1_READS: dict[str, Reading] = {"task": bits(MASKED), "control": bits(MASKED, "control")}


@claim(
    "probing:M-1",
    "Description length separates a linguistic task from a control task (random labels of word types) where "
    "accuracy may not.",
    source=DESCRIPTION_LENGTH,
    published="layer 0: the control task is the more accurate one, and its code about twice as long",
    statistic="online code of the control task at least 1.5 times that of the task at layer 0, and longer in every "
    "layer",
    reads=_M1_READS,
    controls=(
        Control(
            "shuffled labels in place of the task", {"task": bits(MASKED, "shuffled"), "control": _M1_READS["control"]}
        ),
    ),
    given=Given(),
)
def m1(curves: Curves) -> list[Condition]:
    ratio = curves["control"] / curves["task"]
    return [
        exceeds("bits of the control task over those of the task, layer 0", ratio[:, :1], 1.5, "ratio", published=2.0),
        exceeds("this ratio in every layer", ratio, 1.0, "ratio", layer_names(ratio.shape[1], 0), alone=False),
    ]


_COMPRESSION = bits(MASKED, metric="compression")


@claim(
    "probing:M-2",
    "Context shortens the code of a linguistic task, mostly in a trained model.",
    source=DESCRIPTION_LENGTH,
    published="about half the code at the first contextual layer for most tasks; a random model gains less",
    statistic="online code at layer 1 at most three quarters of that at layer 0; random layers gain at most half as "
    "much compression (the source uses random orthonormal layers over trained embeddings, we a model of random "
    "weights)",
    reads={"bits": bits(MASKED), "trained": _COMPRESSION, **untrained({"random": _COMPRESSION})},
    controls=(
        Control(
            "control task",
            {
                "bits": bits(MASKED, "control"),
                "trained": bits(MASKED, "control", metric="compression"),
                **untrained({"random": bits(MASKED, "control", metric="compression")}),
            },
        ),
    ),
    given=Given(),
)
def m2(curves: Curves) -> list[Condition]:
    gain, of_random = (curves[name][:, 1:2] - curves[name][:, :1] for name in ("trained", "random"))
    return [
        stays_below(
            "bits at layer 1 over those at layer 0",
            curves["bits"][:, 1:2] / curves["bits"][:, :1],
            0.75,
            "ratio",
            published=0.5,
        ),
        exceeds(
            "gain in compression from layer 0 to 1 beyond twice that of random layers",
            gain - 2 * of_random,
            0.0,
            "uniform bits per bit",
            alone=False,
        ),
    ]


MOST = 0.05


@claim(
    "probing:M-3",
    "The layers of a random model do not evolve: the code is equally long in all of them.",
    source=DESCRIPTION_LENGTH,
    published="the layers of a random model are identical",
    statistic=f"range of the online code over layers 1 to L of an untrained model at most {MOST:.0%} of its mean (our "
    "threshold)",
    reads=untrained({"bits": bits(MASKED)}),
    controls=(Control("trained model", {"bits": bits(MASKED)}),),
    given=Given(),
)
def m3(curves: Curves) -> list[Condition]:
    above = curves["bits"][:, 1:]
    spread = (above.max(axis=1) - above.min(axis=1)) / above.mean(axis=1)
    return [
        stays_below(
            "range of the code over layers 1 to L, relative to its mean", spread[:, None], MOST, "ratio", published=0.0
        )
    ]


LEAST = 0.9


_M5_READS: dict[str, Reading] = {
    "online": bits(MASKED),
    "variational": bits(MASKED, code="variational"),
    "linear": accuracy(MASKED, TOKEN_TASKS),
    "mlp": accuracy(MASKED, TOKEN_TASKS, probe="mlp"),
}


@claim(
    "probing:M-5",
    "Description length ranks layers alike under different settings; accuracy does not.",
    source=DESCRIPTION_LENGTH,
    published="codes order the layers of ELMo alike in all settings; accuracies of layers 1 and 2 change places with "
    "the seed (97.48 and 97.31, 97.38 and 97.48)",
    statistic=f"online and variational code have a rank correlation over layers of at least {LEAST}, above that of the "
    "accuracies of a linear and a nonlinear probe",
    reads=_M5_READS,
    controls=(
        Control("layers in random order", _M5_READS, transform=shuffled_layers, permuted=("layers", num_layers)),
    ),
    given=Given(),
)
def m5(curves: Curves) -> list[Condition]:
    of_codes = spearman(curves["online"], curves["variational"])
    of_accuracies = spearman(curves["linear"], curves["mlp"])
    return [
        exceeds("rank correlation over layers of two codes", of_codes, LEAST, "", bounds=CORRELATION, published=1.0),
        exceeds("that of the codes minus that of the accuracies", of_codes - of_accuracies, 0.0, "", alone=False),
    ]


_M6_LEAST = 2.0


def _reads(task: str, control: str) -> dict[str, Reading]:
    found = {}
    for name, labels in (("task", task), ("control", control)):
        for metric in ("surviving", "model_bits"):
            found[f"{name} {metric}"] = bits(MASKED, labels, "variational", metric)
    return found


@claim(
    "probing:M-6",
    "The variational code finds a small probe for a linguistic task and a dense one for random labels.",
    source=DESCRIPTION_LENGTH,
    published="33 to 75 of 1,000 neurons of later layers survive for linguistic tasks, far more for control tasks",
    statistic=f"the control task needs at least {_M6_LEAST:g} times as many surviving inputs and bits of the model as "
    "the task, in every layer",
    reads=_reads("task", "control"),
    controls=(Control("shuffled labels in place of the task", _reads("shuffled", "control")),),
    given=Given(),
)
def m6(curves: Curves) -> list[Condition]:
    names = {"surviving": "inputs that survive", "model_bits": "bits of the model"}
    return [
        exceeds(
            f"{what}, control task over task, every layer",
            (ratio := curves[f"control {metric}"] / curves[f"task {metric}"]),
            _M6_LEAST,
            "ratio",
            layer_names(ratio.shape[1], 0),
            alone=metric == "model_bits",
        )
        for metric, what in names.items()
    ]


TASKS = ("upos", "constituents", "arc-label", "coreference")
HALF_A_LAYER = 0.5
_T1_READS: dict[str, Reading] = {"layers": depths(MASKED, TASKS, "expected_layer")}


def _permuted(curves: dict[str, np.ndarray]) -> dict[str, Any]:
    orders = np.array(list(permutations(range(len(TASKS)))))
    return {"layers": curves["layers"][0][orders]}


@claim(
    "probing:T-1",
    "A masked LM solves tasks in the order of the classical pipeline: parts of speech, constituents, dependencies, "
    "coreference.",
    source=PIPELINE,
    published="expected layers of BERT-large: parts of speech 3.39, coreference 9.47; of BERT-base constituents 2.38, "
    "dependencies 2.52, semantic roles 2.59 (roles are not tested here: no annotation is available)",
    statistic="the expected layers of edge probes rise in this order, and the last lies half a layer above the first "
    "(constituents are subtrees of the dependency tree here)",
    reads=_T1_READS,
    controls=(
        Control("untrained model", untrained(_T1_READS)),
        Control(
            "tasks in any order",
            _T1_READS,
            transform=_permuted,
            permuted=("tasks", lambda curves: curves["layers"].shape[1]),
        ),
    ),
    given=Given(),
)
def t1(curves: Curves) -> list[Condition]:
    layers = curves["layers"]
    names = [f"{second} behind {first}" for first, second in pairwise(TASKS)]
    return [
        exceeds("the next task's expected layer lies higher", np.diff(layers, axis=1), 0.0, "layers", names),
        exceeds(
            "expected layer of coreference above that of parts of speech",
            layers[:, -1:] - layers[:, :1],
            HALF_A_LAYER,
            "layers",
            alone=False,  # half of all orders have the last task above the first
            published=9.471 - 3.386,
        ),
    ]


SYNTAX = ("upos", "arc-label")


SEMANTICS: dict[str, str | tuple[str, ...]] = {"entities": ("ner-spans", "entity-spans"), "coreference": "coreference"}


@claim(
    "probing:T-2",
    "Syntactic tasks draw on few layers of a masked LM, semantic ones on many.",
    source=PIPELINE,
    published="K(s), the divergence of mixing weights from uniform, is higher for syntactic tasks than for relations "
    "and proto-roles",
    statistic="K(s) of parts of speech and dependencies lies above that of entities (in a treebank, all mentions by "
    "kind) and coreference, in every pair (our choice of semantic tasks: relations and proto-roles have no "
    "annotation)",
    reads={
        "syntax": depths(MASKED, SYNTAX, "k_weights"),
        "semantics": depths(MASKED, tuple(SEMANTICS.values()), "k_weights"),
    },
    given=Given(),
)
def t2(curves: Curves) -> list[Condition]:
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


@claim(
    "probing:T-3",
    "A probe that sees one more layer is usually no worse, but the top layer often lowers the score a little.",
    source=PIPELINE,
    published="BERT-base: 9 of 11 tasks are best below layer 12, usually by at most .4 F1",
    statistic="cumulative scores: fewer than half of all steps fall, and at least half of the tasks are best below "
    "the top",
    reads={"shape": cumulative_shape(MASKED)},
    given=Given(),
)
def t3(curves: Curves) -> list[Condition]:
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
