"""Curves that several claims share."""

from typing import Literal

from infoflow.representations import (
    CONTEXT_NEIGHBOURS,
    GEOMETRY,
    IDENTITY_NEIGHBOURS,
    LAYER_DISTANCE,
    MODEL_DISTANCE,
    MUTUAL_INFORMATION,
    POSITION_NEIGHBOURS,
    TAG_NEIGHBOURS,
)
from infoflow.results import Spec

from ._model_group import CAUSAL, MASKED, NAMES, TRANSLATION
from ._table import Reading, Table


def information(objective: Spec, side: Literal["input", "output"], regime: str = "clean", first: int = 0) -> Reading:
    """Mutual information of the states with the input or the output token, layers 0..L."""
    return Table(MUTUAL_INFORMATION.name, objective).where(side=side, regime=regime).by("layer", first=first)


def identity(objective: Spec) -> Reading:
    """Share of neighbours that are the same token, layers 1..L (the layers of the published figure)."""
    return Table(IDENTITY_NEIGHBOURS.name, objective).by("layer", first=1)


def change(objective: Spec) -> Reading:
    """Distance between consecutive layers 1-2 .. (L−1)-L."""
    return Table(LAYER_DISTANCE.name, objective).by("layer", first=1)


def geometry(objective: Spec, measure: str, space: str = "raw") -> Reading:
    """Similarity of words' states, layers 0..L."""
    return Table(GEOMETRY.name, objective).where(measure=measure, space=space).by("layer")


def position(objective: Spec) -> Reading:
    """Mean distance between the positions of a token and of neighbours of the same token, layers 1..L."""
    return Table(POSITION_NEIGHBOURS.name, objective).by("layer", first=1)


def context(objective: Spec, side: Literal["left", "right"]) -> Reading:
    """Share of neighbours of the same token that also share the adjacent token, layers 1..L."""
    return Table(CONTEXT_NEIGHBOURS.name, objective).where(side=side).by("layer", first=1)


def tag(objective: Spec, column: str) -> Reading:
    """Share of neighbours of the same token with the same tag, layers 1..L."""
    return Table(TAG_NEIGHBOURS.name, objective).where(tag=column).by("layer", first=1)


def task_distance(first: Spec, second: Spec) -> Reading:
    """Distance between the models of two objectives with the same seed, layers 1..L."""
    absent = f"no distance between {{state}} {NAMES[first]} and {NAMES[second]} of one seed was measured"
    return Table(MODEL_DISTANCE.name, first, second, absent=absent).by("layer", first=1)


def seed_distance(objective: Spec) -> Reading:
    """Distance between two models of one objective with different seeds, layers 1..L."""
    absent = "no distance between {state} models of two seeds was measured (one seed?)"
    return Table(MODEL_DISTANCE.name, objective, objective, "ordered", absent=absent).by("layer", first=1)


LANGUAGE_MODEL_INFORMATION: dict[str, Reading] = {
    "causal input": information(CAUSAL, "input"),
    "causal output": information(CAUSAL, "output"),
    "masked input": information(MASKED, "input", regime="training"),
    "masked output": information(MASKED, "output", regime="training"),
}
"""Information of both language models about their input and output tokens, in their training regime."""

TASK_DISTANCES: dict[str, Reading] = {
    "translation–masked LM": task_distance(TRANSLATION, MASKED),
    "causal LM–translation": task_distance(CAUSAL, TRANSLATION),
    "causal LM–masked LM": task_distance(CAUSAL, MASKED),
}
"""Distances between the spaces of two objectives, layer by layer, by the names of both."""

SEED_DISTANCES: dict[str, Reading] = {
    "seeds of translation": seed_distance(TRANSLATION),
    "seeds of the causal LM": seed_distance(CAUSAL),
    "seeds of the masked LM": seed_distance(MASKED),
}
