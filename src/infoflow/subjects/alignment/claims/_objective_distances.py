"""Distances between objectives: by the spaces of their models, by their heads, and by their loss changes."""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd

from infoflow.findings._model_group import ModelGroup
from infoflow.foundation import interval_over_seeds
from infoflow.heads import HEAD_PATTERNS, HEAD_POSITIONAL, HEAD_RARE_TOKEN, HEAD_RELATIONS, HEAD_SURFACE, head_roles
from infoflow.representations import MODEL_DISTANCE, SPACE_SIMILARITY
from infoflow.results import UNTRAINED, Spec
from infoflow.subjects.allocation.measures import ALLOCATION_SIMILARITY

Pair = tuple[str, str]

_ROLE_TABLES = (HEAD_POSITIONAL.name, HEAD_RELATIONS.name, HEAD_RARE_TOKEN.name, HEAD_SURFACE.name, HEAD_PATTERNS.name)
_LEAST_ROLES = 2


@dataclass(frozen=True, kw_only=True, slots=True, eq=False)
class ObjectiveDistance:
    """The distance between two models: two objectives with the same seed, or one objective with two seeds."""

    objectives: Pair  # in alphabetical order
    seeds: tuple[int, ...]
    value: float
    replicates: tuple[float, ...] = ()


@dataclass(frozen=True, kw_only=True, slots=True)
class Likeness:
    """An aspect in which models can be similar."""

    name: str
    measure: str
    tables: tuple[str, ...]
    distances: Callable[[ModelGroup, bool], Iterator[ObjectiveDistance]]


def summary(distances: list[ObjectiveDistance]) -> dict[str, Any]:
    """Mean over seeds, with its interval over seeds and sentences."""
    values = np.array([one.value for one in distances])
    common = min(len(one.replicates) for one in distances)
    replicates = np.array([one.replicates[:common] for one in distances]) if common > 1 else None
    ends = interval_over_seeds([one.seeds for one in distances], values, replicates)
    seeds = {seed for one in distances for seed in one.seeds}
    return {"value": float(values.mean()), "low": ends.low, "high": ends.high, "seeds": len(seeds)}


def spaces_by_pwcca(models: ModelGroup, trained: bool) -> Iterator[ObjectiveDistance]:
    """1 − PWCCA between the same layers of both models, mean over those above the embeddings."""
    frame = models.tables.get(MODEL_DISTANCE.name)
    if frame is None:
        return
    yield from _of_layers(_pairs(frame, models, trained), "layer", flip=False)


def spaces_by_cka(models: ModelGroup, trained: bool) -> Iterator[ObjectiveDistance]:
    """1 − unbiased CKA between the same layers of both models, mean over those above the embeddings."""
    frame = models.tables.get(SPACE_SIMILARITY.name)
    if frame is None:
        return
    equal = (frame["metric"] == "cka_debiased") & (frame["layer_a"] == frame["layer_b"])
    yield from _of_layers(_pairs(frame[equal], models, trained), "layer_a", flip=True)


def learning(models: ModelGroup, trained: bool) -> Iterator[ObjectiveDistance]:
    """1 − the rank correlation of two models' shares of the loss change, over all pairs of layer and component.

    Only stacks that read the text are compared. Only training changes the loss, so there is no untrained counterpart.
    """
    frame = models.tables.get(ALLOCATION_SIMILARITY.name)
    if frame is None or not trained:
        return
    main = _main_stacks(frame)
    chosen = (frame["normalisation"] == "share") & (frame["metric"] == "spearman")
    for side in "ab":
        chosen &= frame[f"stack_{side}"] == frame[f"model_{side}"].map(main)
    for row in _pairs(frame[chosen], models, trained).to_dict("records"):
        yield from _distance(row, 1 - row["value"], 1 - _numbers(row))


def heads(models: ModelGroup, trained: bool) -> Iterator[ObjectiveDistance]:
    r"""The energy distance between the heads of two models: heads are points whose coordinates are their role scores.

    $$ D^2 = 2 E|X - Y| - E|X - X'| - E|Y - Y'| $$

    X and Y are heads of the two models, in the self-attention of the stack that reads the text; heads need not
    correspond, and the models may differ in number of heads. Coordinates are the roles for which every head of every
    model has a score (`head_roles`), all of them shares.

    Source: [@szekely2013].
    """
    clouds = _clouds(models, trained)
    within = {model: _mean_distance(cloud, cloud) for model, cloud in clouds.items()}
    for (one, first), (other, second) in combinations(clouds.items(), 2):
        squared = 2 * _mean_distance(first, second) - within[one] - within[other]
        row = {"objective_a": one[0], "variant_a": one[1], "seed_a": one[2]}
        row |= {"objective_b": other[0], "variant_b": other[1], "seed_b": other[2]}
        yield from _distance(row, float(np.sqrt(max(squared, 0.0))), np.empty(0))


