"""The curves that several claims share."""

from typing import Literal

from ._reading import Curve, Objective, Reading, SeedDistance, TaskDistance


def information(objective: Objective, side: Literal["input", "output"], regime: str = "clean") -> Curve:
    """Mutual information of the states with the input or the output token, layers 0..L."""
    return Curve(table="mutual_information", objective=objective, where={"side": side, "regime": regime})


def identity(objective: Objective) -> Curve:
    """Share of neighbours that are the same token, layers 1..L (the layers of the published figure)."""
    return Curve(table="identity_neighbours", objective=objective, first_layer=1)


def change(objective: Objective) -> Curve:
    """Distance between consecutive layers 1-2 .. (L−1)-L."""
    return Curve(table="layer_distance", objective=objective, first_layer=1)


def geometry(objective: Objective, measure: str, space: str = "raw") -> Curve:
    """A similarity of words' states, layers 0..L."""
    return Curve(table="geometry", objective=objective, where={"measure": measure, "space": space})


LANGUAGE_MODEL_INFORMATION: dict[str, Reading] = {
    "causal input": information("causal-lm", "input"),
    "causal output": information("causal-lm", "output"),
    "masked input": information("masked-lm", "input", regime="training"),
    "masked output": information("masked-lm", "output", regime="training"),
}
"""What both language models know of their input and output tokens, in the regime they are trained in."""

TASK_DISTANCES: dict[str, Reading] = {
    "translation–masked LM": TaskDistance(first="translation", second="masked-lm"),
    "causal LM–translation": TaskDistance(first="causal-lm", second="translation"),
    "causal LM–masked LM": TaskDistance(first="causal-lm", second="masked-lm"),
}
"""Distances between the models of two objectives, layers 1..L."""

SEED_DISTANCES: dict[str, Reading] = {
    "seeds of translation": SeedDistance(objective="translation"),
    "seeds of the causal LM": SeedDistance(objective="causal-lm"),
    "seeds of the masked LM": SeedDistance(objective="masked-lm"),
}
"""Distances between two initialisations of one objective, layers 1..L."""


def position(objective: Objective) -> Curve:
    """Distance in position to neighbours of the same token, layers 1..L."""
    return Curve(table="position_neighbours", objective=objective, first_layer=1)


def context(objective: Objective, side: Literal["left", "right"]) -> Curve:
    """Share of neighbours of the same token with the same token beside them, layers 1..L."""
    return Curve(table="context_neighbours", objective=objective, where={"side": side}, first_layer=1)


def tag(objective: Objective, column: str) -> Curve:
    """Share of neighbours of the same token with the same tag, layers 1..L."""
    return Curve(table="tag_neighbours", objective=objective, where={"tag": column}, first_layer=1)
