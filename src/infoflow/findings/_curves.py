"""The curves that several claims share."""

from typing import Literal

from infoflow.results import Spec

from ._model_group import CAUSAL, MASKED, NAMES, TRANSLATION
from ._table import Reading, Table, one_number


def information(objective: Spec, side: Literal["input", "output"], regime: str = "clean", first: int = 0) -> Reading:
    """Mutual information of the states with the input or the output token, layers 0..L."""
    return Table("mutual_information", objective).where(side=side, regime=regime).by("layer", first=first)


def identity(objective: Spec) -> Reading:
    """Share of neighbours that are the same token, layers 1..L (the layers of the published figure)."""
    return Table("identity_neighbours", objective).by("layer", first=1)


def change(objective: Spec) -> Reading:
    """Distance between consecutive layers 1-2 .. (L−1)-L."""
    return Table("layer_distance", objective).by("layer", first=1)


def geometry(objective: Spec, measure: str, space: str = "raw") -> Reading:
    """A similarity of words' states, layers 0..L."""
    return Table("geometry", objective).where(measure=measure, space=space).by("layer")


def position(objective: Spec) -> Reading:
    """Distance in position to neighbours of the same token, layers 1..L."""
    return Table("position_neighbours", objective).by("layer", first=1)


def context(objective: Spec, side: Literal["left", "right"]) -> Reading:
    """Share of neighbours of the same token with the same token beside them, layers 1..L."""
    return Table("context_neighbours", objective).where(side=side).by("layer", first=1)


def tag(objective: Spec, column: str) -> Reading:
    """Share of neighbours of the same token with the same tag, layers 1..L."""
    return Table("tag_neighbours", objective).where(tag=column).by("layer", first=1)


def task_distance(first: Spec, second: Spec) -> Reading:
    """The distance between the models of two objectives that grew from the same seed, layers 1..L."""
    absent = f"no distance between {{state}} {NAMES[first]} and {NAMES[second]} of one seed was measured"
    return Table("model_distance", first, second, absent=absent).by("layer", first=1)


def seed_distance(objective: Spec) -> Reading:
    """The distance between two models of one objective that differ in their seed, layers 1..L."""
    absent = "no distance between {state} models of two seeds was measured (one seed?)"
    return Table("model_distance", objective, objective, "ordered", absent=absent).by("layer", first=1)


def alignment(kind: str, metric: str, states: str) -> Reading:
    """A score on held-out words of the masked LM's encoder, aligned or of another kind."""
    return Table("alignment", MASKED).where(kind=kind, metric=metric, states=states).reduce(one_number)


LANGUAGE_MODEL_INFORMATION: dict[str, Reading] = {
    "causal input": information(CAUSAL, "input"),
    "causal output": information(CAUSAL, "output"),
    "masked input": information(MASKED, "input", regime="training"),
    "masked output": information(MASKED, "output", regime="training"),
}
"""What both language models know of their input and output tokens, in the regime they are trained in."""

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