ASPECTS = (
    Likeness(
        name="spaces", measure="1 − PWCCA, mean over layers", tables=(MODEL_DISTANCE.name,), distances=spaces_by_pwcca
    ),
    Likeness(
        name="spaces by CKA",
        measure="1 − CKA, mean over layers",
        tables=(SPACE_SIMILARITY.name,),
        distances=spaces_by_cka,
    ),
    Likeness(name="heads", measure="energy distance of scores for roles", tables=_ROLE_TABLES, distances=heads),
    Likeness(
        name="learning",
        measure="1 − rank correlation of shares of the loss change",
        tables=(ALLOCATION_SIMILARITY.name,),
        distances=learning,
    ),
)
"""The aspects in which objectives are compared, in the order of the report."""


def _pairs(frame: pd.DataFrame, models: ModelGroup, trained: bool) -> pd.DataFrame:
    """Rows about two models of the group's architecture, trained from random weights."""
    at = models.update if trained else UNTRAINED
    keep = np.ones(len(frame), dtype=bool)
    for side in "ab":
        keep &= np.asarray(frame[f"architecture_{side}"] == models.architecture, dtype=bool)
        keep &= np.asarray(frame[f"start_{side}"] == "", dtype=bool)
        keep &= np.asarray(frame[f"update_{side}"] == at, dtype=bool)
    return frame[keep]


_ENDS = ["objective_a", "variant_a", "seed_a", "objective_b", "variant_b", "seed_b"]


def _of_layers(frame: pd.DataFrame, layer: str, flip: bool) -> Iterator[ObjectiveDistance]:
    """The mean over layers from 1 on; pairs that lack a layer are left out."""
    for ends, own in frame[frame[layer] >= 1].groupby(_ENDS, sort=True):
        lists = [_numbers(row) for row in own.to_dict("records")]
        common = min(map(len, lists))
        value, replicates = own["value"].mean(skipna=False), np.mean([one[:common] for one in lists], axis=0)
        row = dict(zip(_ENDS, ends, strict=True))  # type: ignore[arg-type]
        yield from _distance(row, *((1 - value, 1 - replicates) if flip else (value, replicates)))


def _numbers(row: Mapping[str, Any]) -> np.ndarray:
    found = row.get("replicates")
    return np.asarray([] if found is None else found, dtype=float)


def _distance(row: Mapping[str, Any], value: float, replicates: np.ndarray) -> Iterator[ObjectiveDistance]:
    """The pair's distance, if the models share a seed or an objective and `value` is a number; at least 0."""
    ends = [(Spec(row[f"objective_{s}"], row[f"variant_{s}"]).label, int(row[f"seed_{s}"])) for s in "ab"]
    (one, seed), (other, other_seed) = sorted(ends)
    if np.isfinite(value) and (one == other) != (seed == other_seed):
        seeds = (seed,) if seed == other_seed else (seed, other_seed)
        finite = tuple(replicates.tolist()) if np.isfinite(replicates).all() else ()
        yield ObjectiveDistance(objectives=(one, other), seeds=seeds, value=max(float(value), 0.0), replicates=finite)


def _main_stacks(frame: pd.DataFrame) -> dict[str, str]:
    """For each model the stack that reads the text: the encoder if there is one."""
    ends = [frame[[f"model_{side}", f"stack_{side}"]].set_axis(["model", "stack"], axis=1) for side in "ab"]
    found = pd.concat(ends).drop_duplicates().groupby("model")["stack"].agg(set)
    return {model: "encoder" if "encoder" in stacks else min(stacks) for model, stacks in found.items()}  # type: ignore[misc]


def _clouds(models: ModelGroup, trained: bool) -> dict[tuple[str, str, int], np.ndarray]:
    """The heads' scores of each model, (head, role)."""
    at = models.update if trained else UNTRAINED
    parts: dict[tuple[str, str, int], dict[str, pd.DataFrame]] = {}
    for name in _ROLE_TABLES:
        frame = models.tables.get(name)
        if frame is None or frame.empty:
            continue
        keep = (frame["architecture"] == models.architecture) & (frame["start"] == "") & (frame["update"] == at)
        for key, own in frame[keep & (frame["kind"] == "self")].groupby(["objective", "variant", "seed"]):
            reading = own[own["stack"] == "encoder"] if "encoder" in set(own["stack"]) else own
            parts.setdefault((str(key[0]), str(key[1]), int(key[2])), {})[name] = reading
    scores = {key: _scores(tables) for key, tables in parts.items()}
    shared = set.intersection(*(set(one) for one in scores.values())) if scores else set()
    roles = sorted(role for role in shared if all(one[role].notna().all() for one in scores.values()))
    return {key: one[roles].to_numpy() for key, one in scores.items()} if len(roles) >= _LEAST_ROLES else {}


def _scores(tables: Mapping[str, pd.DataFrame]) -> pd.DataFrame:
    roles = head_roles(tables)
    return roles.pivot_table(index=["layer", "head"], columns="role", values="value", aggfunc="first")


def _mean_distance(first: np.ndarray, second: np.ndarray) -> float:
    return float(np.linalg.norm(first[:, None] - second[None], axis=-1).mean())
