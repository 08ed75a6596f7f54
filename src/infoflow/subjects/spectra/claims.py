"""Claims about the layers that are best for probes and the measures that find them: probing:S-1 to S-6."""

# R bootstrap replicates, L layers

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd

from infoflow.findings._curves import layer_names, spearman
from infoflow.findings._finding import CORRELATION, Condition, Control, Curves, Finding, Given, claim, exceeds
from infoflow.findings._model_group import CAUSAL, MASKED, NAMES, TRANSLATION
from infoflow.findings._readings import TOKEN_TASKS, accuracy
from infoflow.findings._registry import Derived
from infoflow.findings._sources import Source
from infoflow.findings._table import Reading, SeedRows, Table, untrained
from infoflow.representations import GEOMETRY
from infoflow.results import KEYS, PROBE_SCORES, Column, Spec, TableSchema, estimate, estimate_columns, with_keys

from .measures import DIME, LAYER_SPECTRUM

_GEOMETRY = ("average_similarity", "self_similarity", "intrinsic_dimension")
_EFFECTIVE_RANK = "effective_rank"  # a table of over_training, which may be removed
_LEAST = 3  # minimum number of layers
_TASKS = {"masked-lm": ("masked-lm", "encoder"), "causal-lm": ("causal-lm",), "translation": ("seq2seq",)}
"""By objective, the tasks of external models that are judged as models of this objective."""
_NAMES = [column.name for column in KEYS]

LAYER_CHOICE = TableSchema(
    name="layer_choice",
    version=1,
    description="How well a measure without labels orders the layers of a model by the accuracy of a linear probe, "
    "and the layers that it and the probe would choose. Besides the measures of layer_spectrum: those of geometry and "
    "effective_rank, where the run has them.",
    made_by="a run with layer_spectrum and probe_scores makes it",
    columns=(
        *KEYS,
        Column("stack", "string", "", "encoder or decoder: the one that reads the text"),
        Column("task", "string", "", "task of the probe"),
        Column("measure", "string", "", "measure of layer_spectrum or geometry, or effective_rank"),
        *estimate_columns(
            "Spearman's rho",
            "rank correlation over layers of the measure with the accuracy",
            "rank correlation of the layer's number with the accuracy",
            "layers",
        ),
        Column("highest", "int64", "", "layer where the measure is highest"),
        Column("lowest", "int64", "", "layer where the measure is lowest"),
        Column("best", "int64", "", "layer where the probe is best"),
        Column("at_highest", "float64", "share", "accuracy in the layer where the measure is highest"),
        Column("at_lowest", "float64", "share", "accuracy in the layer where the measure is lowest"),
        Column("at_best", "float64", "share", "accuracy in the best layer"),
        Column("at_last", "float64", "share", "accuracy in the last layer"),
    ),
)


