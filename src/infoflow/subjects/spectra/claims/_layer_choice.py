"""Which measure without labels finds the layer that probes best: the table `layer_choice`."""

# R bootstrap replicates, L layers

from collections.abc import Iterator, Mapping
from typing import Any, cast

import numpy as np
import pandas as pd

from infoflow.findings import SeedRows, spearman
from infoflow.probing import PROBE_SCORES
from infoflow.representations import GEOMETRY
from infoflow.results import KEYS, Column, TableSchema, estimate, estimate_columns, with_keys

from ..measures import LAYER_SPECTRUM

_GEOMETRY = ("average_similarity", "self_similarity", "intrinsic_dimension")
_EFFECTIVE_RANK = "effective_rank"  # a table of over_training, which may be removed
_LEAST = 3  # layers
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
        Column("measure", "string", "", "of layer_spectrum or geometry, or effective_rank"),
        *estimate_columns(
            "Spearman's rho",
            "rank correlation over layers of the measure with the accuracy",
            "the same for the layer's number, which needs no measure",
            "layers",
        ),
        Column("highest", "int64", "", "layer where the measure is highest"),
        Column("lowest", "int64", "", "layer where it is lowest"),
        Column("best", "int64", "", "layer where the probe is best"),
        Column("at_highest", "float64", "share", "accuracy in the layer where the measure is highest"),
        Column("at_lowest", "float64", "share", "accuracy in the layer where it is lowest"),
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
    """A number for each layer; no layers if it is unknown."""
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