def layer_choice(tables: Mapping[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """The table by its name; empty if the run lacks measures or probes."""
    if not {LAYER_SPECTRUM.name, PROBE_SCORES.name} <= set(tables):
        return {}
    curves: dict[tuple[Any, ...], dict[str, SeedRows]] = {}
    for keys, measure, rows in _measured(tables):
        curves.setdefault(keys, {})[measure] = rows
    rows = [
        {**dict(zip([*_NAMES, "stack", "task"], [*keys, task], strict=True)), "measure": measure, **_row(own, probes)}
        for keys, task, probes in _probed(with_keys(tables[PROBE_SCORES.name]))
        for measure, own in curves.get(keys, {}).items()
        if len(probes.frame) >= _LEAST and own.frame["layer"].tolist() == probes.frame["layer"].tolist()
    ]
    return {LAYER_CHOICE.name: pd.DataFrame(rows, columns=LAYER_CHOICE.column_names)} if rows else {}


def _measured(tables: Mapping[str, pd.DataFrame]) -> Iterator[tuple[tuple[Any, ...], str, SeedRows]]:
    spectra = with_keys(tables[LAYER_SPECTRUM.name])
    found = [spectra]
    if GEOMETRY.name in tables:
        geometry = with_keys(tables[GEOMETRY.name])
        found.append(geometry.loc[(geometry["space"] == "raw") & geometry["measure"].isin(_GEOMETRY)])
    if _EFFECTIVE_RANK in tables:
        found.append(with_keys(tables[_EFFECTIVE_RANK]).assign(measure=_EFFECTIVE_RANK))
    for frame in found:
        for key, own in frame.groupby([*_NAMES, "stack", "measure"], sort=False):
            *keys, measure = cast(tuple[Any, ...], key)
            yield tuple(keys), str(measure), _by_layer(own)


def _probed(scores: pd.DataFrame) -> Iterator[tuple[tuple[Any, ...], str, SeedRows]]:
    wanted = {"labels": "task", "probe": "linear", "words": "all", "metric": "accuracy"}
    chosen = scores.loc[np.all([scores[name] == value for name, value in wanted.items()], axis=0)]
    chosen = chosen.loc[chosen["share"] == chosen.groupby("task")["share"].transform("max")]
    for key, own in chosen.groupby([*_NAMES, "stack", "task"], sort=False):
        *keys, task = cast(tuple[Any, ...], key)
        yield tuple(keys), str(task), _by_layer(own)


def _by_layer(rows: pd.DataFrame) -> SeedRows:
    """The number of each layer; without layers if the number is unknown."""
    return SeedRows(rows.dropna(subset="value").drop_duplicates("layer").sort_values("layer"))


def _row(own: SeedRows, probes: SeedRows) -> dict[str, Any]:
    curve_RL, accuracy_RL = own.numbers, probes.numbers
    common = min(len(curve_RL), len(accuracy_RL))
    rho = spearman(curve_RL[:common], accuracy_RL[:common])[:, 0]
    layers, accuracy = own.column("layer").astype(int), accuracy_RL[0]
    high, low, best = int(curve_RL[0].argmax()), int(curve_RL[0].argmin()), int(accuracy.argmax())
    baseline = float(spearman(layers[None], accuracy[None])[0, 0])
    return {
        **estimate(float(rho[0]), rho[1:], baseline, len(layers), scale="correlation"),
        "highest": layers[high],
        "lowest": layers[low],
        "best": layers[best],
        "at_highest": accuracy[high],
        "at_lowest": accuracy[low],
        "at_best": accuracy[best],
        "at_last": accuracy[-1],
    }


LAYER_BY_LAYER = Source(
    "Skean, Arefin, Zhao, Patel, Naghiyev, LeCun and Shwartz-Ziv 2025, Layer by Layer: Uncovering Hidden "
    "Representations in Language Models, ICML (tasks on whole texts)",
    "abstract",
    ours=True,
)


def inside(objective: Spec, number: int) -> Finding:
    """The claim that an intermediate layer is best for probes, for models of one objective."""
    reads: dict[str, Reading] = {"accuracy": accuracy(objective, TOKEN_TASKS)}

    @claim(
        f"probing:S-{number}",
        f"In a {NAMES[objective]}, an intermediate layer is better for probes than the last layer.",
        source=LAYER_BY_LAYER,
        published="the average over 32 tasks of text embedding is highest at intermediate layers of Transformers and "
        "state-space models",
        statistic="accuracy of a linear probe of word labels: some layer between the ends exceeds both the last layer "
        "and the embeddings, since an untrained model's first layers may exceed the last layer alone",
        reads=reads,
        controls=(
            Control(name="untrained model", reads=untrained(reads)),
            Control(name="control task", reads={"accuracy": accuracy(objective, TOKEN_TASKS, labels="control")}),
        ),
        learned=(objective,),
        given=Given(tasks=_TASKS[objective.name]),
        minimum_seeds=1,
    )
    def test(curves: Curves) -> list[Condition]:
        """Layers are 0..L."""
        curve = curves["accuracy"]
        between = curve[:, 1:-1]
        beyond, layers = between - np.maximum(curve[:, :1], curve[:, -1:]), layer_names(between.shape[1], 1)
        name = "accuracy of an intermediate layer above the better one of the embeddings and the last layer"
        return [exceeds(name, beyond, 0.0, "accuracy", layers, over="any")]

    return test


def found_by_dime(objective: Spec, number: int) -> Finding:
    """The claim that DiME orders the layers as probes do, for models of one objective."""
    dime = Table(LAYER_SPECTRUM.name, objective).where(measure=DIME).by("layer")
    reads: dict[str, Reading] = {"accuracy": accuracy(objective, TOKEN_TASKS), "dime": dime}

    @claim(
        f"probing:S-{number}",
        f"In a {NAMES[objective]}, DiME, which needs no labels, is higher in layers where probes are better.",
        source=LAYER_BY_LAYER,
        published="no number was read; others report that the layer chosen by DiME is about 3 % better than the last "
        "layer",
        statistic="Spearman correlation over layers of DiME with the accuracy of a linear probe of word labels, "
        "above 0",
        reads=reads,
        controls=(
            Control(name="DiME of the untrained model", reads=reads | untrained({"dime": dime})),
            Control(name="the layer's number instead of DiME", reads=reads, transform=_by_depth, decisive=False),
        ),
        learned=(objective,),
        given=Given(tasks=_TASKS[objective.name]),
        minimum_seeds=1,
    )
    def test(curves: Curves) -> list[Condition]:
        """Layers are 0..L."""
        correlation = spearman(curves["dime"], curves["accuracy"])
        name = "rank correlation of DiME with accuracy"
        return [exceeds(name, correlation, 0.0, "Spearman's rho", bounds=CORRELATION)]

    return test


def _by_depth(curves: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    return curves | {"dime": np.broadcast_to(np.arange(curves["dime"].shape[1]), curves["dime"].shape)}


S1, S2, S3 = (inside(objective, number) for number, objective in enumerate((MASKED, CAUSAL, TRANSLATION), 1))
S4, S5, S6 = (found_by_dime(objective, number) for number, objective in enumerate((MASKED, CAUSAL, TRANSLATION), 4))

DERIVED = (Derived(schemas=(LAYER_CHOICE,), make=layer_choice),)
